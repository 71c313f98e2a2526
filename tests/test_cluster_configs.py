"""The files in cluster-configs: each can be used as it is, and the files of a set agree."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coordinator.errors import ConfigError
from coordinator.node.config import Config
from coordinator.node.config_file import load
from coordinator.node.secret_file import ensure_secret_on_one_machine, read_secrets

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


@pytest.mark.parametrize("name", ["three", "five"])
def test_the_first_start_on_one_machine_makes_the_secret(tmp_path: Path, name: str) -> None:
    """Nothing has to be done first; the second member finds what the first has made."""
    shutil.copytree(ROOT / "cluster-configs" / name, tmp_path / name)
    (tmp_path / name / "cluster-secret").unlink(missing_ok=True)
    first, second = (load(tmp_path / name / f"member-{n}.toml", {}).cluster for n in (1, 2))

    assert ensure_secret_on_one_machine(first)
    assert not ensure_secret_on_one_machine(second)

    assert len(read_secrets(first)[0]) == 64
    assert read_secrets(first) == read_secrets(second)


def test_no_secret_is_made_for_several_machines(tmp_path: Path) -> None:
    """Each would make its own, and none would know another: the refusal says what to do."""
    text = (ROOT / "cluster-configs" / "three" / "member-1.toml").read_text()
    (tmp_path / "member.toml").write_text(text.replace('"127.0.0.1"', '"192.0.2.7"', 3))
    cluster = load(tmp_path / "member.toml", {"COORDINATOR_HTTP_TLS": "off"}).cluster

    assert not ensure_secret_on_one_machine(cluster)
    with pytest.raises(ConfigError, match=r"`coordinator secret .*` and copy it to every machine"):
        read_secrets(cluster)


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
