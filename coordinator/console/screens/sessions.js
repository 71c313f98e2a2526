// Sessions, and what each holds.

import { Paged } from "../parts/paged.js";
import { Refresher } from "../parts/refresher.js";
import { VirtualTable } from "../parts/table.js";
import { endSession } from "../deeds.js";
import { inWords, segment } from "../shared/api.js";
import { fill, h } from "../shared/dom.js";
import { ago, count, duration, number, time } from "../shared/format.js";
import { announce } from "../shared/live.js";

const PAGE = 1_000;

export async function sessionsScreen({ api, go }) {
  const paged = new Paged(async (after) => {
    const page = await api.get("/v1/sessions", { after, limit: PAGE });
    return { rows: page.sessions, next: page.next };
  });
  const total = (await api.get("/v1/status")).sessions;
  const said = h("p", { class: "muted", role: "status" });
  const filter = h("input", {
    type: "search",
    id: "session-filter",
    placeholder: "Id, label, address or client",
    autocomplete: "off",
  });
  const table = new VirtualTable({
    label: "Open sessions",
    key: (row) => row.session_id,
    onOpen: (row) => go("sessions", row.session_id),
    onEnd: () => !paged.isWhole && paged.more().then((isMore) => isMore && show(), failed),
    empty: "No session is open.",
    columns: [
      {
        title: "Session",
        className: "name",
        isText: true,
        sort: (row) => row.session_id,
        cell: (row) =>
          h(
            "a",
            { href: `#/sessions/${row.session_id}`, class: "mono", "data-focus": "id" },
            row.session_id,
          ),
      },
      {
        title: "Label",
        className: "grow",
        isText: true,
        sort: (row) => row.label,
        cell: (row) => row.label || h("span", { class: "muted" }, "none"),
      },
      {
        title: "Owns",
        className: "number",
        isFirst: true,
        sort: (row) => row.ephemeral_count,
        cell: (row) => number(row.ephemeral_count),
      },
      {
        title: "Lease",
        className: "number",
        sort: (row) => row.timeout_ms,
        cell: (row) => duration(row.timeout_ms),
      },
      {
        title: "Opened",
        className: "number wide",
        sort: (row) => -row.opened_ms,
        cell: (row) => ago(row.opened_ms),
      },
      {
        title: "Address",
        className: "wide",
        isText: true,
        sort: (row) => row.address,
        cell: (row) => h("span", { class: "mono" }, row.address || "–"),
      },
    ],
  });
  const failed = (error) => announce(inWords(error), { isTrouble: true });

  function show() {
    const wanted = filter.value.trim().toLowerCase();
    const fits = (row) =>
      `${row.session_id} ${row.label} ${row.address} ${row.client_id}`
        .toLowerCase()
        .includes(wanted);
    const rows = wanted ? paged.rows.filter(fits) : paged.rows;
    fill(
      said,
      paged.isWhole
        ? `${count(paged.rows.length, "session")}.`
        : `${number(paged.rows.length)} of ${count(total, "session")} read; scroll or filter ` +
            `for more.`,
    );
    table.show(rows, {
      total: wanted || paged.isWhole ? null : total,
      empty: wanted ? "No session fits." : undefined,
    });
  }

  filter.addEventListener("input", () => {
    show();
    if (filter.value && !paged.isWhole) paged.all(show).then(show, failed);
  });
  await paged.more();
  show();
  const element = h(
    "div",
    { class: "screen" },
    h(
      "div",
      { class: "head" },
      h("h1", {}, "Sessions"),
      h(
        "div",
        { class: "filter" },
        h("label", { class: "visually-hidden", for: "session-filter" }, "Filter"),
        filter,
      ),
    ),
    said,
    table.element,
  );
  return { element };
}

export async function sessionScreen(context, id) {
  const { api, feed, rights, go } = context;
  const mayEnd = await rights.may("admin", "@sessions");
  const facts = h("section", { class: "card" });
  const held = h("section", { class: "card" });
  const owned = h("section", { class: "card" });
  const end = h(
    "button",
    { class: "quiet harmful", type: "button", hidden: !mayEnd },
    "End session…",
  );
  let session = null;
  let grants = [];
  const element = h(
    "div",
    { class: "screen" },
    h("p", { class: "crumbs" }, h("a", { href: "#/sessions" }, "Sessions"), " / "),
    h("div", { class: "head" }, h("h1", { class: "mono" }, id), end),
    facts,
    h("div", { class: "two" }, held, owned),
  );

  async function refresh() {
    try {
      session = await api.get(`/v1/sessions/${segment(id)}`);
    } catch (error) {
      if (error.status !== 410) throw error;
      end.hidden = true;
      fill(facts, h("h2", {}, "It has ended"), h("p", {}, inWords(error)));
      session = null;
    }
    const page = await api.get("/v1/grants", { session_id: id, limit: 1_000 });
    grants = page.grants.filter((each) => !each.how);
    if (session) fill(facts, sessionFacts(session));
    fill(held, h("h2", {}, session ? "Holds" : "Held"), grantList(session ? grants : page.grants));
    fill(owned, h("h2", {}, "Ephemeral znodes"), znodeList(session?.ephemerals ?? []));
  }

  end.addEventListener("click", async () => {
    if (session && (await endSession(context, session, grants))) go("sessions");
  });
  await refresh();
  const refresher = new Refresher(refresh, { atLeastMs: 500 });
  const paths = [...new Set((session?.ephemerals ?? []).slice(0, 100))];
  if (paths.length)
    feed.follow(
      paths.map((path) => ({ path, kind: "znode" })),
      { onChange: () => refresher.soon(), onResync: () => refresher.soon() },
    );
  return { element, stop: () => refresher.stop() };
}

function sessionFacts(session) {
  return [
    h("h2", {}, session.label || "Without a label"),
    h(
      "dl",
      { class: "facts" },
      [
        ["Lease", duration(session.timeout_ms)],
        ["Opened", `${time(session.opened_ms)}, ${ago(session.opened_ms)}`],
        ["Address", session.address || "–"],
        ["Client id", h("span", { class: "mono" }, session.client_id || "–")],
        session.by && ["Opened by", session.by],
      ]
        .filter(Boolean)
        .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    ),
  ];
}

function grantList(grants) {
  if (!grants.length) return h("p", { class: "muted" }, "Nothing.");
  return h(
    "ul",
    { class: "plain" },
    grants
      .slice(0, 200)
      .map((each) =>
        h(
          "li",
          {},
          each.lock
            ? h("a", { class: "mono", href: `#/locks/${encodeURIComponent(each.lock)}` }, each.lock)
            : h("span", { class: "mono" }, `election ${each.election}`),
          h(
            "span",
            { class: "muted" },
            ` token ${each.fencing_token}, ${each.kind}, since ${time(each.granted_ms)}`,
          ),
        ),
      ),
  );
}

function znodeList(paths) {
  if (!paths.length) return h("p", { class: "muted" }, "None.");
  return h(
    "ul",
    { class: "plain" },
    paths
      .slice(0, 200)
      .map((path) =>
        h("li", {}, h("a", { class: "mono", href: `#/tree/${encodeURIComponent(path)}` }, path)),
      ),
    paths.length > 200 && h("li", { class: "muted" }, `and ${number(paths.length - 200)} more`),
  );
}
