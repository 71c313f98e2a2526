"""The freeze ray: stories about locks, played on a live cluster and recorded as films.

``film`` is what is recorded: steps, each a sentence and the changes of a state, so that a page can
play, pause and step back. ``redlock`` and ``side_by_side`` are pure simulations. ``actor`` is a
real client in a process of its own, which ``troupe`` starts, freezes (SIGSTOP) and wakes.
``scripts`` and ``crowds`` are the stories, ``stage`` is where they play; ``page_server`` serves
them to a browser on this machine. ``catalog`` lists every story in an order to read.
``recording`` and ``simulated`` make films of any cluster, and of the trace of a simulated world.

It imports the client and the recipes, as any program does, and never a member's rooms.
"""
