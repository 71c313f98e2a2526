"""One call answered by any member before its deadline: requests, retries, credentials, TLS."""
