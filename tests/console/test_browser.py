"""The console in a real browser: each screen, by keyboard, live, with its deeds and its rights."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.testing import local_cluster
from tests.console.browser import Visitor, faults, launched, missing
from tests.console.scene import Scene
from tests.patience import patient

pytestmark = [
    pytest.mark.check,
    pytest.mark.skipif(bool(missing()), reason=missing() or "all is there"),
]

SCREENS = ("cluster", "locks", "locks/daily-report", "waits", "recipes", "sessions",
           "tree/%2Fapp%2Fsettings", "tree/%2Fapp%2Fflags", "events")  # fmt: skip
LOOKS = ((360, "dark"), (1_280, "light"), (2_560, "dark"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as running:
        yield running


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with local_cluster(members=3) as cluster:
        running = Scene(cluster)
        running.begin()
        yield running
        running.end()


@pytest.fixture
def visitor(browser: Any, scene: Scene) -> Iterator[Visitor]:
    tab = Visitor(browser, scene.url)
    yield tab
    tab.close()


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_every_screen_can_be_read_by_everybody(
    browser: Any, scene: Scene, width: int, scheme: str
) -> None:
    """Names, roles, structure, contrast, sizes; nothing wider than the window."""
    tab = Visitor(browser, scene.url, viewport={"width": width, "height": 800}, color_scheme=scheme)
    for screen in SCREENS:
        page = tab.open(screen)
        page.wait_for_timeout(150)
        assert faults(page) == [], f"{screen}, {width} pixels, {scheme}"
        assert page.locator("[aria-live], [role=status], [role=alert]").count(), screen
    tab.close()


def test_the_keyboard_is_enough(visitor: Visitor) -> None:
    """From the first Tab to a lock, its dialog, and back to the button that opened it."""
    page = visitor.open("locks")
    focused = "document.activeElement.textContent.trim()"

    order = []
    for _ in range(4):
        page.keyboard.press("Tab")
        order.append(page.evaluate(focused))
    assert order == ["Skip to the content", "coordinator", "Cluster", "Locks"]
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"

    page.focus("tbody tr[tabindex='0']")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.dataset.key") == "daily-report"
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('daily-report')")
    assert page.evaluate("document.activeElement.tagName") == "H1"

    page.get_by_role("button", name="Revoke…").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    assert faults(page) == []
    for _ in range(8):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement === document.body"
                             " || !!document.activeElement.closest('dialog')")  # fmt: skip
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")


def test_what_changes_is_shown_as_it_changes(visitor: Visitor, scene: Scene) -> None:
    """By one watch, in the list of locks, in the tree and in the events; paused events wait."""
    page = visitor.open("locks")
    page.wait_for_selector(".live.good")
    session = scene.session("late")
    grant = scene.acquire("just-now", "late", session)["grant"]
    page.wait_for_selector("tr[data-key='just-now']")
    scene.call("DELETE", f"/v1/locks/just-now/grants/{grant['grant_id']}")
    page.wait_for_selector("tr[data-key='just-now']", state="detached")

    page = visitor.open("tree/%2Fapp%2Fmotd")
    page.wait_for_selector(".live.good")
    scene.call("PUT", "/v1/tree/app/motd", {"data": "open again"})
    page.wait_for_selector("pre:has-text('open again')")

    page = visitor.open("events")
    page.wait_for_selector(".live.good")
    page.wait_for_selector("tbody tr")
    page.get_by_role("button", name="Pause").click()
    scene.call("PUT", "/v1/tree/app/motd", {"data": "once more"})
    page.wait_for_selector("text=1 came since")
    assert page.locator("tbody td:has-text('changed')").count() < 3
    page.get_by_role("button", name="Go on").click()
    page.get_by_label("Path contains").fill("MOTD")
    page.wait_for_selector("tbody tr:has-text('changed')")
    assert set(page.locator("tbody tr a.mono").all_text_contents()) == {"/app/motd"}


def test_markup_in_names_and_data_stays_text(visitor: Visitor) -> None:
    """Whatever clients write is shown, and never is a part of the page."""
    page = visitor.open("tree/%2Fapp")
    page.get_by_role("link", name="broken<b>").click()
    page.wait_for_selector("pre:has-text('<script>alert(1)</script>')")
    page.get_by_role("button", name="Hex").click()
    assert "3c 73 63 72 69 70 74" in page.inner_text("pre")
    assert page.locator("main b, main script").count() == 0


def test_what_one_client_wrote_breaks_no_screen(visitor: Visitor, scene: Scene) -> None:
    """Neither a ledger or a run that is none, nor an address that is no UTF-8."""
    hostile = (5, [], {"schedule": 5, "state": {}}, {"state": ["up"], "metadata": 5}, "\u202e%zz")
    for number, said in enumerate(hostile):
        for path in (f"/schedules/jobs/bad-{number}/{'9' * 60}", f"/groups/bad-{number}/a"):
            body = {"data": json.dumps(said), "parents": "persistent"}
            scene.call("POST", f"/v1/tree{path}", body)
    page = visitor.open("recipes")
    text = page.inner_text("main")
    assert "nightly-backup" in text
    assert "worker-3" in text
    assert re.search(r"Next run at .+, in \d", text)
    assert re.search(r"Due since 19(70-01-01|69-12-31) .+, and nobody runs it", text)
    assert "bad-4" in text
    assert page.locator(".problem").count() == 0
    for address in ("tree/%", "locks/%zz"):
        visitor.open(address)


def test_a_screen_that_was_left_does_not_take_the_stream(visitor: Visitor) -> None:
    """It is read slowly, and was left: what is shown now is still what is followed."""
    page = visitor.page
    page.add_init_script(
        """const fetched = window.fetch;
        window.fetch = async (address, given) => {
          if (String(address).startsWith("/v1/grants")) await new Promise((go) => setTimeout(go,
            700));
          return fetched(address, given);
        };"""
    )
    followed: list[str] = []
    page.on("request", lambda request: followed.append(request.post_data or "")
            if request.url.endswith("/v1/watch") else None)  # fmt: skip
    visitor.open("locks")
    page.evaluate("location.hash = '#/locks/daily-report'")
    page.wait_for_timeout(100)
    visitor.open("tree/%2Fapp%2Fsettings")
    page.wait_for_timeout(1_000)

    assert "/app/settings" in followed[-1]


def test_a_lock_is_revoked_after_it_was_said_whose(visitor: Visitor, scene: Scene) -> None:
    """Not without a reason; then the next in the queue holds, and the history says who did it."""
    page = visitor.open("locks/daily-report")
    page.get_by_role("button", name="Revoke…").click()
    dialog = page.locator("dialog")
    text = dialog.inner_text()
    assert "report-worker (host-13, pid 4217) loses the lock now" in text
    assert "The next of 4 contenders is granted at once" in text

    dialog.get_by_label("Your name").fill("bob")
    dialog.get_by_role("button", name="Revoke").click()
    page.wait_for_selector("dialog .problem:has-text('Why: this is needed')")
    dialog.get_by_label("Why").fill("it hangs")
    dialog.get_by_role("button", name="Revoke").click()
    page.wait_for_selector("dialog", state="detached")

    page.wait_for_selector(".holder h2:has-text('billing')")
    page.wait_for_selector(".story tr:has-text('by bob, it hangs')")
    ended = scene.call("GET", "/v1/grants?lock=daily-report&how=forced")["grants"][-1]
    assert (ended["by"], ended["reason"]) == ("bob", "it hangs")


def test_the_story_of_a_lock_says_what_came_after_a_loss(visitor: Visitor) -> None:
    """Its lock-delay, if one waited already; else it was free, and nobody is told otherwise."""
    page = visitor.open("cluster")
    first = {"fencing_token": 3, "entered_ms": 1_000, "granted_ms": 1_000, "ended_ms": 5_000,
             "how": "expired", "silent_ms": 2_000, "label": "a", "term": 1}  # fmt: skip
    said = {}
    for entered_ms, granted_ms in ((2_000, 8_000), (7_000, 8_000), (2_000, 5_000)):
        second = {"fencing_token": 9, "entered_ms": entered_ms, "granted_ms": granted_ms,
                  "ended_ms": None, "how": "", "label": "b", "term": 0}  # fmt: skip
        text = page.evaluate(
            """async (grants) => {
              const { story } = await import("/console/parts/story.js");
              return story(grants, 9_000).querySelector("tbody tr:last-child").textContent;
            }""",
            [first, second],
        )
        said[entered_ms, granted_ms] = text.partition("; then ")[2]
    assert said == {
        (2_000, 8_000): "closed for 3.0 s by its lock-delay",
        (7_000, 8_000): "free for 3.0 s",
        (2_000, 5_000): "",
    }


def test_a_session_is_ended_and_a_znode_deleted(visitor: Visitor, scene: Scene) -> None:
    session = scene.session("doomed")
    scene.acquire("of-doomed", "doomed", session)
    page = visitor.open(f"sessions/{session}")
    page.wait_for_selector("a:has-text('of-doomed')")
    page.get_by_role("button", name="End session…").click()
    assert "It holds 1 grant: of-doomed" in page.inner_text("dialog")
    page.get_by_label("Your name").fill("bob")
    page.get_by_label("Why").fill("left behind")
    page.get_by_role("button", name="End it").click()
    page.wait_for_selector("h1:has-text('Sessions')")
    assert scene.call("GET", f"/v1/sessions/{session}", expected=410)["code"] == "SessionExpired"

    scene.call("POST", "/v1/tree/app/old/one", {"parents": "persistent"})
    page = visitor.open("tree/%2Fapp%2Fold")
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.wait_for_selector("dialog .problem")
    page.get_by_label("Type /app/old to go on").fill("/app/old")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.wait_for_selector("h1:text-is('/app')")
    assert scene.call("GET", "/v1/tree/app/old", expected=404)["code"] == "NoNode"


def test_a_lock_is_explained_in_the_words_of_the_member(visitor: Visitor, scene: Scene) -> None:
    """Why it is so, and what is found of it: as the shell shows them, and a plain request."""
    shell = subprocess.run(
        [sys.executable, "-m", "coordinator", "diagnose", "daily-report",
         "--endpoints", scene.url],
        capture_output=True, text=True, timeout=patient(20), check=True,
    )  # fmt: skip
    page = visitor.open("locks/daily-report")
    page.wait_for_selector(".finding")
    (found,) = scene.call("GET", "/v1/diagnosis?lock=daily-report")["locks"]
    why = scene.call("GET", "/v1/locks/daily-report/why")["sentences"]

    said = [each["text"] for each in found["findings"]]
    assert page.locator(".finding strong").all_inner_texts() == said
    assert all(f"daily-report: {each}" in shell.stdout for each in said)
    shown = page.locator(".why p").all_inner_texts()
    assert [_timeless(each) for each in shown] == [_timeless(each) for each in why]


def _timeless(sentence: str) -> str:
    """Return a sentence without how long something has lasted, or lasts."""
    return re.sub(r"(for|another|since) [\d.]+ (ms|s|min|h)( \d+ s)?", r"\1", sentence)


def test_a_lock_held_by_hand_is_listed_and_its_page_says_so(visitor: Visitor, scene: Scene) -> None:
    """The words of the shell; nowhere that nothing is wrong with it."""
    hold = {"fencing_token": 1, "by": "ann", "note": "a crane"}
    scene.call(
        "POST",
        "/v1/tree/manual-locks/harbour",
        {"data": json.dumps(hold), "parents": "persistent"},
    )
    page = visitor.open("locks")
    page.wait_for_selector("text=held by hand by 'ann': 'a crane'")
    page = visitor.open("locks/harbour")
    page.wait_for_selector(".finding")
    assert page.locator(".finding strong").all_inner_texts() == ["It is held by hand."]
    assert "harbour is held by hand by 'ann': 'a crane'." in page.inner_text(".why")
    scene.call("DELETE", "/v1/tree/manual-locks/harbour")
    page.wait_for_selector("text=Nothing is known of it.")


def _many(page: Any) -> None:
    """Answer with 10,000 locks, 50,000 sessions and a znode with 1,000,000 children."""
    stat = {"num_children": 0, "data_length": 1, "version": 0, "mode": "persistent", "mtime_ms": 1,
            "ctime_ms": 1, "czxid": 1, "mzxid": 1, "pzxid": 1, "ephemeral_owner": None}  # fmt: skip

    def numbers(url: str, count: int) -> tuple[range, int | None]:
        after = re.search(r"after=[a-z-]*0*(\d+)", url)
        begin = int(after[1]) + 1 if after else 0
        end = min(count, begin + 1_000)
        return range(begin, end), end - 1 if end < count else None

    def locks(route: Any) -> None:
        found, last = numbers(route.request.url, 10_000)
        rows = [
            {"lock": f"l{each:06}", "holder": None, "queue_length": each % 7, "held_ms": each,
             "holder_count": 1, "denied": None, "waiting_since_ms": None}
            for each in found
        ]  # fmt: skip
        route.fulfill(json={"locks": rows, "next": None if last is None else f"l{last:06}"})

    def sessions(route: Any) -> None:
        found, last = numbers(route.request.url, 50_000)
        rows = [
            {"session_id": f"{each:016}", "timeout_ms": 1, "label": "s", "opened_ms": 1,
             "ephemeral_count": 0, "address": "", "client_id": "", "by": ""}
            for each in found
        ]  # fmt: skip
        route.fulfill(json={"sessions": rows, "next": last})

    def znodes(route: Any) -> None:
        if "children" not in route.request.url:
            wide = {**stat, "num_children": 10**6}
            route.fulfill(json={"path": "/many", "data": "", "stat": wide})
            return
        found, last = numbers(route.request.url, 10**6)
        rows = [{"name": f"c{each:07}", "stat": stat} for each in found]
        route.fulfill(json={"children": rows, "next": None if last is None else f"c{last:07}"})

    def status(route: Any) -> None:
        route.fulfill(json={**route.fetch().json(), "sessions": 50_000})

    page.route(re.compile(r"/v1/status"), status)
    page.route(re.compile(r"/v1/locks\?"), locks)
    page.route(re.compile(r"/v1/sessions\?"), sessions)
    page.route(re.compile(r"/v1/tree/many"), znodes)


def test_long_lists_do_not_slow_it(visitor: Visitor) -> None:
    """Whatever there is, a screen has some dozens of rows; a reader is told of all of them."""
    _many(visitor.page)
    for screen, total in (("locks", 10_000), ("sessions", 50_000), ("tree/%2Fmany", 10**6)):
        page = visitor.open(screen)
        page.wait_for_selector(f"table.virtual[aria-rowcount='{total + 1}']")
        for _ in range(3):
            page.evaluate("document.querySelector('.window').scrollTop = 1e9")
            page.wait_for_timeout(60)
        assert 10 < page.locator("tbody tr").count() < 80
    assert page.evaluate("performance.getEntriesByType('longtask').length") == 0


def test_what_one_may_not_do_is_not_offered(browser: Any) -> None:
    """And the token is in the header alone: not in an address, a cookie, or beyond the tab."""
    with local_cluster(members=1) as cluster:
        scene = Scene(cluster)
        scene.call("POST", "/v1/tree/app", {"data": "x"})
        token = scene.call("POST", "/v1/access/init", {"identity": "root"})["token"]
        scene.token = token
        rules = [{"prefix": "/", "verbs": ["read", "watch"]}]
        scene.call("PUT", "/v1/access/roles/looks", {"rules": rules})
        scene.call("PUT", "/v1/access/identities/ann", {"roles": ["looks"]})
        reader = scene.call("POST", "/v1/access/identities/ann/tokens", {})["token"]
        session = scene.session("worker")
        scene.acquire("held", "worker", session)

        for shown, may in ((reader, False), (token, True)):
            tab = Visitor(browser, scene.url)
            asked: list[str] = []
            tab.page.on("request", lambda request, asked=asked: asked.append(request.url))
            page = tab.page
            page.goto(f"{scene.url}/console#/locks/held")
            page.get_by_label("Token").fill("co_wrong")
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_selector("dialog .problem:not([hidden])")
            page.get_by_label("Token").fill(shown)
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_selector(".holder h2:has-text('worker')")
            assert (page.get_by_role("button", name="Revoke…").count() > 0) is may
            tab.open("tree/%2Fapp")
            assert page.get_by_role("button", name="Delete…").is_visible() is may
            tab.open(f"sessions/{session}") if may else None
            assert page.get_by_role("button", name="End session…").count() == int(may)
            assert not any(shown in url for url in asked)
            assert tab.context.cookies() == []
            assert shown not in page.evaluate("JSON.stringify(localStorage)")
            page.get_by_role("button", name="Signed in as").click()
            page.get_by_label("Token").fill("co_wrong")
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_selector("dialog .problem:not([hidden])")
            assert page.locator("dialog").count() == 1
            assert page.inner_text("main") == ""  # nothing of whom signed out
            assert shown not in page.evaluate("JSON.stringify(sessionStorage)")
            tab.close()


def test_the_leadership_is_handed_over(browser: Any, scene: Scene) -> None:
    """By way of a member that does not lead; the screen says who leads then."""
    leader = scene.cluster.leader
    tab = Visitor(browser, scene.cluster.url(scene.cluster.followers[0]))
    page = tab.open("cluster")
    page.get_by_role("button", name="Hand over the leadership…").click()
    assert f"Member {leader} leads now" in page.inner_text("dialog")
    page.get_by_role("button", name="Hand over", exact=True).click()
    page.wait_for_selector("dialog", state="detached")
    now = scene.cluster.leader
    assert now != leader
    page.wait_for_selector(f".announcement:has-text('Member {now} leads now')")
    page.wait_for_selector(f".sentence:has-text('member {now} leads')")
    tab.close()


def test_the_health_is_what_the_member_says(visitor: Visitor, scene: Scene) -> None:
    """The page judges nothing itself: the sentence and each finding are those of the API."""
    health = {
        "level": "warn",
        "text": "Slow. There is one thing more.",
        "findings": [
            {"level": "warn", "text": "Slow.", "todo": "Look at the disk."},
            {"level": "note", "text": "Off.", "todo": ""},
        ],
    }
    body = {**scene.call("GET", "/v1/members"), "health": health}
    visitor.page.route("**/v1/members", lambda route: route.fulfill(json=body))
    page = visitor.open("cluster")
    page.wait_for_selector(".verdict.warn")

    assert page.inner_text(".verdict .sentence") == health["text"]
    assert page.locator(".todo li").all_inner_texts() == ["Slow. Look at the disk.", "Off."]


def test_the_console_says_what_to_do_when_the_leader_is_gone(browser: Any, scene: Scene) -> None:
    """The last of the tests: a member is killed. Who is left elects another, and it is shown."""
    leader = scene.cluster.leader
    tab = Visitor(browser, scene.cluster.url(scene.cluster.followers[0]))
    page = tab.open("cluster")
    page.wait_for_selector(".verdict.good")
    scene.cluster.kill(leader)
    gone = f".verdict.bad:has-text('Member {leader} does not answer')"
    page.wait_for_selector(gone, timeout=20_000)
    assert "start it again with the same data directory" in page.inner_text(".todo")
    page.wait_for_selector(".terms li:nth-child(2)")
    assert page.locator(".sight .no").count() >= 1
    scene.cluster.restart(leader)
    page.wait_for_selector(".verdict.good", timeout=20_000)
    tab.close()
