"""The supply chain: what a container is made of is named, hashed, and can do little."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.supply.lock import ROOT, needed_by, normal, pinned
from tests.supply.sbom import sbom


def test_every_dependency_is_locked_within_its_range() -> None:
    """And what those need, too; each with a hash, none with an address."""
    locked = pinned()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    for text in (*project["dependencies"], *extras["certs"], *extras["oidc"]):
        wanted = Requirement(text)
        found = locked[normal(wanted.name)].version
        assert wanted.specifier.contains(found), f"{text}: locked is {found}; tests/supply/lock"
        assert set(needed_by(wanted.name)) <= set(locked), f"what {text} needs; tests/supply/lock"
    assert all(each.sha256 for each in locked.values())
    assert set(pinned("requirements-build.lock")) == {"setuptools"}


def test_the_image_installs_nothing_that_is_not_hashed() -> None:
    """Each pip install asks for hashes, or for no index at all; and the build is not isolated."""
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    installs = re.findall(r"pip install (.*?)(?:&&|\n)", text)

    assert len(installs) == 3
    assert all("--require-hashes" in each or "--no-index --no-deps" in each for each in installs)
    assert all("--no-build-isolation" in each for each in installs[1:])
    assert re.search(r"^ARG BASE_IMAGE=python:3\.11-slim(@sha256:[0-9a-f]{64})?$", text, re.M)
    assert set(re.findall(r"^FROM (\S+)", text, re.M)) == {"${BASE_IMAGE}"}
    assert text.rindex("USER coordinator") > text.rindex("RUN ")


@pytest.mark.parametrize(
    ("base", "pinned_only", "is_built", "is_warned"),
    [
        ("python:3.11-slim", "no", True, True),
        ("python:3.11-slim", "yes", False, True),
        (f"python:3.11-slim@sha256:{'0' * 64}", "yes", True, False),
    ],
)
def test_a_build_on_a_name_without_digest_says_so(
    base: str, pinned_only: str, is_built: bool, is_warned: bool
) -> None:
    """And the image says what it was built on."""
    text = (ROOT / "Dockerfile").read_text("utf-8")
    step = re.search(r"^RUN (case .*?esac)$", text, re.M | re.S)
    assert step is not None
    known = {"BASE_IMAGE": base, "PINNED": pinned_only}
    done = subprocess.run(["sh", "-c", step[1]], env=known, capture_output=True, check=False)

    assert (done.returncode == 0) == is_built
    assert (b"has no digest" in done.stderr) == is_warned
    assert "LABEL org.opencontainers.image.base.name=${BASE_IMAGE}" in text


def test_a_container_can_do_little() -> None:
    """The compose file: a root that cannot be written, no capabilities, bounds, its own secrets."""
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    shared = text[text.index("x-member:") : text.index("x-environment:")]
    for line in (
        "read_only: true",
        "cap_drop: [ALL]",
        'security_opt: ["no-new-privileges:true"]',
        "pids_limit: ",
        "mem_limit: ",
        "tmpfs: [",
    ):
        assert line in shared, line
    members = re.findall(r"^  member-(\d):\n(.*?)(?=^  \S|^\S)", text, re.M | re.S)
    assert [number for number, _ in members] == ["1", "2", "3"]
    for number, said in members:
        assert f'"secret-{number}:/secret:ro"' in said
        assert f'"data-{number}:/data"' in said
        assert said.count("/secret") == 1


def test_the_secured_members_are_those_of_the_compose_file() -> None:
    """The overlay changes how they are called, and gives each its own files alone."""
    names = ("docker-compose.yml", "docker-compose.tls.yml")
    plain, secured = ((ROOT / name).read_text("utf-8") for name in names)
    lists = []
    for text in (plain, secured):
        found = re.search(r"COORDINATOR_CLUSTER_MEMBERS: >-\n(.*?\])", text, re.S)
        assert found is not None
        lists.append(json.loads(found[1].replace("https://", "http://")))
    assert lists[0] == lists[1]
    assert secured.count("https://127.0.0.1:707") == 3
    assert "COORDINATOR_HTTP_ACCESS: required\n" in secured
    cluster = "COORDINATOR_CLUSTER_NAME: compose"
    assert cluster in plain
    assert cluster in secured
    members = re.findall(r"^  member-(\d):\n(.*?)(?=^  \S|^\S)", secured, re.M | re.S)
    assert [number for number, _ in members] == ["1", "2", "3"]
    for number, said in members:
        assert said.count("tls-") == said.count(f'["tls-{number}:/tls:ro"]') == 1


def test_the_bill_of_materials_names_what_is_installed() -> None:
    """Each package of the lock, by its purl; and what needs what."""
    document: dict[str, Any] = json.loads(json.dumps(sbom()))

    assert document == sbom()
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", document["serialNumber"])
    components = {each["name"]: each for each in document["components"]}
    assert set(components) == set(pinned())
    for name, each in components.items():
        assert each["purl"] == f"pkg:pypi/{name}@{each['version']}"
        assert each["licenses"], f"{name}: its metadata names no licence"
        assert each["properties"], name
    refs = {each["bom-ref"] for each in document["components"]}
    refs.add(document["metadata"]["component"]["bom-ref"])
    assert {each["ref"] for each in document["dependencies"]} == refs
    for each in document["dependencies"]:
        assert set(each["dependsOn"]) <= refs
