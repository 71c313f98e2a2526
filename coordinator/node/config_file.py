"""The reader of a Config from a TOML file and the environment; it refuses invalid values.

Every refusal is a ``ConfigError`` that names the file (or the variable), the key, what was expected
and what was found. For a misspelt name it suggests the nearest valid one.

1. The environment overrides the file, the file overrides the defaults in ``config.py``.
2. ``COORDINATOR_<SECTION>_<KEY>`` sets ``key`` of ``[section]``, for example
   ``COORDINATOR_HTTP_BIND_PORT=8071``. ``COORDINATOR_CLUSTER_MEMBERS`` is a JSON array.
3. A relative path in the file is relative to the file's directory, so a member finds its data
   wherever it is started from. A relative path in the environment, and every path when there is no
   file, is relative to the working directory.
4. Where ``data_dir`` is not given it is ``data/member-<member_id>``.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import re
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coordinator.errors import ConfigError
from coordinator.node.config import SETTINGS, Config, MemberAddress
from coordinator.node.config_rules import WORDS, check_range, problems

_ENVIRONMENT_PREFIX = "COORDINATOR_"
_PATH_KEYS = frozenset(
    {
        ("member", "data_dir"), ("member", "tls_cert_file"), ("member", "tls_key_file"),
        ("cluster", "secret_file"), ("cluster", "tls_ca_file"),
        ("audit", "file"), ("backup", "directory"), ("backup", "command"),
        ("oidc", "ca_file"), ("oidc", "jwks_token_file"),
        ("http", "tls_cert_file"), ("http", "tls_key_file"), ("http", "client_ca_file"),
    }
)  # fmt: skip
_PARTS: dict[str, type[Any]] = typing.get_type_hints(Config)
_HINTS = {part: typing.get_type_hints(each) for part, each in _PARTS.items()}
_SECTIONS: dict[str, dict[str, Any]] = {
    section: {key: _HINTS[part][key] for key, part in keys.items()}
    for section, keys in SETTINGS.items()
}
"""The type of each key, by section."""
_NEARNESS_MIN = 0.75
_NUMBER = re.compile(r"[+-]?[0-9]+")


_WITH_UNIT = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) *([A-Za-z]*)")
_UNITS: dict[str, dict[str, int]] = {
    "bytes": {
        "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9,
        "k": 2**10, "m": 2**20, "g": 2**30, "kib": 2**10, "mib": 2**20, "gib": 2**30,
    },
    "_ms": {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000},
    "": {"": 1},
}  # fmt: skip
"""Units that people write, by a part of the key; no setting takes them."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    """A value as it was written, and where."""

    value: Any
    origin: str
    base: Path
    """What a relative path in ``value`` is relative to."""


def load(path: str | os.PathLike[str] | None, environ: Mapping[str, str] | None = None) -> Config:
    """Return the Config in the TOML file ``path``, with the environment laid over it.

    Args:
        path: the file; None uses the defaults and the environment alone.
        environ: the environment; None uses that of this process.

    Raises:
        ConfigError: the file cannot be read, or something in it cannot be right.
    """
    config, wrong = examine(path, environ)
    for error in wrong:
        raise error
    return config


def examine(
    path: str | os.PathLike[str] | None, environ: Mapping[str, str] | None = None
) -> tuple[Config, list[ConfigError]]:
    """Return what ``load`` returns, and all that is wrong with it; a wrong value is left out.

    Whether values fit each other is looked at only if each is one that its key may have."""
    environ = os.environ if environ is None else environ
    found: dict[tuple[str, str], _Found] = {}
    wrong: list[ConfigError] = []
    if path is not None:
        found.update(_read_file(Path(path), wrong))
    found.update(_read_environment(environ, wrong))
    _default_data_dir(found, Path(path) if path is not None else None)
    config = Config()
    for section, keys in SETTINGS.items():
        for part in dict.fromkeys(keys.values()):
            values = _values(section, part, found, wrong)
            changed = dataclasses.replace(getattr(config, part), **values)
            config = dataclasses.replace(config, **{part: changed})
    if not wrong:
        wrong += problems(config, lambda section, key: _origin(found, section, key, path))
    return config, wrong


def _origin(
    found: Mapping[tuple[str, str], _Found],
    section: str,
    key: str,
    path: str | os.PathLike[str] | None,
) -> str:
    """Say where ``key`` of ``[section]`` came from, for a message."""
    if (section, key) in found:
        return found[section, key].origin
    where = os.fspath(path) if path is not None else "built-in defaults"
    return f"{where}: [{section}] {key} (default)"


# --- where values come from


def _read_file(path: Path, wrong: list[ConfigError]) -> dict[tuple[str, str], _Found]:
    problem = ""
    try:
        document = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        problem = f"{path}: expected a readable configuration file, found: {error.strerror}"
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is no TOML error
        problem = f"{path}: expected TOML, found: {error}"
    if problem:
        wrong.append(ConfigError(problem, file=str(path)))
        return {}
    base = path.resolve().parent
    found: dict[tuple[str, str], _Found] = {}
    for section, keys in document.items():
        if section not in _SECTIONS:
            where = f"{path}: [{section}]"
            wrong.append(_refusal(where, section, "a known section", f"[{section}]", _SECTIONS))
            continue
        if not isinstance(keys, dict):
            wrong.append(_refusal(f"{path}: {section}", section, f"a section [{section}]", keys))
            continue
        known = _SECTIONS[section]
        for key, value in keys.items():
            origin = f"{path}: [{section}] {key}"
            if key not in known:
                wrong.append(_refusal(origin, key, f"a key of [{section}]", key, known))
                continue
            found[section, key] = _Found(value, origin, base)
    return found


def _read_environment(
    environ: Mapping[str, str], wrong: list[ConfigError]
) -> dict[tuple[str, str], _Found]:
    found: dict[tuple[str, str], _Found] = {}
    for variable in sorted(environ):
        if variable.startswith(_ENVIRONMENT_PREFIX) and not _is_of_kubernetes(variable, environ):
            try:
                _read_variable(variable, environ[variable], found)
            except ConfigError as error:
                wrong.append(error)
    return found


def _read_variable(variable: str, text: str, found: dict[tuple[str, str], _Found]) -> None:
    section, _, key = variable.removeprefix(_ENVIRONMENT_PREFIX).lower().partition("_")
    origin = f"environment: {variable}"
    if section in _SECTIONS and key in _SECTIONS[section]:
        value = _parse_text(text, _SECTIONS[section][key], origin, key)
        if (section, key) in found:
            expected = f"one variable for [{section}] {key}"
            raise _refusal(origin, key, expected, f"{found[section, key].origin}, too")
        found[section, key] = _Found(value, origin, Path.cwd())
    elif section in _SECTIONS:
        known = [_variable(section, other) for other in _SECTIONS[section]]
        raise _refusal(origin, variable, f"a key of [{section}]", variable, known)
    elif nearest := difflib.get_close_matches(section, _SECTIONS, 1, _NEARNESS_MIN):
        raise _refusal(
            origin, variable, "a known section", variable, [_variable(nearest[0], key)]
        )
    # Anything else is a variable of the client (COORDINATOR_ENDPOINTS) or of another program.


def _is_of_kubernetes(variable: str, environ: Mapping[str, str]) -> bool:
    """Say whether Kubernetes set ``variable`` for a service called coordinator or so.

    For a service of the name N it sets N_SERVICE_HOST, N_SERVICE_PORT..., N_PORT and N_PORT_..."""
    name, mark, _ = variable.partition("_SERVICE_")
    if not mark:
        name, mark, _ = variable.partition("_PORT")
    return bool(mark) and f"{name}_SERVICE_HOST" in environ


def _variable(section: str, key: str) -> str:
    return f"{_ENVIRONMENT_PREFIX}{section}_{key}".upper()


def _parse_text(text: str, hint: Any, origin: str, key: str) -> Any:
    """Turn a variable's text into the type of its key; other text is left for the type check."""
    try:
        if hint is bool:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        if hint is int and _NUMBER.fullmatch(text):
            return int(text)
        if hint is int:
            raise ValueError
        if typing.get_origin(hint) is tuple:
            return json.loads(text, object_pairs_hook=_table)
    except (KeyError, ValueError, RecursionError):
        raise _refusal(origin, key, _type_name(hint), text) from None
    return text


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key comes twice")
    return table


def _default_data_dir(found: dict[tuple[str, str], _Found], path: Path | None) -> None:
    if ("member", "data_dir") in found:
        return
    member_id = found.get(("member", "member_id"))
    name = str(member_id.value) if member_id is not None else Config().member.member_id
    base = path.resolve().parent if path is not None else Path.cwd()
    origin = f"{path or 'built-in defaults'}: [member] data_dir (default)"
    found["member", "data_dir"] = _Found(f"data/member-{name}", origin, base)


# --- from what was written to what was meant


def _values(
    section: str, part: str, found: Mapping[tuple[str, str], _Found], wrong: list[ConfigError]
) -> dict[str, Any]:
    """Return what was set of the keys of ``[section]`` that ``part`` of the Config holds."""
    values: dict[str, Any] = {}
    for key, hint in _SECTIONS[section].items():
        item = found.get((section, key))
        if item is None or SETTINGS[section][key] != part:
            continue
        try:
            values[key] = _value(section, key, hint, item)
        except ConfigError as error:
            wrong.append(error)
    return values


def _value(section: str, key: str, hint: Any, item: _Found) -> Any:
    if typing.get_origin(hint) is tuple:
        return _build_members(item, key)
    value = _typed(item.value, hint, item.origin, key)
    if type(value) is int:
        check_range(section, key, value, item.origin)
    if (section, key) in _PATH_KEYS and value is not None:
        value = _resolve(value, item, key)
    if (section, key) in WORDS:
        value = value.lower()  # as Python and others write a level: INFO
    return value


def _build_members(item: _Found, key: str) -> tuple[MemberAddress, ...]:
    hints = typing.get_type_hints(MemberAddress)
    if not isinstance(item.value, list):
        raise _refusal(item.origin, key, "an array of tables [[cluster.members]]", item.value)
    members = []
    for number, entry in enumerate(item.value, 1):
        origin = f"{item.origin}, number {number}"
        if not isinstance(entry, dict):
            raise _refusal(origin, key, "a table with " + ", ".join(hints), entry)
        for name in entry:
            if name not in hints:
                raise _refusal(f"{origin}: {name}", name, "a key of a member", name, hints)
        for name in hints:
            if name not in entry:
                raise _refusal(
                    origin, name, f"the key {name}", "only " + (", ".join(entry) or "{}")
                )
        values = {
            name: _typed(entry[name], hint, f"{origin}: {name}", name)
            for name, hint in hints.items()
        }
        members.append(MemberAddress(**values))
    return tuple(members)


def _typed(value: Any, hint: Any, origin: str, key: str) -> Any:
    # To Python a bool is an int; in a configuration it is not.
    accepted = [kind for kind in _alternatives(hint) if kind is not type(None)]
    if type(value) not in accepted:
        raise _refusal(origin, key, _type_name(hint), value)
    return value


def _resolve(value: str, item: _Found, key: str) -> str:
    if not value or "\0" in value:
        raise _refusal(item.origin, key, "a path", value)
    return os.path.normpath(item.base / value)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _type_name(hint: Any) -> str:
    names = {bool: "true or false", int: "a whole number", str: "a string"}
    if typing.get_origin(hint) is tuple:
        return "a JSON array of members, each of their keys once"
    return " or ".join(names[kind] for kind in _alternatives(hint) if kind in names)


def _refusal(
    origin: str, key: str, expected: str, value: Any, known: typing.Iterable[str] = ()
) -> ConfigError:
    shown = value if isinstance(value, str) and known else _shown(value)
    message = f"{origin}: expected {expected}, found {shown}"
    nearest = difflib.get_close_matches(key, list(known), 1, 0.5)
    if nearest:
        message += f"; did you mean {nearest[0]}?"
    number = _number_meant(key, value) if expected.startswith(_type_name(int)) else None
    if number is not None:
        message += f"; write {key} = {number}"
    return ConfigError(message, key=key, expected=expected, found=shown)


def _number_meant(key: str, value: Any) -> int | None:
    """Return what a text with a unit is in that of ``key``; None if it has no such unit."""
    found = _WITH_UNIT.fullmatch(value.strip()) if isinstance(value, str) else None
    units = next((each for end, each in _UNITS.items() if end in key), {})
    unit = None if found is None else units.get(found[2].lower())
    return None if found is None or unit is None else round(float(found[1]) * unit)


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
