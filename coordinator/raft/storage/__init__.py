"""The data of a member on disk: the log, term and vote, snapshots; how they are read and synced."""
