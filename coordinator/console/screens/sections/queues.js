// Work queues: what waits, what is delivered, what is dead (below /queues/NAME).

import { each, nameOf, LISTED_MAX } from "../../parts/znodes.js";
import { znodeAddress } from "../../shared/api.js";
import { h, scrolls } from "../../shared/dom.js";
import { ago, number } from "../../shared/format.js";

export async function queueSection(api, found, root) {
  const queues = await each(found, async ({ name }) => {
    const path = `${root}/${name}`;
    const [items, dead] = await Promise.all([
      listed(api, `${path}/items`),
      listed(api, `${path}/dead`),
    ]);
    const oldest = Math.min(...items.children.map((item) => item.stat.ctime_ms));
    return {
      name: nameOf(name),
      path,
      items: items.count,
      dead: dead.count,
      delivered: items.children.filter((item) => item.stat.num_children).length,
      isPart: items.count > items.children.length,
      oldest: Number.isFinite(oldest) ? oldest : 0,
    };
  });
  const rows = queues.map((queue) =>
    h(
      "tr",
      {},
      h(
        "td",
        {},
        h("a", { class: "mono", href: `#/tree/${encodeURIComponent(queue.path)}` }, queue.name),
      ),
      h("td", { class: "number" }, number(queue.items)),
      h(
        "td",
        { class: "number", title: "Delivered to a worker, or hidden by a delay" },
        `${queue.isPart ? "≥ " : ""}${number(queue.delivered)}`,
      ),
      h(
        "td",
        { class: "number" },
        queue.dead ? h("span", { class: "mark bad" }, number(queue.dead)) : "0",
      ),
      h("td", {}, queue.oldest ? ago(queue.oldest) : "–"),
    ),
  );
  const content = rows.length
    ? h(
        "div",
        scrolls("Queues"),
        h(
          "table",
          { "aria-label": "Queues" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ["Queue", "Items", "Delivered", "Dead", "Oldest"].map((title, index) =>
                h("th", { scope: "col", class: index % 4 ? "number" : undefined }, title),
              ),
            ),
          ),
          h("tbody", {}, rows),
        ),
      )
    : null;
  return { mark: queues, content };
}

async function listed(api, path) {
  try {
    const [znode, page] = await Promise.all([
      api.get(znodeAddress(path)),
      api.get(znodeAddress(path), { children: true, stat: true, limit: LISTED_MAX }),
    ]);
    return { count: znode.stat.num_children, children: page.children };
  } catch (error) {
    if (error.status === 404 || error.status === 403) return { count: 0, children: [] };
    throw error;
  }
}
