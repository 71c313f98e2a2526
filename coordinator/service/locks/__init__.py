"""Locks and elections as a member runs them: acquire, wait, renew, release, revoke, show."""
