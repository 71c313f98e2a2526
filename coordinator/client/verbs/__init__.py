"""The verbs of a client by what they are about, and the hints for those of other libraries."""
