"""The files of the pages, by the names that they are asked for by.

Whatever is served is in this list, and found in it by its whole name: so no name leads out of the
folder, whatever it is made of.
"""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable

CONSOLE, LEARN = "console", "learn"
SITES = (CONSOLE, LEARN)
"""What is served, each below a path of its name. The lessons use what the console has in
``shared``."""
INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
"""The content types of what is served, by the ends of names; a file of another kind is not."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-cache",
}
"""The headers of every page. ``no-cache``: a browser asks, with the ETag, whether its copy is still
right."""


def read_pages(site: str) -> dict[str, bytes]:
    """Return every file of ``site`` (one of ``SITES``) by its path below it: ``shared/api.js``.

    It reads files, so it takes its time: not on an event loop.
    """
    top = resources.files(__name__.rpartition(".")[0])
    found: dict[str, bytes] = {}
    if site == LEARN:
        _collect(top.joinpath(LEARN), "", found)
    else:
        _collect(top, "", found, without=LEARN)
    return found


def content_type(name: str) -> str | None:
    """Return the content type of a file by its name; None if files of its kind are not served."""
    return TYPES.get("." + name.rpartition(".")[2])


def _collect(
    folder: Traversable, prefix: str, found: dict[str, bytes], without: str | None = None
) -> None:
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if each.is_dir():
            if each.name != without and not each.name.startswith(("_", ".")):
                _collect(each, f"{prefix}{each.name}/", found)
        elif content_type(each.name) is not None and not each.name.startswith("."):
            found[prefix + each.name] = each.read_bytes()
