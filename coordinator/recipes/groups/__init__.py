"""The parts of a group: its members and their registrations."""
