"""The bill of materials of a container, as CycloneDX 1.5.

``python -m tests.supply.sbom`` writes it into dist.

Made of ``requirements.lock`` (versions, hashes) and of the metadata of the packages installed here
(licences, what needs what). The same files make the same bytes.
"""

from __future__ import annotations

import json
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.supply.lock import ROOT, Pinned, needed_by, normal, pinned

OWN = "raft-coordinator"


def sbom() -> dict[str, Any]:
    """Return the document."""
    packages = pinned()
    own = metadata.version(OWN)
    needs = {OWN: sorted(set(needed_by(OWN)) & set(packages))}
    for name in packages:
        try:
            needs[name] = sorted(set(needed_by(name)) & set(packages))
        except metadata.PackageNotFoundError:
            needs[name] = []
    refs = {OWN: _purl(OWN, own)} | {
        each.name: _purl(each.name, each.version) for each in packages.values()
    }
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": refs[OWN],
                "name": OWN,
                "version": own,
                "purl": refs[OWN],
                "licenses": [{"license": {"id": "MIT"}}],
            }
        },
        "components": [_component(each, refs[each.name]) for each in packages.values()],
        "dependencies": [
            {"ref": refs[name], "dependsOn": [refs[each] for each in needed]}
            for name, needed in sorted(needs.items())
        ],
    }
    content = json.dumps(document, sort_keys=True)
    return {**document, "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}"}


def _component(package: Pinned, ref: str) -> dict[str, Any]:
    licence = _licence(package.name)
    return {
        "type": "library",
        "bom-ref": ref,
        "name": package.name,
        "version": package.version,
        "purl": ref,
        **({"licenses": [{"license": {"name": licence}}]} if licence else {}),
        # Of each file that an index has of this version: any of them may be what is installed.
        "properties": [{"name": "file:sha256", "value": each} for each in package.sha256],
    }


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{normal(name)}@{version}"


def _licence(name: str) -> str:
    """Return what the package says of its licence, in one line."""
    try:
        said = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    classifiers = [
        each.rpartition(" :: ")[2]
        for each in said.get_all("Classifier") or ()
        if each.startswith("License ::")
    ]
    texts = [said.get("License-Expression"), *classifiers, said.get("License")]
    return next((each for each in texts if each and "\n" not in each), "")


def main() -> None:
    """Write the document."""
    target = ROOT / "dist" / "coordinator.cdx.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(sbom(), indent=1) + "\n", encoding="ascii")
    print(f"{target.relative_to(Path.cwd()) if target.is_relative_to(Path.cwd()) else target}")


if __name__ == "__main__":
    main()
