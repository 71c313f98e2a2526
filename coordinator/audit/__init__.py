"""The audit log: who changed the rules, forced an end or was refused, in a chain of lines.

``event`` is what the rooms say, ``chain`` how it becomes a line that names the one before,
``targets`` where lines go, ``log`` the thread between them.
"""
