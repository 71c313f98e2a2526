"""The base that all parts of a member share: its context, replica, clock and clients."""
