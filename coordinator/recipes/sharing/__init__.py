"""The parts of what programs share: configurations, commit logs, work queues."""
