"""What a member keeps on disk: the log, term and vote, snapshots; how it is read and synced."""
