// One lock: who holds it and why others wait, its queue, its story, how long it takes, and what is
// wrong with it.

import { histogram } from "../parts/charts.js";
import { leaseBar } from "../parts/lease.js";
import { Refresher } from "../parts/refresher.js";
import { story } from "../parts/story.js";
import { busyLocks, shortened } from "../parts/busy_locks.js";
import { connected, drawGraph, waitGraph } from "../parts/wait_graph.js";
import { revokeGrant } from "../deeds.js";
import { segment } from "../shared/api.js";
import { fill, fillIfChanged, h } from "../shared/dom.js";
import { count, duration, time } from "../shared/format.js";
import { diagnosed } from "../words/diagnosis.js";
import { figuresOf } from "../words/figures.js";
import { whySentences } from "../words/why.js";
import { nameOf, who } from "../words/who.js";

const EVERY_MS = 2_000;
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
    const view = await api.get(`/v1/locks/${segment(name)}`);
    const waits = Date.now();
    fill(
      why,
      h("h2", {}, "Why it is so"),
      whySentences(view, waits).map((each) => h("p", {}, each)),
    );
    fillIfChanged(
      holders,
      view.holders,
      view.holders.slice(0, 20).map((each) => holderCard(each, view)),
    );
    fillIfChanged(queue, [view.queue, Math.floor(waits / EVERY_MS)], queueOf(view, waits));
    await readGrants();
    const list = [...grants.values()].sort((one, other) => one.granted_zxid - other.granted_zxid);
    fillIfChanged(
      history,
      [list.length, list.at(-1), view.holders.length && Math.floor(waits / 5_000)],
      h("h2", {}, "Its story"),
      story(list, waits),
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
    const said = diagnosed(figuresOf(list, view));
    fillIfChanged(findings, said, h("h2", {}, "Diagnosis"), said.map(finding));
    await showChain(view);
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
  async function showChain(view) {
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

  function holderCard(holder, view) {
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
    return h(
      "section",
      { class: "card holder" },
      h("h2", {}, nameOf(holder), h("span", { class: "mark accent" }, "holds"), revoke),
      h(
        "p",
        { class: "muted" },
        [holder.host, holder.pid && `pid ${holder.pid}`].filter(Boolean).join(", "),
      ),
      leaseBar(holder),
      h(
        "dl",
        { class: "facts" },
        facts.map(([title, value]) => [h("dt", {}, title), h("dd", {}, value)]),
      ),
    );
  }

  await refresh();
  const refresher = new Refresher(refresh, { atLeastMs: 400, everyMs: EVERY_MS });
  feed.follow([{ path, kind: "subtree" }], {
    onChange: () => refresher.soon(),
    onResync: () => refresher.soon(),
  });
  return { element, stop: () => refresher.stop() };
}

function queueOf(view, nowMs) {
  if (!view.queue_length)
    return [h("h2", {}, "Queue"), h("p", { class: "muted" }, "Nobody waits.")];
  const shown = view.queue.slice(0, QUEUE_SHOWN);
  return [
    h("h2", {}, "Queue", h("span", { class: "mark warn" }, count(view.queue_length, "contender"))),
    h(
      "div",
      { class: "scrolls" },
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
    each.advice && h("p", {}, each.advice),
  );
}
