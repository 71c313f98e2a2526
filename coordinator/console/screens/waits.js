// Who waits for whom, over all locks that anybody waits for.

import { LOCKS_MAX, QUEUE_MAX, busyLocks, shortened } from "../parts/busy_locks.js";
import { Refresher } from "../parts/refresher.js";
import { drawGraph, waitGraph } from "../parts/wait_graph.js";
import { fill, fillIfChanged, h } from "../shared/dom.js";
import { count, time } from "../shared/format.js";

export async function waitsScreen({ api, feed, go }) {
  const said = h("p", { class: "muted", role: "status" });
  const graph = h("section", { class: "card" });
  const refused = h("section", { class: "card" });
  const element = h("div", { class: "screen" }, h("h1", {}, "Who waits"), said, graph, refused);

  async function refresh() {
    const busy = await busyLocks(api);
    const short = busy.map(shortened);
    fill(
      said,
      busy.total
        ? `${count(busy.total, "lock")} that anybody waits ` +
            "for" +
            (busy.total > LOCKS_MAX ? `; the ${LOCKS_MAX} with the longest queues are drawn` : "") +
            `, of each queue the first ${QUEUE_MAX}.`
        : "Nobody waits for a lock.",
    );
    fillIfChanged(
      graph,
      short.map((each) => [
        each.lock,
        each.holders.map((one) => one.grant_id),
        each.queue.map((one) => one.grant_id),
      ]),
      h("h2", {}, "Wait-for graph"),
      drawGraph(waitGraph(short), { onLock: (lock) => go("locks", lock) }),
    );
    await showRefused();
  }

  async function showRefused() {
    const { deadlocks } = await api.get("/v1/deadlocks");
    fillIfChanged(
      refused,
      deadlocks,
      h("h2", {}, "Refused deadlocks"),
      h(
        "p",
        { class: "muted" },
        "A request that would have closed a cycle is refused at once, so no deadlock ever " +
          "stands. These are the latest that this member has seen refused since it started.",
      ),
      deadlocks.length ? deadlocks.slice(-5).reverse().map(cycleOf) : h("p", {}, "None."),
    );
  }

  await refresh();
  const refresher = new Refresher(refresh, { atLeastMs: 1_500 });
  feed.follow([{ path: "/locks", kind: "subtree" }], {
    onChange: () => refresher.soon(),
    onResync: () => refresher.soon(),
  });
  return { element, stop: () => refresher.stop() };
}

/** Draw one cycle: all of it in red, the request that was refused among it. */
function cycleOf({ at_ms: at, message, cycle }) {
  const nodes = new Map();
  const edges = [];
  const add = (id, kind, name) => {
    if (!nodes.has(id)) nodes.set(id, { id, kind, name, lock: kind === "lock" ? name : "" });
  };
  cycle.forEach((step, index) => {
    const next =
      cycle.find((each) => each.holds === step.waits_for) ?? cycle[(index + 1) % cycle.length];
    const [party, lock, other] = [
      `party ${step.owner}`,
      `lock ${step.waits_for}`,
      `party ${next.owner}`,
    ];
    add(party, "party", step.owner);
    add(lock, "lock", step.waits_for);
    add(other, "party", next.owner);
    edges.push(
      { from: party, to: lock, is: "waits for" },
      { from: lock, to: other, is: "held by" },
    );
  });
  [...nodes.values()].forEach((each, index) => Object.assign(each, { x: 8 + index * 286, y: 8 }));
  const bad = new Set(edges.map((each) => `${each.from}>${each.to}`));
  return h(
    "div",
    { class: "refused" },
    h("p", {}, h("span", { class: "muted" }, `${time(at)} `), message),
    drawGraph({ nodes: [...nodes.values()], edges }, { bad, label: "The cycle that was refused" }),
  );
}
