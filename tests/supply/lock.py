"""What a container installs: names, versions and hashes, as ``requirements.lock`` has them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
_PIN = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>[0-9][A-Za-z0-9.]*) \\")
_HASH = re.compile(r"    --hash=sha256:(?P<hash>[0-9a-f]{64})( \\)?")
_IN_THE_IMAGE = {
    "extra": "",
    "python_version": "3.11",
    "python_full_version": "3.11.0",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}


@dataclass(frozen=True, slots=True)
class Pinned:
    """One package; the hashes are those of its files for all systems."""

    name: str
    version: str
    sha256: tuple[str, ...]


def pinned(file: str = "requirements.lock") -> dict[str, Pinned]:
    """Return what a lock file names. ValueError: a line that is neither a pin nor a hash."""
    found: dict[str, Pinned] = {}
    name = version = ""
    for line in (ROOT / file).read_text("ascii").splitlines():
        if line.startswith("#"):
            continue
        if pin := _PIN.fullmatch(line):
            name, version = pin["name"], pin["version"]
            found[name] = Pinned(name, version, ())
        elif hashed := _HASH.fullmatch(line):
            found[name] = Pinned(name, version, (*found[name].sha256, hashed["hash"]))
        else:
            raise ValueError(f"{file}: expected a version or a hash, found {line!r}")
    return found


def normal(name: str) -> str:
    """Return a package's name as an index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed_by(name: str) -> Iterator[str]:
    """Iterate over what an installed package needs in the image, without what extras need."""
    for text in metadata.requires(name) or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate(_IN_THE_IMAGE):
            yield normal(requirement.name)
