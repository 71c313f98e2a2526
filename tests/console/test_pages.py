"""/console and /learn as they are served: what is sent, to whom, under which headers; and that the
files ask nothing of another address and name no file that is not there."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from posixpath import dirname, join, normpath

import pytest
from setuptools import find_packages
from setuptools.glob import glob
from yarl import URL

from coordinator.console.pages import SITES, content_type, read_pages
from coordinator.recipes.jobs.steps import ROOT as JOBS_ROOT
from tests.wire.serving import Api, serving

PAGES = {f"/{site}/{name}": body for site in SITES for name, body in read_pages(site).items()}
SCRIPTS = [name for name in PAGES if name.endswith(".js")]
STYLES = [name for name in PAGES if name.endswith(".css")]
TEXTS = [name for name in PAGES if not name.endswith(".png")]
_IMPORT = re.compile(
    r"""(?:^|\s)(?:import|export)\s(?:[^;"']*?\sfrom\s)?["']([^"']+)["']"""
    r"""|import\(["']([^"']+)"""
)
_INLINE = re.compile(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)")
_MADE_OF_TEXT = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
)
_NAMED = re.compile(r"""(?:href|src)="(/(?:console|learn)/[^"#]*)\"""")
COLUMNS_MAX = {".js": 100, "css": 120}
_NAMESPACE = "http://www.w3.org/2000/svg"
HOSTILE = (
    "/console/../pyproject.toml",
    "/console/..%2f..%2fpyproject.toml",
    "/console/%2e%2e/__init__.py",
    "/console/__init__.py",
    "/console/pages.py",
    "/console//etc/passwd",
    "/console/shared",
    "/console/shared/",
    "/console/learn/index.html",
    "/console/shared/api.js%00.html",
    "/learn/../console.js",
    "/learn/pages.py",
)
WRITES = ("POST", "PUT", "DELETE", "PATCH", "OPTIONS")


@pytest.mark.parametrize("site", SITES)
async def test_a_site_is_its_page_with_and_without_a_slash(api: Api, site: str) -> None:
    index = PAGES[f"/{site}/index.html"]

    for path in (f"/{site}", f"/{site}/", f"/{site}/index.html", f"/{site}?x=1"):
        reply = await api.get(path)
        assert (reply.status, reply.raw) == (200, index)
        assert reply.headers["Content-Type"] == "text/html; charset=utf-8"


async def test_the_root_leads_a_browser_to_the_console_and_no_other(api: Api) -> None:
    """People open the address that a member prints; programs are told where the routes are."""
    browser = await api.get("/", Accept="text/html,application/xhtml+xml,*/*;q=0.8")
    program = await api.get("/", Accept="*/*")
    async with api.session.get(
        api.server.url + "/", headers={"Accept": "text/html"}, allow_redirects=False
    ) as answer:
        led = (answer.status, answer.headers["Location"], await answer.read())

    assert (browser.status, browser.raw) == (200, PAGES["/console/index.html"])
    assert led == (303, "console", b"")
    assert (program.status, program.code) == (404, "NoRoute")
    assert "/openapi.json" in program.body["detail"]


async def test_every_file_is_served_with_its_type_and_only_for_its_own_page(api: Api) -> None:
    for name, body in PAGES.items():
        reply = await api.get(name)

        assert (reply.status, reply.raw) == (200, body), name
        assert reply.headers["Content-Type"] == content_type(name)
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Cache-Control"] == "no-cache"
        assert "Set-Cookie" not in reply.headers
        policy = reply.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy


async def test_a_copy_that_is_right_is_not_sent_again(api: Api) -> None:
    tag = (await api.get("/console")).headers["ETag"]

    same = await api.get("/console", **{"If-None-Match": tag})
    other = await api.get("/console", **{"If-None-Match": '"old"'})
    head = await api.call("HEAD", "/console", headers={"If-None-Match": tag})

    assert (same.status, same.raw) == (304, b"")
    assert other.status == 200
    assert head.status == 304


async def test_head_says_what_get_sends(api: Api) -> None:
    got = await api.get("/console/shared/base.css")
    head = await api.call("HEAD", "/console/shared/base.css")

    same = ("Content-Length", "Content-Type", "ETag", "Content-Security-Policy")
    assert (head.status, head.raw) == (200, b"")
    assert [head.headers[name] for name in same] == [got.headers[name] for name in same]


@pytest.mark.parametrize("path", HOSTILE)
async def test_no_name_leads_elsewhere(api: Api, path: str) -> None:
    address = URL(api.server.url + path, encoded=True)  # as it is: nothing is resolved

    async with api.session.get(address) as response:
        assert response.status in (400, 404), await response.read()
        assert response.url.raw_path == path


@pytest.mark.parametrize("method", WRITES)
async def test_pages_are_only_read(api: Api, method: str) -> None:
    for path in ("/console", "/console/console.js", "/learn"):
        assert (await api.call(method, path)).status == 405


async def test_pages_need_no_rights_and_give_none() -> None:
    """Anybody may load them; what they ask of the API is refused as from anybody else."""
    async with serving() as api:
        await api.post("/v1/access/init", {"identity": "root"})

        assert (await api.get("/console")).status == 200
        assert (await api.get("/v1/status")).status == 401


def test_no_page_names_a_foreign_address() -> None:
    for name in TEXTS:
        text = PAGES[name].decode("utf-8").replace(_NAMESPACE, "")
        assert re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]+", text) == [], name


def test_no_page_says_what_its_policy_refuses() -> None:
    """Scripts and styles within a page, handlers in attributes, markup made of text."""
    for name in TEXTS:
        text = PAGES[name].decode("utf-8")
        if name.endswith(".html"):
            assert _INLINE.findall(text) == [], name
        if name.endswith(".js"):
            assert _MADE_OF_TEXT.findall(text) == [], name


def test_every_file_that_is_named_is_there() -> None:
    for name in TEXTS:
        text = PAGES[name].decode("utf-8")
        named = [normpath(each) for each in _NAMED.findall(text)]
        if name.endswith(".js"):
            for found in _IMPORT.findall(text):
                each = found[0] or found[1]
                named.append(each if each[0] == "/" else normpath(join(dirname(name), each)))
        assert [each for each in named if each not in PAGES] == [], name


def test_the_screens_read_where_the_recipes_write() -> None:
    """A root that moved would leave a screen empty for ever."""
    screen = PAGES["/console/screens/recipes.js"].decode()
    found = dict(re.findall(r'title: "([^"]+)",\s*root: "([^"]+)"', screen))
    roots = {"Elections": "/elections", "Jobs": JOBS_ROOT, "Queues": "/queues"}
    assert found == {**roots, "Services": "/groups"}


def test_no_secret_outlives_the_tab() -> None:
    """Only the theme is kept for longer, and no page has cookies."""
    for name in SCRIPTS:
        text = PAGES[name].decode("utf-8")
        if name != "/console/shared/theme.js":
            assert "localStorage" not in text, name
        assert not re.search(r"document\.cookie|indexedDB|caches\.", text), name


def test_scripts_and_styles_are_small_files() -> None:
    for name in SCRIPTS + STYLES:
        lines = PAGES[name].decode("utf-8").splitlines()
        assert len(lines) <= 420, f"{name} has {len(lines)} lines"
        assert [line for line in lines if len(line) > COLUMNS_MAX[name[-3:]]] == [], name


def test_the_wheel_has_every_page() -> None:
    """By the patterns of pyproject.toml, as setuptools reads them."""
    import tomllib

    root = Path(__file__).resolve().parents[2]
    data = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    top = Path(str(resources.files("coordinator")))
    packed = {
        path
        for pattern in data["tool"]["setuptools"]["package-data"]["coordinator"]
        for path in glob(str(top / pattern), recursive=True)
    }
    folder = top / "console"

    assert "coordinator.console" in find_packages(str(root), include=["coordinator*"])
    for name in read_pages("console"):
        assert str(folder / name) in packed
    for name in read_pages("learn"):
        assert str(folder / "learn" / name) in packed
