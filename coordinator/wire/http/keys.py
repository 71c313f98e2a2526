"""The keys of what an application carries for its parts; imports nothing of the doors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web

Speaking = Callable[[], asyncio.Protocol]
"""Returns the server's end of one connection."""

STREAM: web.AppKey[Any] = web.AppKey("stream", object)
"""A function that returns who speaks the stream (``Speaking``) with one client of this process."""
