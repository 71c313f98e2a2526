// All that changes, as it changes: filtered by path and kind, paused to be read.

import { VirtualTable } from "../parts/table.js";
import { h } from "../shared/dom.js";
import { count, number, time } from "../shared/format.js";

const KEPT_MAX = 5_000;
const DRAW_MS = 250;
const BACK = 1_000;
const KINDS = [
  ["NodeCreated", "created"],
  ["NodeDataChanged", "changed"],
  ["NodeDeleted", "deleted"],
];

export async function eventsScreen({ api, feed }) {
  const status = await api.get("/v1/status");
  let kept = [];
  let missed = 0;
  let isPaused = false;
  let frozen = null;
  let serial = 0;
  let fresh = [];
  const said = h("p", { class: "muted", role: "status" });
  const filter = h("input", {
    type: "search",
    id: "event-filter",
    placeholder: "Path contains",
    autocomplete: "off",
  });
  const pause = h("button", { type: "button", "aria-pressed": "false" }, "Pause");
  const clear = h("button", { type: "button" }, "Clear");
  const kinds = KINDS.map(([type, name]) => [
    type,
    h("input", { type: "checkbox", id: `kind-${name}`, checked: true }),
    name,
  ]);
  const table = new VirtualTable({
    label: "Events, the newest first",
    key: (row) => row.serial,
    empty: "Nothing has changed yet.",
    columns: [
      { title: "Seen", className: "number", cell: (row) => (row.at ? time(row.at) : "before") },
      { title: "Zxid", className: "number mono", cell: (row) => row.zxid },
      {
        title: "What",
        cell: (row) =>
          h(
            "span",
            { class: `mark ${{ NodeCreated: "good", NodeDeleted: "bad" }[row.type] ?? "accent"}` },
            KINDS.find(([type]) => type === row.type)?.[1] ?? row.type,
          ),
      },
      {
        title: "Path",
        className: "grow",
        cell: (row) =>
          h(
            "a",
            { class: "mono", href: `#/tree/${encodeURIComponent(row.path)}`, "data-focus": "path" },
            row.path,
          ),
      },
      { title: "Version", className: "number wide", cell: (row) => number(row.version) },
      {
        title: "Session",
        className: "wide",
        cell: (row) =>
          row.ephemeral_owner
            ? h(
                "a",
                { class: "mono", href: `#/sessions/${row.ephemeral_owner}` },
                row.ephemeral_owner.slice(0, 8),
              )
            : "–",
      },
    ],
  });

  function show() {
    const wanted = filter.value.trim().toLowerCase();
    const types = new Set(kinds.filter(([, box]) => box.checked).map(([type]) => type));
    const source = frozen ?? kept;
    const rows = source.filter(
      (each) => types.has(each.type) && (!wanted || each.path.toLowerCase().includes(wanted)),
    );
    const behind = frozen ? serial - (frozen.at(0)?.serial ?? 0) : 0;
    said.textContent =
      count(rows.length, "event") +
      (rows.length < source.length ? ` of ${number(source.length)}` : "") +
      (isPaused ? `; paused, ${number(behind)} came since` : "") +
      (missed
        ? `; ${count(missed, "gap")}: this reader was too slow, or the past is not kept`
        : "") +
      ".";
    table.show(rows, { empty: source.length ? "No event fits." : undefined });
  }

  pause.addEventListener("click", () => {
    take();
    isPaused = !isPaused;
    frozen = isPaused ? kept : null;
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Go on" : "Pause";
    show();
  });
  clear.addEventListener("click", () => {
    kept = [];
    frozen = isPaused ? kept : null;
    show();
  });
  filter.addEventListener("input", show);
  for (const [, box] of kinds) box.addEventListener("change", show);

  function take() {
    kept = [...fresh.slice(-KEPT_MAX).reverse(), ...kept].slice(0, KEPT_MAX);
    fresh = [];
  }

  let isDue = false;
  const timer = setInterval(() => {
    if (!isDue || document.hidden) return;
    take();
    isDue = false;
    show();
  }, DRAW_MS);
  const begun = Date.now();
  const since = Math.max(0, status.zxid - BACK);
  const follow = (from) =>
    feed.follow([{ path: "/", kind: "subtree" }], {
      from,
      onChange: ({ zxid, events }) => {
        const at = zxid > status.zxid ? Date.now() : 0;
        for (const each of events) fresh.push({ ...each, zxid, at, serial: (serial += 1) });
        if (fresh.length > 2 * KEPT_MAX) fresh = fresh.slice(-KEPT_MAX);
        isDue = true;
      },
      onResync: () => {
        missed += Date.now() - begun > 2_000 ? 1 : 0;
        isDue = true;
      },
    });
  follow(since);
  show();
  const element = h(
    "div",
    { class: "screen" },
    h(
      "div",
      { class: "head" },
      h("h1", {}, "Events"),
      h(
        "div",
        { class: "filter events" },
        h("label", { class: "visually-hidden", for: "event-filter" }, "Path contains"),
        filter,
        h(
          "fieldset",
          { class: "kinds" },
          h("legend", { class: "visually-hidden" }, "Which events"),
          kinds.map(([, box, name]) => h("label", { for: box.id }, box, name)),
        ),
        pause,
        clear,
      ),
    ),
    said,
    table.element,
  );
  return { element, stop: () => clearInterval(timer) };
}
