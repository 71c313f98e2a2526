"""The files in cluster-configs: each can be used as it is, and the files of a set agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.config import Config
from coordinator.config_file import load

ROOT = Path(__file__).resolve().parent.parent
SIZES = {"single": 1, "three": 3, "five": 5}


def load_set(name: str) -> list[Config]:
    files = sorted((ROOT / "cluster-configs" / name).glob("*.toml"))
    return [load(path, {}) for path in files]


def test_every_set_is_known() -> None:
    """There is no directory that these tests do not look at."""
    found = {path.name for path in (ROOT / "cluster-configs").iterdir() if path.is_dir()}

    assert found == set(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_the_members_of_a_set_agree(name: str) -> None:
    """All files name the same cluster, the same members, the same timing and the same limits."""
    configs = load_set(name)

    assert len(configs) == SIZES[name]
    for config in configs:
        assert config.cluster == configs[0].cluster
        assert (config.raft, config.sessions, config.limits) == (
            configs[0].raft,
            configs[0].sessions,
            configs[0].limits,
        )
    assert len(configs[0].cluster.members) == SIZES[name]


@pytest.mark.parametrize("name", SIZES)
def test_each_member_of_a_set_has_its_own_file_directory_and_port(name: str) -> None:
    """member-N.toml is member N; it listens where the others and the clients look for it."""
    configs = load_set(name)

    assert [config.member.member_id for config in configs] == [
        member.member_id for member in configs[0].cluster.members
    ]
    assert len({config.member.data_dir for config in configs}) == len(configs)
    for config in configs:
        mine = next(
            member
            for member in config.cluster.members
            if member.member_id == config.member.member_id
        )
        assert mine.client_url == f"http://{config.http.bind_host}:{config.http.bind_port}"
        assert config.member.data_dir == str(
            ROOT / "data" / name / f"member-{config.member.member_id}"
        )
