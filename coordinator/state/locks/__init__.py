"""The queues of locks and elections: contenders, holders, release, deadlock, grant history."""
