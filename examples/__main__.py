"""``python -m examples``: lists the stories in an order to read them in, and runs them."""

from __future__ import annotations

import argparse
import pkgutil
import sys
from importlib import import_module
from types import ModuleType

import examples
from coordinator.testing import local_cluster
from examples.stage import Stage

CHAPTERS = {
    "Why a lock": "s100 s105 s127 s107 s106 s108",
    "A holder that does not know that it lost": "s101 s102 s103 s104 s111 s114 s120 s028 s122",
    "Time, partitions and lost heartbeats": "s109 s110 s112 s113 s119 s121 s019 s130 s131",
    "Waiting, several locks, speed": "s117 s118 s128 s115 s116 s125 s126",
    "Once, and what a lock cannot do": "s088 s129 s031 s123 s124 s148",
    "Instead of a lock": "instead_actor instead_event_log",
}
"""The order to read them in, by the beginnings of their names."""


def stories() -> list[str]:
    """Return the names of all stories, in the order to read them in."""
    known = [each.name for each in pkgutil.iter_modules(examples.__path__)]
    order = [word for words in CHAPTERS.values() for word in words.split()]
    return [name for word in order for name in known if name.startswith(word)]


def list_all() -> None:
    """Print every story under its chapter, with its first line."""
    for title, words in CHAPTERS.items():
        print(f"{title}:")
        for name in stories():
            if name.startswith(tuple(words.split())):
                about = (_module(name).__doc__ or "").partition("\n")[0]
                print(f"  {name:<38} {about}")
    print("\nRun one: python -m examples s105. All: python -m examples all. Faster: --pace 0.2")


def main() -> int:
    """List the stories, or run those that are named."""
    parser = argparse.ArgumentParser(prog="python -m examples", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="STORY", help="s105, for example; or: all")
    parser.add_argument("--pace", type=float, default=1.0, help="0.2 runs five times as fast")
    options = parser.parse_args()
    if not options.names:
        list_all()
        return 0
    chosen = []
    for word in options.names:
        found = [name for name in stories() if word == "all" or name.startswith(word.lower())]
        if not found:
            print(f"no story begins with {word!r}; list them: python -m examples", file=sys.stderr)
            return 2
        chosen += found
    for name in chosen:
        module = _module(name)
        print(f"\n=== {name}: {(module.__doc__ or '').partition(chr(10))[0]}", flush=True)
        with local_cluster(members=3) as cluster:
            module.story(Stage(cluster, options.pace))
    return 0


def _module(name: str) -> ModuleType:
    return import_module(f"examples.{name}")


if __name__ == "__main__":
    sys.exit(main())
