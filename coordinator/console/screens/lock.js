// One lock: who holds it and why others wait, its queue, its story, how long it takes, and what is
// wrong with it. The sentences are the member's.
//
// It is read when its watch says that it changed. Heartbeats are no change of the tree, so why it
// is so, with what is left of the holder's lease, is asked for: that alone, a few times in a lease.

import { histogram } from "../parts/charts.js";
import { leaseBar } from "../parts/lease.js";
import { Refresher } from "../parts/refresher.js";
import { story } from "../parts/story.js";
import { busyLocks, shortened } from "../parts/busy_locks.js";
import { connected, drawGraph, waitGraph } from "../parts/wait_graph.js";
import { revokeGrant } from "../deeds.js";
import { segment } from "../shared/api.js";
import { fill, fillIfChanged, h, scrolls } from "../shared/dom.js";
import { count, duration, time } from "../shared/format.js";
import { nameOf, who } from "../parts/who.js";

const DRAWN_MS = 2_000;
const LEASE_MS_MIN = 2_000;
const LEASE_MS_MAX = 10_000;
const UNWATCHED_MS = 5_000;
const HOLDERS_SHOWN = 20;
const QUEUE_SHOWN = 100;
const GRANTS_MAX = 10_000;

export async function lockScreen(context, name) {
  const { api, feed, rights, go } = context;
  const path = `/locks/${segment(name)}`;
  const mayRevoke = await rights.may("admin", path);
  const why = h("section", { class: "card why" });
  const holders = h("div", { class: "holders" });
  const queue = h("section", { class: "card" });
  const graph = h("section", { class: "card", hidden: true });
  const history = h("section", { class: "card" });
  const spreads = h("section", { class: "card spreads" });
  const findings = h("section", { class: "card" });
  const grants = new Map();
  const bars = new Map();
  const address = `/v1/locks/${segment(name)}`;
  let view = null;
  let said = null;
  let drawn = "";
  const element = h(
    "div",
    { class: "screen" },
    h("p", { class: "crumbs" }, h("a", { href: "#/locks" }, "Locks"), " / "),
    h("h1", { class: "mono" }, name),
    h("div", { class: "two" }, why, holders),
    queue,
    graph,
    h("div", { class: "two" }, findings, spreads),
    history,
  );

  async function refresh() {
    const [now, reasons, found] = await Promise.all([
      api.get(address),
      api.get(`${address}/why`),
      api.get("/v1/diagnosis", { lock: name }),
      readGrants(),
    ]);
    view = { ...now, at: performance.now() };
    said = reasons.sentences;
    drawNow();
    drawPast();
    const [{ findings: all }] = found.locks;
    fillIfChanged(findings, all, h("h2", {}, "Diagnosis"), all.map(finding));
    await showChain();
  }

  /** Ask why it is so, with what is left of the leases of those who are shown. */
  async function askWhy() {
    const now = await api.get(`${address}/why`);
    const asked = new Map(now.holders.map((each) => [each.grant_id, each]));
    const { closed, denied, sentences } = now;
    const known = aged(view).holders.map((each) => {
      const { safe_ms = each.safe_ms, lease_ms = each.lease_ms } = asked.get(each.grant_id) ?? {};
      return { ...each, safe_ms, lease_ms };
    });
    view = { ...view, holders: known, closed, denied, at: performance.now() };
    said = sentences;
    drawNow();
  }

  /** Draw what runs on by itself: how long, and how long still. */
  function drawNow() {
    const nowMs = Date.now();
    const now = aged(view);
    fillIfChanged(why, said, h("h2", {}, "Why it is so"), said.map((each) => h("p", {}, each)));
    const shown = now.holders.slice(0, HOLDERS_SHOWN);
    const isSame = shown.every((each) => bars.get(each.grant_id)?.renew(each) ?? false);
    if (!isSame) delete holders.dataset.mark;
    const marks = shown.map((each) => ({ ...each, safe_ms: null, lease_ms: null }));
    fillIfChanged(holders, [marks, view.queue_length], () => {
      bars.clear();
      return shown.map(holderCard);
    });
    fillIfChanged(queue, [view.queue, Math.floor(nowMs / DRAWN_MS)], () => queueOf(view, nowMs));
  }

  function drawPast() {
    const nowMs = Date.now();
    const list = [...grants.values()].sort((one, other) => one.granted_zxid - other.granted_zxid);
    fillIfChanged(
      history,
      [list.length, list.at(-1), view.holders.length && Math.floor(nowMs / 5_000)],
      h("h2", {}, "Its story"),
      story(list, nowMs),
    );
    fillIfChanged(
      spreads,
      list.map((each) => each.ended_ms),
      h("h2", {}, "How long it takes"),
      histogram(
        "Waits",
        list.map((each) => Math.max(0, each.granted_ms - each.entered_ms)),
      ),
      histogram(
        "Holds",
        list
          .filter((each) => each.ended_ms)
          .map((each) => Math.max(0, each.ended_ms - each.granted_ms)),
      ),
    );
  }

  /** Read the grants from the newest held or known one on: those before it have ended. */
  async function readGrants() {
    const held = [...grants.values()].filter((each) => !each.how);
    const newest = Math.max(0, ...[...grants.values()].map((each) => each.granted_ms));
    const since = Math.max(0, Math.min(newest, ...held.map((each) => each.granted_ms)) - 1);
    let after;
    do {
      const page = await api.get("/v1/grants", {
        lock: name,
        since_ms: since || undefined,
        after,
        limit: 1_000,
      });
      for (const each of page.grants) grants.set(each.grant_id, each);
      after = page.next;
    } while (after && grants.size < GRANTS_MAX);
  }

  /** Draw what its clients wait for elsewhere, or hold: the queue alone is shown above. */
  async function showChain() {
    const mark = JSON.stringify(
      [view.queue, view.holders].map((all) => all.map((each) => each.grant_id)),
    );
    if (mark === drawn) return;
    drawn = mark;
    const others = (await busyLocks(api)).filter((each) => each.lock !== name);
    const group = connected([shortened(view), ...others.map(shortened)], name);
    graph.hidden = group.length < 2;
    fill(
      graph,
      h("h2", {}, "Who waits for whom"),
      drawGraph(waitGraph(group), { onLock: (lock) => go("locks", lock) }),
    );
  }

  function holderCard(holder) {
    const facts = [
      ["Grant", h("span", { class: "mono" }, holder.grant_id)],
      ["Fencing token", h("span", { class: "mono" }, holder.fencing_token)],
      ["Kind", holder.kind],
      ["Since", time(holder.granted_ms ?? holder.since_ms)],
      holder.session_id && [
        "Session",
        h("a", { class: "mono", href: `#/sessions/${holder.session_id}` }, holder.session_id),
      ],
      holder.trace_id && ["Trace", h("span", { class: "mono" }, holder.trace_id)],
      (holder.note || holder.note_base64) && ["Note", holder.note ?? "bytes"],
    ].filter(Boolean);
    const revoke = mayRevoke && h("button", { class: "harmful quiet", type: "button" }, "Revoke…");
    if (revoke)
      revoke.addEventListener(
        "click",
        async () =>
          (await revokeGrant(context, name, holder, { waiting: view.queue_length })) &&
          refresher.soon(),
      );
    const bar = leaseBar(holder);
    bars.set(holder.grant_id, bar);
    return h(
      "section",
      { class: "card holder" },
      h("h2", {}, nameOf(holder), h("span", { class: "mark accent" }, "holds"), revoke),
      h(
        "p",
        { class: "muted" },
        [holder.host, holder.pid && `pid ${holder.pid}`].filter(Boolean).join(", "),
      ),
      bar,
      h(
        "dl",
        { class: "facts" },
        facts.map(([title, value]) => [h("dt", {}, title), h("dd", {}, value)]),
      ),
    );
  }

  await refresh();
  const leases = new Refresher(askWhy, { everyMs: leaseEveryMs(view) });
  const refresher = new Refresher(
    async () => {
      await refresh();
      leases.every(leaseEveryMs(view));
    },
    { atLeastMs: 400 },
  );
  const clock = setInterval(() => {
    if (document.hidden) return;
    drawNow();
    drawPast();
  }, DRAWN_MS);
  const byHand = { path: `/manual-locks/${segment(name)}`, kind: "znode" };
  const mayWatchBoth = await rights.may("read", byHand.path);
  const watching = feed.follow([{ path, kind: "subtree" }, ...(mayWatchBoth ? [byHand] : [])], {
    onChange: () => refresher.soon(),
    onResync: () => refresher.soon(),
  });
  // It ends while the screen is shown only if one may not watch.
  Promise.resolve(watching).then(() => refresher.every(UNWATCHED_MS));
  return {
    element,
    stop: () => {
      refresher.stop();
      leases.stop();
      clearInterval(clock);
    },
  };
}

/** Return a view with what is left of leases and of a lock-delay as of now. */
function aged(view) {
  const gone = performance.now() - view.at;
  const left = (ms) => (typeof ms === "number" ? Math.max(0, ms - gone) : ms);
  const holders = view.holders.map((each) => ({ ...each, safe_ms: left(each.safe_ms) }));
  const { closed } = view;
  const delay = closed && { ...closed, remaining_ms: left(closed.remaining_ms) };
  return { ...view, holders, closed: delay };
}

/** How often it is asked why: five times in the shortest lease; never of a lock that is free. */
function leaseEveryMs({ holders, closed, by_hand: byHand }) {
  const known = holders.filter((each) => each.lease_ms !== null);
  if (!known.length && closed) return LEASE_MS_MIN;
  if (!known.length) return holders.length || byHand ? LEASE_MS_MAX : 0;
  const shortest = Math.min(...known.map((each) => each.lease_ms));
  return Math.min(LEASE_MS_MAX, Math.max(LEASE_MS_MIN, shortest / 5));
}

function queueOf(view, nowMs) {
  if (!view.queue_length)
    return [h("h2", {}, "Queue"), h("p", { class: "muted" }, "Nobody waits.")];
  const shown = view.queue.slice(0, QUEUE_SHOWN);
  return [
    h("h2", {}, "Queue", h("span", { class: "mark warn" }, count(view.queue_length, "contender"))),
    h(
      "div",
      scrolls("Queue"),
      h(
        "table",
        { "aria-label": "Who waits, in order" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            [
              ["Position"],
              ["Who"],
              ["Kind", "wide"],
              ["Waits for"],
              ["Lease", "wide"],
              ["Grant", "wide"],
            ].map(([each, kind]) => h("th", { scope: "col", class: kind }, each)),
          ),
        ),
        h(
          "tbody",
          {},
          shown.map((each, index) =>
            h(
              "tr",
              {},
              h("td", {}, String(index + 1)),
              h(
                "td",
                {},
                each.session_id
                  ? h("a", { href: `#/sessions/${each.session_id}` }, who(each))
                  : who(each),
              ),
              h("td", { class: "wide" }, each.kind),
              h("td", {}, duration(Math.max(0, nowMs - each.since_ms))),
              h("td", { class: "wide" }, duration(each.lease_ms)),
              h("td", { class: "mono wide" }, each.grant_id),
            ),
          ),
        ),
      ),
    ),
    view.queue_length > shown.length &&
      h(
        "p",
        { class: "muted" },
        `and ${count(view.queue_length - shown.length, "contender")} more.`,
      ),
  ];
}

function finding(each) {
  const kind = { problem: "bad", warning: "warn", note: "" }[each.severity];
  return h(
    "div",
    { class: `finding ${kind}` },
    h(
      "p",
      {},
      h("span", { class: `mark ${kind}` }, each.severity),
      " ",
      h("strong", {}, each.text),
    ),
    h("p", { class: "muted" }, each.why),
    each.advice.split("\n").map((line) => line && h("p", {}, line)),
  );
}
