"""Sessions: leases, bounded holds, heartbeats, and how they end."""
