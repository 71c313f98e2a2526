// Who waits for whom: parties (a session's owner) and locks, drawn from left to right.
//
// A party that waits points to the lock, the lock to who holds it. What a cycle would be is drawn
// in red. The same is said in a list, for who does not see the drawing.

import { h, scrolls, svg } from "../shared/dom.js";
import { nameOf, who } from "./who.js";

const WIDE = 190;
const HIGH = 46;
const GAP_X = 96;
const GAP_Y = 18;
let drawings = 0;

/** Return {nodes, edges} of lock views: nodes by id with {kind, name, lock}, edges {from, to}. */
export function waitGraph(views) {
  const nodes = new Map();
  const edges = [];
  const node = (id, kind, name, lock = "", short = name) => {
    if (!nodes.has(id)) nodes.set(id, { id, kind, name, short, lock, column: 0 });
    return id;
  };
  for (const view of views) {
    const lock = node(`lock ${view.lock}`, "lock", view.lock, view.lock);
    for (const each of view.holders)
      edges.push({
        from: lock,
        to: node(partyOf(each), "party", who(each), "", nameOf(each)),
        is: "held by",
      });
    for (const each of view.queue)
      edges.push({
        from: node(partyOf(each), "party", who(each), "", nameOf(each)),
        to: lock,
        is: "waits for",
      });
  }
  arrange(nodes, edges);
  return { nodes: [...nodes.values()], edges };
}

function partyOf(contender) {
  if (contender.owner && contender.session_id)
    return `party ${contender.session_id} ${contender.owner}`;
  return `party ${contender.path || contender.grant_id}`;
}

/** Put each node right of all that point to it; a cycle is cut where it is met again. */
function arrange(nodes, edges) {
  const out = new Map([...nodes.keys()].map((id) => [id, []]));
  for (const edge of edges) out.get(edge.from).push(edge.to);
  const pointedTo = new Set(edges.map((edge) => edge.to));
  const visit = (id, column, path) => {
    const found = nodes.get(id);
    if (path.has(id) || path.size > 40) return;
    if (column < found.column && found.isPlaced) return;
    found.column = Math.max(found.column, column);
    found.isPlaced = true;
    path.add(id);
    for (const to of out.get(id))
      if (!nodes.get(to).isPlaced || nodes.get(to).column <= column) visit(to, column + 1, path);
    path.delete(id);
  };
  for (const id of nodes.keys()) if (!pointedTo.has(id)) visit(id, 0, new Set());
  for (const id of nodes.keys()) if (!nodes.get(id).isPlaced) visit(id, 0, new Set());
  const counts = new Map();
  for (const each of nodes.values()) {
    each.row = counts.get(each.column) ?? 0;
    counts.set(each.column, each.row + 1);
  }
  const most = Math.max(...counts.values(), 1);
  for (const each of nodes.values()) {
    each.x = 8 + each.column * (WIDE + GAP_X);
    each.y = 8 + (each.row + (most - counts.get(each.column)) / 2) * (HIGH + GAP_Y);
  }
}

/** Return the drawing; `bad` are edges of a cycle, as "from>to". */
export function drawGraph(
  { nodes, edges },
  { bad = new Set(), onLock = null, label = "Who waits for whom" } = {},
) {
  if (!nodes.length) return h("p", { class: "muted" }, "Nobody waits for a lock.");
  drawings += 1;
  const arrow = `arrow${drawings}`;
  const at = new Map(nodes.map((each) => [each.id, each]));
  const width = Math.max(...nodes.map((each) => each.x)) + WIDE + 8;
  const height = Math.max(...nodes.map((each) => each.y)) + HIGH + 40;
  const drawing = svg(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-label": `${label}; the list below says the same`,
    },
    svg(
      "defs",
      {},
      ["", "bad"].map((kind) =>
        svg(
          "marker",
          {
            id: `${arrow}${kind}`,
            viewBox: "0 0 8 8",
            refX: 7,
            refY: 4,
            markerWidth: 10,
            markerHeight: 10,
            markerUnits: "userSpaceOnUse",
            orient: "auto",
            class: `arrow-head ${kind}`,
          },
          svg("path", { d: "M0 0 8 4 0 8z" }),
        ),
      ),
    ),
    edges.map((edge) => {
      const kind = bad.has(`${edge.from}>${edge.to}`) ? "bad" : "";
      return svg("path", {
        d: curve(at.get(edge.from), at.get(edge.to)),
        class: `edge ${edge.is === "waits for" ? "waits" : ""} ${kind}`,
        "marker-end": `url(#${arrow}${kind})`,
      });
    }),
    nodes.map((each) =>
      svg(
        "g",
        {
          class: `node ${each.kind}`,
          transform: `translate(${each.x} ${each.y})`,
          onclick: each.lock && onLock ? () => onLock(each.lock) : undefined,
        },
        svg("rect", { width: WIDE, height: HIGH, rx: each.kind === "lock" ? 6 : 23 }),
        svg("title", {}, each.name),
        svg(
          "text",
          { x: WIDE / 2, y: 19, class: "node-kind" },
          each.kind === "lock" ? "lock" : "client",
        ),
        svg("text", { x: WIDE / 2, y: 36 }, fitting(each)),
      ),
    ),
  );
  return h(
    "div",
    {},
    h("div", scrolls("Wait-for graph", "graph"), drawing),
    asList({ edges }, at, onLock),
  );
}

function asList({ edges }, at, onLock) {
  const lines = edges
    .filter((each) => each.is === "waits for")
    .map((edge) => {
      const holders = edges
        .filter((each) => each.from === edge.to)
        .map((each) => at.get(each.to).name);
      const lock = at.get(edge.to).lock;
      return h(
        "li",
        {},
        `${at.get(edge.from).name} waits for `,
        onLock ? h("a", { href: `#/locks/${encodeURIComponent(lock)}` }, lock) : lock,
        holders.length
          ? `, held by ${holders.join(" and ")}.`
          : ", which nobody holds at this moment.",
      );
    });
  return h(
    "ul",
    { class: "wait-list" },
    lines.slice(0, 50),
    lines.length > 50 && h("li", {}, `and ${lines.length - 50} more`),
  );
}

function fitting({ name, short = name }) {
  return short.length > 24 ? `${short.slice(0, 23)}…` : short;
}

/** Return the views that hang together with the lock `name`: it waits for them, or they for it. */
export function connected(views, name) {
  const found = new Set([name]);
  for (let before = 0; before !== found.size;) {
    before = found.size;
    const parties = new Set(
      views
        .filter((each) => found.has(each.lock))
        .flatMap((each) => [...each.holders, ...each.queue].map(partyOf)),
    );
    for (const each of views)
      if ([...each.holders, ...each.queue].some((one) => parties.has(partyOf(one))))
        found.add(each.lock);
  }
  return views.filter((each) => found.has(each.lock));
}

function curve(from, to) {
  const forward = to.x > from.x;
  const [x1, y1] = [from.x + (forward ? WIDE : WIDE / 2), from.y + (forward ? HIGH / 2 : HIGH)];
  const [x2, y2] = [to.x + (forward ? 0 : WIDE / 2), to.y + (forward ? HIGH / 2 : HIGH)];
  if (!forward) return `M${x1} ${y1} C${x1} ${y1 + 44} ${x2} ${y2 + 44} ${x2} ${y2 + 2}`;
  const bend = (x2 - x1) / 2;
  return `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 2} ${y2}`;
}
