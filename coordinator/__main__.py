"""``python -m coordinator``: the same as the ``coordinator`` command."""

from coordinator.cli.entry import main

if __name__ == "__main__":
    main()
