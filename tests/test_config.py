"""The configuration: what a file and the environment come to, and how wrong ones are refused."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.client.watches.lines import SILENCE_MS_MAX
from coordinator.errors import ConfigError
from coordinator.node.config import SETTINGS, Config
from coordinator.node.config_file import load
from coordinator.node.config_rules import bounds_of
from coordinator.raft.network.rpc import FRAME_OVERHEAD_BYTES
from coordinator.raft.pysyncobj_engine import ENTRY_OVERHEAD_BYTES
from coordinator.service.sessions import heartbeats

MEMBERS = """
[cluster]
secret_file = "cluster-secret"
[[cluster.members]]
member_id = "1"
client_url = "http://127.0.0.1:7071"
member_host = "127.0.0.1"
member_port = 7171

[[cluster.members]]
member_id = "2"
client_url = "http://127.0.0.1:7072"
member_host = "127.0.0.1"
member_port = 7172
"""


def write(directory: Path, text: str) -> Path:
    path = directory / "member.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(directory: Path, text: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(write(directory, text), environ or {})
    return caught.value.message


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    """A file that says nothing leaves every default as it is."""
    config = load(write(tmp_path, ""), {})

    expected = Config()
    data_dir = str(tmp_path / "data" / "member-1")
    member = dataclasses.replace(expected.member, data_dir=data_dir)

    assert config == dataclasses.replace(expected, member=member)


def test_a_long_value_is_not_repeated_whole(tmp_path: Path) -> None:
    """A message stays a line, whatever was written (found by tests/fuzz)."""
    message = refusal(tmp_path, f'[http]\nbind_host = "{"x" * 5_000}"')

    assert "bind_host" in message
    assert len(message) < 600


@pytest.mark.parametrize("host", ["", "a b", "h:1", "x" * 300])
def test_an_address_to_listen_on_for_members_is_an_address(tmp_path: Path, host: str) -> None:
    """It is named itself, not the secret that would be missing (found by tests/fuzz)."""
    message = refusal(tmp_path, f'[member]\nmember_bind_host = "{host}"')

    assert "member_bind_host: expected a host name or an address" in message


def test_without_a_file_paths_are_relative_to_the_working_directory() -> None:
    """The defaults alone put the data under the directory one stands in."""
    assert load(None, {}).member.data_dir == str(Path.cwd() / "data" / "member-1")


def test_the_file_says_who_the_members_are(tmp_path: Path) -> None:
    """Members come in the order of the file, with all four facts."""
    members = load(write(tmp_path, MEMBERS), {}).cluster.members

    assert [member.member_id for member in members] == ["1", "2"]
    assert members[1].client_url == "http://127.0.0.1:7072"
    assert (members[1].member_host, members[1].member_port) == ("127.0.0.1", 7172)


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    """A variable replaces what the file says, in the type of its key."""
    path = write(tmp_path, "[http]\nbind_port = 8000\nis_client_cert_required = false\n")
    environ = {
        "COORDINATOR_HTTP_BIND_PORT": "9000",
        "COORDINATOR_HTTP_IS_CLIENT_CERT_REQUIRED": "true",
        "COORDINATOR_RAFT_HEARTBEAT_INTERVAL_MS": "50",
        "COORDINATOR_CLUSTER_NAME": "blue",
    }

    config = load(path, environ)

    assert (config.http.bind_port, config.http.is_client_cert_required) == (9000, True)
    assert config.raft.heartbeat_interval_ms == 50
    assert config.cluster.name == "blue"


def test_the_environment_can_name_the_members() -> None:
    """The members as a JSON array, for machines where files are a nuisance."""
    members = (
        '[{"member_id": "1", "client_url": "http://127.0.0.1:7071",'
        ' "member_host": "127.0.0.1", "member_port": 7171}]'
    )

    config = load(None, {"COORDINATOR_CLUSTER_MEMBERS": members})

    assert config.cluster.members[0].member_port == 7171


def test_a_relative_path_in_the_file_starts_at_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member finds its data wherever it is started from."""
    path = write(tmp_path, '[member]\ndata_dir = "../state"\n[cluster]\nsecret_file = "secret"\n')
    monkeypatch.chdir("/")

    config = load(path, {})

    assert config.member.data_dir == str(tmp_path.parent / "state")
    assert config.cluster.secret_file == str(tmp_path / "secret")


def test_a_relative_path_in_the_environment_starts_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is typed at a prompt means what it means at that prompt."""
    path = write(tmp_path, "")
    monkeypatch.chdir("/")

    config = load(path, {"COORDINATOR_MEMBER_DATA_DIR": "state"})

    assert config.member.data_dir == "/state"


def test_two_members_on_one_machine_do_not_share_a_default_directory(tmp_path: Path) -> None:
    """Without data_dir the directory carries the member's id."""
    path = write(tmp_path, MEMBERS + '[member]\nmember_id = "2"\n')

    assert load(path, {}).member.data_dir == str(tmp_path / "data" / "member-2")


def test_variables_of_others_are_left_alone() -> None:
    """The client's variables, and what Kubernetes sets for a service of our name, are not keys."""
    environ = {
        "COORDINATOR_ENDPOINTS": "http://127.0.0.1:7071",
        "COORDINATOR_FENCING_TOKEN": "7",
        "COORDINATOR_LOCK_NAME": "daily",
        "COORDINATOR_SERVICE_HOST": "10.0.0.1",
        "COORDINATOR_PORT": "tcp://10.0.0.1:7071",
        "COORDINATOR_PORT_7071_TCP_ADDR": "10.0.0.1",
        "COORDINATOR_HTTP_SERVICE_HOST": "10.0.0.1",
        "COORDINATOR_HTTP_SERVICE_PORT": "7071",
        "COORDINATOR_HTTP_PORT": "tcp://10.0.0.1:7071",
        "PATH": "/bin",
    }

    assert load(None, environ) == load(None, {})


WRONG_FILES = [
    ("[http\n", ["expected TOML"]),
    ("bind_port = 1\n", ["bind_port", "expected a known section"]),
    ("http = 3\n", ["http", "expected a section [http]", "found 3"]),
    ("[htpp]\nbind_port = 1\n", ["[htpp]", "did you mean http?"]),
    ("[http]\nbind_prot = 1\n", ["[http] bind_prot", "did you mean bind_port?"]),
    ('[http]\nbind_port = "7071"\n', ["[http] bind_port", "a whole number", 'found "7071"']),
    ("[http]\nbind_port = 70.5\n", ["[http] bind_port", "a whole number", "found 70.5"]),
    ("[http]\nbind_port = true\n", ["[http] bind_port", "a whole number", "found true"]),
    ("[http]\nbind_port = 70000\n", ["[http] bind_port", "from 0 to 65535", "found 70000"]),
    ("[http]\nbind_port = -1\n", ["[http] bind_port", "found -1"]),
    ("[http]\nis_client_cert_required = 1\n", ["cert_required", "true or false", "found 1"]),
    ("[http]\nbody_deadline_ms = 0\n", ["[http] body_deadline_ms", "found 0"]),
    ('[http]\nbind_host = "0.0.0.0"\n', ["[http] bind_host", "tls_cert_file and", 'tls = "off"']),
    ('[http]\ntls = "no"\n', ["[http] tls", "one of required, off", "found 'no'"]),
    ('[http]\naccess = "on"\n', ["[http] access", "one of required, off", "found 'on'"]),
    ('[http]\ntls_cert_file = "c"\n', ["[http] tls_cert_file", "[http] tls_key_file as well"]),
    ('[http]\ntls_key_file = "k"\n', ["[http] tls_key_file", "[http] tls_cert_file as well"]),
    ('[http]\nclient_ca_file = "c"\n', ["client_ca_file", "[http] tls_cert_file as well"]),
    (
        '[http]\ntls = "off"\ntls_cert_file = "c"\ntls_key_file = "k"\n',
        ["[http] tls", "no tls_cert_file", "found off, and a certificate"],
    ),
    (
        MEMBERS + '[http]\ntls_cert_file = "c"\ntls_key_file = "k"\n',
        ["https:// in the client_url of this member", "found http://127.0.0.1:7071"],
    ),
    ('[cluster]\ntls_ca_file = "c"\n', ["[cluster] tls_ca_file", "[member] tls_cert_file as"]),
    (
        '[member]\ntls = "accepted"\n',
        ["[member] tls", "[cluster] secret_file beside it", "found neither"],
    ),
    (
        '[member]\ntls_cert_file = "c"\ntls_key_file = "k"\n',
        ["[member] tls_cert_file", "[cluster] tls_ca_file as well", "coordinator certs"],
    ),
    (
        MEMBERS.replace('member_host = "127.0.0.1"', 'member_host = "[::1]"'),
        ["member_host", "without brackets and port", "found '[::1]'"],
    ),
    ('[http]\nbind_host = "[::1]"\n', ["[http] bind_host", "without brackets", "found '[::1]'"]),
    ('[http]\nlearn_url = "http://127.0.0.1:9/learn#key=k"\n', ["learn_url", "none beyond"]),
    (
        '[cluster]\nname = "dev"\n[http]\nlearn_url = "http://10.0.0.1:9/learn#key=k"\n',
        ["[http] learn_url", "what coordinator dev writes"],
    ),
    ('[http]\nallowed_hosts = "a.b, http://c"\n', ["[http] allowed_hosts", "found 'http://c'"]),
    ('[http]\nallowed_hosts = "c:80"\n', ["[http] allowed_hosts", "without scheme and port"]),
    ('[http]\nallowed_hosts = "*b.c"\n', ["[http] allowed_hosts", "found '*b.c'"]),
    ("[http]\nbody_bytes_max = 2000\n", ["[http] body_bytes_max", "[limits] data_bytes_max"]),
    (
        "[raft]\nheartbeat_interval_ms = 400\n",
        ["[raft] election_timeout_ms_min (default)", "3 times [raft] heartbeat_interval_ms (1200)"],
    ),
    (
        "[raft]\nelection_timeout_ms_min = 100\n",
        ["[raft] election_timeout_ms_min", "heartbeat_interval_ms (399)", "found 100"],
    ),
    (
        "[raft]\nelection_timeout_ms_max = 3501\n",
        ["[raft] election_timeout_ms_max", "from 2 to 3500", "because PySyncObj", "found 3501"],
    ),
    (
        "[raft]\nelection_timeout_ms_max = 400\n",
        ["[raft] election_timeout_ms_max", "more than election_timeout_ms_min (400)"],
    ),
    (
        "[sessions]\ntimeout_ms_default = 500\ntimeout_ms_min = 500\n",
        ["[sessions] timeout_ms_default", "outlive an election"],
    ),
    ("[sessions]\ntimeout_ms_default = 1\n", ["timeout_ms_default", "timeout_ms_min (1000)"]),
    ("[raft]\nframe_bytes_max = 1048576\n", ["[raft] frame_bytes_max", "[http] body_bytes_max"]),
    ('[member]\ndata_dir = ""\n', ["[member] data_dir", "expected a path"]),
    ('[member]\nmember_id = "../1"\n', ["[member] member_id", "'../1'"]),
    ('[cluster]\nname = "a\\nb"\n', ["[cluster] name", "a printable name"]),
    ("[cluster]\nmembers = 3\n", ["[cluster] members", "an array of tables"]),
    ("[cluster]\nmembers = [3]\n", ["number 1", "a table with member_id", "found 3"]),
    ('[[cluster.members]]\nmember_id = "1"\n', ["number 1", "the key client_url"]),
    (MEMBERS + 'client_ulr = "x"\n', ["number 2: client_ulr", "did you mean client_url?"]),
    (MEMBERS + '[member]\nmember_id = "3"\n', ["[member] member_id", "(1, 2)", "found 3"]),
    (MEMBERS.replace('"2"', '"1"'), ["a different member_id for each member", "1 twice"]),
    (MEMBERS.replace("7072", "7071"), ["a different client_url", "http://127.0.0.1:7071 twice"]),
    (MEMBERS.replace("7172", "7171"), ["member_host and member_port", "127.0.0.1:7171 twice"]),
    (
        "[limits]\ngrant_history_max = 200_001\n",
        ["[limits] grant_history_max", "from 1 to 200000, because with more, one step", "200001"],
    ),
    (MEMBERS.replace("= 7172", "= 0"), ["number 2: member_port", "from 1 to 65535"]),
    (MEMBERS.replace("http:", "ftp:"), ["number 1: client_url", "ftp://127.0.0.1:7071"]),
    (MEMBERS.replace("7072", "7072/v1"), ["number 2: client_url", "without a path"]),
    (MEMBERS.replace('"127.0.0.1"', '"a:1"'), ["member_host", "without a port"]),
    (MEMBERS.replace('"127.0.0.1"', '"0.0.0.0"'), ["member_host", "the other members reach it"]),
    (MEMBERS.replace("//127.0.0.1:7072", "//[::]:7072"), ["client_url", "clients reach it"]),
    (MEMBERS.replace("7072", "7072\\n"), ["number 2: client_url", "without a path"]),
    (MEMBERS.replace("//127.0.0.1:7072", "//a b:7072"), ["number 2: client_url"]),
    (MEMBERS.replace("7072", "7071/"), ["a different client_url", "http://127.0.0.1:7071 twice"]),
    (MEMBERS + "[http]\nbind_port = 7171\n", ["bind_port", "another port than that for members"]),
    (f'[cluster]\nname = "{"é" * 128}"\n', ["[cluster] name", "at most 255 bytes", "found 256"]),
    ('[audit]\nfile = "a"\n', ["[audit] file", 'target = "file" beside it', "'log'"]),
    (
        '[audit]\ntarget = "syslog"\nsyslog_address = "h:\u0663"\n',
        ["[audit] syslog_address", "host:port"],
    ),
    ('[oidc]\njwks_url = "https://a/b"\n', ["[oidc] jwks_url", "[oidc] issuer as well"]),
    ('[oidc]\nca_file = "ca.pem"\n', ["[oidc] ca_file", "[oidc] issuer as well"]),
    (f"[http]\nbind_port = {'9' * 5_000}\n", ["expected TOML", "4300 digits"]),
    (
        MEMBERS.replace('secret_file = "cluster-secret"', ""),
        ["[cluster] secret_file", "`coordinator secret cluster-secret`"],
    ),
]


@pytest.mark.parametrize(("text", "parts"), WRONG_FILES, ids=range(len(WRONG_FILES)))
def test_a_wrong_file_is_refused_with_reasons(tmp_path: Path, text: str, parts: list[str]) -> None:
    """The message names the file, the key, what was expected and what was found."""
    message = refusal(tmp_path, text)

    assert message.startswith(str(tmp_path / "member.toml"))
    assert "expected" in message
    assert "found" in message
    for part in parts:
        assert part in message, message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[limits]\ndata_bytes_max = "1MB"\n', "write data_bytes_max = 1000000"),
        ('[limits]\ndata_bytes_max = "1.5 MiB"\n', "write data_bytes_max = 1572864"),
        ('[sessions]\ntimeout_ms_default = "10s"\n', "write timeout_ms_default = 10000"),
        ('[http]\nbind_port = "7071"\n', "write bind_port = 7071"),
    ],
)
def test_a_number_with_a_unit_is_refused_with_the_line_to_write(
    tmp_path: Path, text: str, line: str
) -> None:
    """People write sizes and times with their units; a setting has one unit, in its name."""
    assert refusal(tmp_path, text).endswith(f"; {line}")


@pytest.mark.parametrize("text", ['[http]\nbind_port = "10 parsecs"\n', '[log]\nlevel = "7"\n'])
def test_what_is_no_number_gets_no_line(tmp_path: Path, text: str) -> None:
    assert "; write" not in refusal(tmp_path, text)


def test_words_may_be_written_in_capitals(tmp_path: Path) -> None:
    """As Python and others write a level."""
    path = write(tmp_path, '[log]\nlevel = "INFO"\n[http]\naccess = "Off"\n')

    config = load(path, {"COORDINATOR_LOG_FORMAT": "JSON"})

    assert (config.log.level, config.log.format, config.http.access) == ("info", "json", "off")


WRONG_VARIABLES = [
    ("COORDINATOR_HTTP_BIND_PROT", "1", "did you mean COORDINATOR_HTTP_BIND_PORT?"),
    ("COORDINATOR_HTPP_BIND_PORT", "1", "did you mean COORDINATOR_HTTP_BIND_PORT?"),
    ("COORDINATOR_HTTP_BIND_PORT", "many", 'expected a whole number, found "many"'),
    ("COORDINATOR_HTTP_BIND_PORT", "70000", "from 0 to 65535, found 70000"),
    ("COORDINATOR_HTTP_IS_CLIENT_CERT_REQUIRED", "yes", 'expected true or false, found "yes"'),
    ("COORDINATOR_HTTP_BIND_PORT", "7_071", 'found "7_071"'),
    ("COORDINATOR_HTTP_BIND_PORT", " 7071", 'found " 7071"'),
    ("COORDINATOR_HTTP_BIND_PORT", "\u0663\u0663", "expected a whole number"),
    ("COORDINATOR_CLUSTER_MEMBERS", '[{"member_id": "1", "member_id": "2"}]', "keys once"),
    ("COORDINATOR_CLUSTER_MEMBERS", "1@a", "expected a JSON array of members"),
    ("COORDINATOR_CLUSTER_MEMBERS", "{}", "expected an array of tables"),
]


@pytest.mark.parametrize(("variable", "value", "part"), WRONG_VARIABLES)
def test_a_wrong_variable_is_refused_by_its_name(variable: str, value: str, part: str) -> None:
    """A misspelt or misused variable is never silently without effect."""
    with pytest.raises(ConfigError) as caught:
        load(None, {variable: value})

    assert caught.value.message.startswith(f"environment: {variable}")
    assert part in caught.value.message


def test_two_variables_for_one_key_are_refused() -> None:
    """Names count in any case, so neither would win for a reason."""
    twice = {"COORDINATOR_HTTP_BIND_PORT": "7071", "COORDINATOR_http_bind_port": "7072"}

    with pytest.raises(ConfigError, match=r"expected one variable for \[http\] bind_port, found"):
        load(None, twice)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """As some editors write it."""
    path = tmp_path / "member.toml"
    path.write_bytes(b"\xef\xbb\xbf[http]\nbind_port = 7072\n")

    assert load(path, {}).http.bind_port == 7072


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The message says which file, and why it could not be read."""
    with pytest.raises(ConfigError, match="No such file") as caught:
        load(tmp_path / "absent.toml", {})

    assert str(tmp_path / "absent.toml") in caught.value.message


def test_beyond_loopback_needs_a_secret_and_a_word(tmp_path: Path) -> None:
    """Members reachable by others are accepted once both are given."""
    cluster = MEMBERS.replace('"127.0.0.1"', '"10.0.0.1"')
    http = '[http]\nbind_host = "0.0.0.0"\ntls = "off"\n'

    config = load(write(tmp_path, cluster + http), {})

    assert config.cluster.members[0].member_host == "10.0.0.1"
    assert config.cluster.secret_file == str(tmp_path / "cluster-secret")


def test_every_default_is_within_its_bounds() -> None:
    """The ranges allow the defaults, strictly inside for sizes and times."""
    for section in ("http", "raft", "sessions", "limits"):
        for key in SETTINGS[section]:
            value = Config().value(section, key)
            if type(value) is int:
                low, high = bounds_of(section, key)
                assert low <= value <= high


def test_bookmarks_come_before_a_client_takes_the_stream_for_dead() -> None:
    """What a member may wait with a line is well below what clients wait for one."""
    assert bounds_of("limits", "bookmark_interval_ms")[1] + 2_000 <= SILENCE_MS_MAX


def test_the_shortest_frame_carries_what_members_propose_and_ask() -> None:
    """The largest request as a command, and the heartbeats of a round: one that is too long fails
    for all that share it."""
    frame_bytes_max = bounds_of("raft", "frame_bytes_max")[0]

    assert frame_bytes_max // 2 <= frame_bytes_max - ENTRY_OVERHEAD_BYTES
    assert frame_bytes_max - FRAME_OVERHEAD_BYTES >= heartbeats._REQUEST_BYTES_MAX


KEYS = [(section, key) for section, keys in SETTINGS.items() for key in keys]
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.integers(), st.booleans(), st.text(), st.floats(), st.lists(st.integers(), max_size=2)
)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


def complaint(path: Path | None, environ: dict[str, str]) -> str | None:
    """Return what the loader has against this, None if nothing; any other error passes."""
    try:
        load(path, environ)
    except ConfigError as error:
        return error.message
    return None


@settings(max_examples=200, deadline=None)
@given(key=st.sampled_from(KEYS), text=TEXT)
def test_no_variable_breaks_the_loader(key: tuple[str, str], text: str) -> None:
    """Whatever a variable holds, the answer is a Config or a ConfigError."""
    variable = f"COORDINATOR_{key[0]}_{key[1]}".upper()

    message = complaint(None, {variable: text})

    assert message is None or "expected" in message


@settings(max_examples=200, deadline=None)
@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_no_file_breaks_the_loader(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    """Whatever a file holds, the answer is a Config or a ConfigError that names the file."""
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(content)

    message = complaint(path, {})

    assert message is None or str(path) in message


@settings(max_examples=300, deadline=None)
@given(key=st.sampled_from(KEYS), value=VALUES)
def test_no_value_breaks_the_loader(
    tmp_path_factory: pytest.TempPathFactory, key: tuple[str, str], value: Any
) -> None:
    """Whatever type stands at a key, the answer is a Config or a ConfigError that names it."""
    path = tmp_path_factory.getbasetemp() / "value.toml"
    path.write_text(f"[{key[0]}]\n{key[1]} = {_toml(value)}\n", encoding="utf-8")

    message = complaint(path, {})

    assert message is None or str(path) in message


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = "".join(f"\\U{ord(c):08x}" for c in value if not 0xD800 <= ord(c) <= 0xDFFF)
        return f'"{escaped}"'
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return repr(value)


def test_every_setting_is_documented_with_its_default() -> None:
    """docs/operations.md has an item for each key, and none for a key that is not there."""
    document = (Path(__file__).resolve().parent.parent / "docs" / "operations.md").read_text()
    _, *incarnations = re.split(r"^### \[(\w+)\]$", document, flags=re.MULTILINE)
    rows = {
        (section, key): default
        for section, text in zip(incarnations[::2], incarnations[1::2], strict=True)
        for key, default in re.findall(r"^- `(\w+)` \(`([^`]+)`\): ", text, re.MULTILINE)
    }

    defaults = {(section, key): Config().value(section, key) for section, key in KEYS}

    assert set(rows) == set(defaults)
    for name, default in defaults.items():
        words = {None: "not set", (): "none", True: "true", False: "false"}
        is_number = isinstance(default, int) and not isinstance(default, bool)
        assert rows[name] == (str(default) if is_number else words.get(default, str(default))), name
