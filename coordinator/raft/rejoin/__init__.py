"""The return of a member after data loss: incarnations, recovery, a cluster founded again."""
