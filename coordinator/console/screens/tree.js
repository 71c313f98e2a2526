// The tree: a znode with its data and Stat, and its children in a list of any length. Live.

import { dataView } from "../parts/data_view.js";
import { Paged } from "../parts/paged.js";
import { Refresher } from "../parts/refresher.js";
import { VirtualTable } from "../parts/table.js";
import { deleteZnode } from "../deeds.js";
import { inWords, znodeAddress } from "../shared/api.js";
import { fill, fillIfChanged, h } from "../shared/dom.js";
import { bytes, count, number, time } from "../shared/format.js";
import { announce } from "../shared/live.js";

const PAGE = 1_000;
const HISTORY_MAX = 100;

export async function treeScreen(context, given) {
  const { api, feed, rights, go } = context;
  const path = given.startsWith("/") ? given : `/${given}`;
  const [mayWrite, mayRead] = await Promise.all([
    rights.may("write", path),
    rights.may("read", path),
  ]);
  const changes = [];
  let znode = null;
  let prefix = "";
  const paged = new Paged(
    async (after) => {
      const query = {
        children: true,
        stat: true,
        limit: PAGE,
        after: after ?? (prefix ? before(prefix) : undefined),
      };
      const page = await api.get(znodeAddress(path), query);
      const isPast = (each) => prefix && !each.name.startsWith(prefix);
      const rows = page.children.filter((each) => !isPast(each));
      return { rows, next: rows.length < page.children.length ? null : page.next };
    },
    { max: 1_000_000 },
  );

  const deed = h("button", { class: "quiet harmful", type: "button", hidden: true }, "Delete…");
  const facts = h("section", { class: "card" });
  const data = h("section", { class: "card" });
  const history = h("section", { class: "card" });
  const said = h("p", { class: "muted", role: "status" });
  const filter = h("input", {
    type: "search",
    id: "child-filter",
    placeholder: "Name begins with",
    autocomplete: "off",
  });
  const child = (name) => (path === "/" ? `/${name}` : `${path}/${name}`);
  const table = new VirtualTable({
    label: `Children of ${path}`,
    key: (row) => row.name,
    onOpen: (row) => go("tree", child(row.name)),
    onEnd: () => !paged.isWhole && paged.more().then((isMore) => isMore && showChildren(), failed),
    empty: "It has no children.",
    columns: [
      {
        title: "Name",
        className: "name grow",
        cell: (row) =>
          h(
            "a",
            {
              href: `#/tree/${encodeURIComponent(child(row.name))}`,
              class: "mono",
              "data-focus": "name",
            },
            row.name,
          ),
      },
      { title: "Children", className: "number", cell: (row) => number(row.stat.num_children) },
      { title: "Data", className: "number", cell: (row) => bytes(row.stat.data_length) },
      { title: "Version", className: "number wide", cell: (row) => number(row.stat.version) },
      { title: "Mode", className: "wide", cell: (row) => row.stat.mode },
      { title: "Changed", className: "number wider", cell: (row) => time(row.stat.mtime_ms) },
    ],
  });
  const failed = (error) => announce(inWords(error), { isTrouble: true });

  function showChildren() {
    const total = znode?.stat.num_children ?? paged.rows.length;
    fill(
      said,
      prefix
        ? `${count(paged.rows.length, "child", "children")} ` +
            `${paged.isWhole ? "" : "read so far "}whose name begins with ${prefix}.`
        : count(total, "child", "children") +
            (paged.isWhole || !total
              ? "."
              : `, ${number(paged.rows.length)} read; scroll for more.`),
    );
    table.show(paged.rows, { total: prefix || paged.isWhole ? null : total });
  }

  async function readChildren() {
    const wanted = Math.max(1, Math.ceil(paged.rows.length / PAGE));
    paged.reset();
    for (let page = 0; page < Math.min(wanted, 5); page += 1) if (!(await paged.more())) break;
    showChildren();
  }

  async function refresh() {
    if (mayRead) {
      try {
        znode = await api.get(znodeAddress(path));
      } catch (error) {
        if (error.status !== 404) throw error;
        znode = null;
        fill(facts, h("p", {}, inWords(error)));
        fill(data);
        deed.hidden = true;
      }
    }
    if (znode) {
      fillIfChanged(facts, znode.stat, h("h2", {}, "Stat"), statOf(znode.stat));
      fillIfChanged(data, [znode.stat.mzxid], h("h2", {}, "Data"), dataView(znode));
      deed.hidden = !mayWrite || path === "/";
    }
    fillIfChanged(history, changes.length, h("h2", {}, "What happened here"), historyOf(changes));
  }

  deed.addEventListener("click", async () => {
    if (await deleteZnode(context, path, znode.stat)) go("tree", parentOf(path));
  });
  filter.addEventListener("input", () => {
    prefix = filter.value.trim();
    paged.reset();
    paged.more().then(showChildren, failed);
  });
  await refresh();
  await paged.more().catch(() => {});
  showChildren();
  const begun = znode ? Math.max(znode.stat.mzxid, znode.stat.pzxid) : 0;
  const refresher = new Refresher(
    async () => {
      await refresh();
      if (znode) await readChildren();
    },
    { atLeastMs: 800 },
  );
  feed.follow(
    [
      { path, kind: "znode" },
      { path, kind: "children" },
    ],
    {
      from: znode && znode.stat.czxid > 0 ? znode.stat.czxid - 1 : undefined,
      onChange: (change) => {
        for (const each of change.events)
          changes.push({ ...each, zxid: change.zxid, at: change.zxid > begun ? Date.now() : 0 });
        changes.splice(0, Math.max(0, changes.length - HISTORY_MAX));
        refresher.soon();
      },
      onResync: () => refresher.soon(),
    },
  );
  const element = h(
    "div",
    { class: "screen" },
    crumbs(path),
    h("div", { class: "head" }, h("h1", { class: "mono" }, path), deed),
    h(
      "div",
      { class: "main-and-aside" },
      h(
        "div",
        { class: "screen" },
        data,
        h(
          "div",
          { class: "head" },
          h("h2", {}, "Children"),
          h(
            "div",
            { class: "filter" },
            h("label", { class: "visually-hidden", for: "child-filter" }, "Name begins with"),
            filter,
          ),
        ),
        said,
        table.element,
      ),
      h("div", { class: "screen" }, facts, history),
    ),
  );
  return { element, stop: () => refresher.stop() };
}

function crumbs(path) {
  const names = path === "/" ? [] : path.slice(1).split("/");
  return h(
    "nav",
    { class: "crumbs", "aria-label": "Where this is" },
    h("a", { href: "#/tree" }, "Tree"),
    " ",
    names.slice(0, -1).map((name, index) => [
      "/ ",
      h(
        "a",
        {
          class: "mono",
          href: `#/tree/${encodeURIComponent(`/${names.slice(0, index + 1).join("/")}`)}`,
        },
        name,
      ),
      " ",
    ]),
  );
}

function statOf(stat) {
  const times = new Set(["ctime_ms", "mtime_ms"]);
  return h(
    "dl",
    { class: "facts" },
    Object.entries(stat)
      .filter(([, value]) => value !== null)
      .map(([name, value]) => [
        h("dt", {}, h("code", {}, name)),
        h(
          "dd",
          {},
          times.has(name)
            ? `${time(value)} (${value})`
            : name === "ephemeral_owner"
              ? h("a", { class: "mono", href: `#/sessions/${value}` }, value)
              : String(value),
        ),
      ]),
  );
}

function historyOf(changes) {
  if (!changes.length)
    return h(
      "p",
      { class: "muted" },
      "Nothing that is still kept: a member remembers its latest changes, not what each znode was.",
    );
  return h(
    "ol",
    { class: "plain" },
    changes
      .slice()
      .reverse()
      .map((each) =>
        h(
          "li",
          {},
          h("span", { class: "muted" }, `${each.at ? `${time(each.at)} ` : ""}zxid ${each.zxid} `),
          each.type.replace("Node", ""),
          " ",
          h("span", { class: "mono" }, each.path),
          ` version ${each.version}`,
        ),
      ),
  );
}

function parentOf(path) {
  return path.slice(0, path.lastIndexOf("/")) || "/";
}

/** A name right before all that begin with `prefix`, in the order of names. */
function before(prefix) {
  const last = prefix.codePointAt(prefix.length - 1);
  return prefix.slice(0, -1) + (last > 0x21 ? `${String.fromCodePoint(last - 1)}\u{10fffd}` : "");
}
