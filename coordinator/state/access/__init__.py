"""Access rights: the table of roles and identities, the decision, and where apply asks for it."""
