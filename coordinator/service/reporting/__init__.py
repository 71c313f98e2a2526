"""Reports of a member on itself, the cluster and locks: status, health, audit, diagnosis."""
