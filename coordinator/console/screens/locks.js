// All locks that are not free: held, held by hand, closed after a loss; who waits longest, who
// holds longest. Live by one watch.

import { Paged } from "../parts/paged.js";
import { Refresher } from "../parts/refresher.js";
import { VirtualTable } from "../parts/table.js";
import { inWords } from "../shared/api.js";
import { h } from "../shared/dom.js";
import { count, duration, number } from "../shared/format.js";
import { announce } from "../shared/live.js";
import { who } from "../parts/who.js";

const PAGE = 1_000;
const PAGES_AT_ONCE = 3;

export async function locksScreen({ api, feed, go, rights }) {
  const byHand = { path: "/manual-locks", kind: "subtree" };
  const mayWatchBoth = await rights.may("read", byHand.path);
  const paged = new Paged(async (after) => {
    const page = await api.get("/v1/locks", { after, limit: PAGE });
    return { rows: page.locks.map((each) => seen(each, after)), next: page.next };
  });
  const dirty = new Set();
  const said = h("p", { class: "muted", role: "status" });
  const filter = h("input", {
    type: "search",
    id: "lock-filter",
    placeholder: "Name, host or label",
    autocomplete: "off",
  });
  const table = new VirtualTable({
    label: "Locks that are not free",
    key: (row) => row.lock,
    onOpen: (row) => go("locks", row.lock),
    empty: "Every lock is free.",
    columns: [
      {
        title: "Lock",
        isText: true,
        sort: (row) => row.lock,
        className: "name",
        cell: (row) =>
          h(
            "a",
            {
              href: `#/locks/${encodeURIComponent(row.lock)}`,
              class: "mono",
              "data-focus": "lock",
            },
            row.lock,
          ),
      },
      {
        title: "Wait",
        isFirst: true,
        className: "number",
        sort: (row) => row.queue_length,
        cell: (row) =>
          row.queue_length
            ? h(
                "span",
                { class: `mark ${row.queue_length > 9 ? "bad" : "warn"}` },
                number(row.queue_length),
              )
            : "0",
      },
      {
        title: "Longest wait",
        className: "number wide",
        sort: (row) => -(row.waiting_since_ms ?? Number.MAX_SAFE_INTEGER),
        cell: (row) =>
          row.waiting_since_ms ? duration(Math.max(0, Date.now() - row.waiting_since_ms)) : "–",
      },
      {
        title: "Held for",
        className: "number",
        sort: (row) => row.heldNow(),
        cell: (row) => duration(row.heldNow()),
      },
      {
        title: "Hold",
        className: "number wide",
        sort: (row) => row.holder_count,
        cell: (row) => number(row.holder_count),
      },
      {
        title: "Holder",
        className: "grow",
        isText: true,
        sort: (row) => holderOf(row),
        cell: (row) =>
          row.by_hand || !row.holder
            ? h("span", { class: `mark ${row.is_overdue ? "bad" : "warn"}` }, holderOf(row))
            : holderOf(row),
      },
      {
        title: "Token",
        className: "number wider",
        sort: (row) => row.holder?.fencing_token ?? 0,
        cell: (row) => h("span", { class: "mono" }, row.holder?.fencing_token ?? "–"),
      },
      {
        title: "Denied",
        className: "number wider",
        sort: (row) => denied(row),
        cell: (row) => denied(row) || "–",
      },
    ],
  });
  const element = h(
    "div",
    { class: "screen" },
    h(
      "div",
      { class: "head" },
      h("h1", {}, "Locks"),
      h(
        "div",
        { class: "filter" },
        h("label", { class: "visually-hidden", for: "lock-filter" }, "Filter"),
        filter,
      ),
    ),
    said,
    table.element,
  );

  function show() {
    const wanted = filter.value.trim().toLowerCase();
    const rows = wanted
      ? paged.rows.filter((row) => `${row.lock} ${holderOf(row)}`.toLowerCase().includes(wanted))
      : paged.rows;
    const waiting = paged.rows.reduce((sum, each) => sum + each.queue_length, 0);
    said.textContent =
      `${count(paged.rows.length, "lock")} ` +
      `not free${paged.isWhole ? "" : " so far"}, ` +
      `${count(waiting, "contender waits", "contenders wait")}.`;
    table.show(rows, { empty: wanted ? "No lock fits." : undefined });
  }

  /** Read again the pages that hold what has changed; of many some now and the others next. */
  async function refresh() {
    if (!paged.isWhole && paged.rows.length) return;
    const starts = [...new Set([...dirty].map((name) => startOf(paged.rows, name)))].slice(
      0,
      PAGES_AT_ONCE,
    );
    for (const name of [...dirty])
      if (starts.includes(startOf(paged.rows, name))) dirty.delete(name);
    for (const start of starts) {
      const page = await api.get("/v1/locks", { after: start, limit: PAGE });
      const others = paged.rows.filter((row) => row.start !== start);
      paged.rows = [...others, ...page.locks.map((each) => seen(each, start))];
    }
    if (starts.length) show();
    if (dirty.size) refresher.soon();
  }

  await paged.more();
  show();
  const refresher = new Refresher(refresh, { atLeastMs: 1_000 });
  const clock = setInterval(() => !document.hidden && show(), 1_000);
  paged.all(show).then(show, (error) => announce(inWords(error), { isTrouble: true }));
  filter.addEventListener("input", show);
  const held = { path: "/locks", kind: "subtree" };
  feed.follow([held, ...(mayWatchBoth ? [byHand] : [])], {
    onChange: ({ events }) => {
      for (const { path } of events) {
        const segment = path.split("/")[2];
        if (segment) dirty.add(decodeURIComponent(segment));
      }
      refresher.soon();
    },
    onResync: () => {
      paged.reset();
      paged.all(show);
    },
  });
  return {
    element,
    stop: () => {
      refresher.stop();
      clearInterval(clock);
    },
  };
}

function seen(row, start) {
  const at = performance.now();
  return { ...row, start, heldNow: () => row.held_ms + Math.round(performance.now() - at) };
}

/** Who holds it, or what else keeps it from its queue. */
function holderOf(row) {
  const late = row.is_overdue ? ", for longer than planned" : "";
  if (row.by_hand) return `${row.by_hand.replace(/^it is /, "")}${late}`;
  if (!row.holder && row.closed) return "closed after an unclean loss";
  return who(row.holder);
}

function denied(row) {
  return (row.denied?.tries ?? 0) + (row.denied?.left ?? 0);
}

/** Where the page begins that a lock is in: pages are in the order of the znodes' names. */
function startOf(rows, name) {
  let best;
  const key = encodeURIComponent(name);
  for (const { start } of rows) {
    if (start === undefined || start === best) continue;
    const at = encodeURIComponent(start);
    if (at < key && (best === undefined || at > encodeURIComponent(best))) best = start;
  }
  return best;
}
