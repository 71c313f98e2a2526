"""The issuer that a configuration names; PyJWT is loaded only if it names one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.clock import Clock
from coordinator.errors import ConfigError
from coordinator.node.config import OidcConfig

if TYPE_CHECKING:
    from coordinator.oidc.tokens import Tokens


def open_issuer(config: OidcConfig, clock: Clock) -> Tokens | None:
    """Return what verifies the tokens of the configured issuer, None without one.

    Raises:
        ConfigError: the extra that verifies them is not installed.
    """
    if config.issuer is None:
        return None
    try:
        from coordinator.oidc.tokens import Tokens
    except ImportError as error:
        raise ConfigError(
            "oidc.issuer: expected PyJWT to verify its tokens, found none; run:"
            f" pip install 'raft-coordinator[oidc]' ({error})",
            key="issuer",
        ) from error
    return Tokens(config, clock)


def check_issuer(config: OidcConfig) -> None:
    """Raise ConfigError if a file by which the issuer's keys are fetched cannot be used."""
    if config.issuer is not None:
        from coordinator.oidc.fetching import check_files

        check_files(config)
