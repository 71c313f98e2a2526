"""Which member a client asks first."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.client import RetryPolicy
from coordinator.client.calling.endpoints import Endpoints


def beginning_at(url: str, urls: Sequence[str]) -> RetryPolicy:
    """Return a policy by which a client of these endpoints asks ``url`` first."""
    policies = (RetryPolicy(seed=seed) for seed in range(64))
    return next(each for each in policies if Endpoints(urls, each.source().shuffle).current == url)
