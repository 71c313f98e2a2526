"""One running member, and what it has from its machine: configuration, files, log, secrets.

``server`` puts the rooms together, ``recovery`` begins a cluster again, ``config`` is what all
rooms may read of the settings.
"""
