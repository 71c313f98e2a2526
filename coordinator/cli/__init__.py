"""The same for people: verbs over the client, plus ``serve`` and ``dev``.

- ``main``        the command and its options that every verb shares
- ``output``      how results and errors are shown, as text or JSON, and which exit code they get
- ``connection``  the client that the verbs of one call share
- ``znodes``, ``transactions``, ``watching``, ``cluster``  the verbs of the tree and of the service
- ``locks``       ``lock`` and ``elect``: a command that runs only while the lock is held
- ``supervisor``  runs such a command and ends it in time; the process ``watchdog`` makes sure
- ``serving``, ``dev``  members: one in the foreground with its secret and the recovery of its data;
  a whole cluster on this machine
- ``dev_layout``  what a cluster on this machine is made of: ports, files, secret
"""
