"""How a member comes back after data loss: incarnations, recovery, a cluster founded again."""
