"""The session of a client: opened when first needed, renewed while the program is well."""
