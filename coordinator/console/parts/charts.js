// Small drawings: a histogram, a time line of leaders. Each has its numbers in words as well.

import { h, svg } from "../shared/dom.js";
import { count, duration, time } from "../shared/format.js";

const EDGES = [1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000];

/** Return a histogram of lengths in ms, on a logarithmic scale. */
export function histogram(title, lengths) {
  if (!lengths.length) return h("p", { class: "muted" }, `${title}: nothing has ended yet.`);
  const bins = new Array(EDGES.length + 1).fill(0);
  for (const each of lengths) {
    const at = EDGES.findIndex((edge) => each < edge);
    bins[at < 0 ? EDGES.length : at] += 1;
  }
  const first = bins.findIndex(Boolean);
  const last = bins.findLastIndex(Boolean);
  const shown = bins.slice(first, last + 1);
  const most = Math.max(...shown);
  const said = shown.map((value, index) => `${value} ${binName(first + index)}`).join(", ");
  return h(
    "figure",
    { class: "histogram" },
    h("figcaption", {}, title),
    h(
      "div",
      { class: "bins", role: "img", "aria-label": `${title}: ${said}` },
      shown.map((value, index) =>
        h(
          "div",
          { class: "bin" },
          h("span", { class: "bin-count" }, value || ""),
          h("span", {
            class: "bin-bar",
            style: { height: `${Math.max(value ? 3 : 0, (72 * value) / most)}px` },
          }),
          h("span", { class: "bin-name" }, edgeName(first + index)),
        ),
      ),
    ),
  );
}

function edgeName(bin) {
  return bin < EDGES.length ? `<${short(EDGES[bin])}` : `≥${short(EDGES.at(-1))}`;
}

function binName(bin) {
  return bin < EDGES.length ? `under ${short(EDGES[bin])}` : `of ${short(EDGES.at(-1))} or more`;
}

function short(ms) {
  if (ms < 1_000) return `${ms}ms`;
  return ms < 60_000 ? `${ms / 1_000}s` : `${Math.round(ms / 60_000)}m`;
}

/**
 * Return who led when: `changes` are {at_ms, leader_id, term} in order. Members keep one colour.
 */
export function leaderLine(changes, members, nowMs) {
  if (!changes.length)
    return h("p", { class: "muted" }, "No election was noticed since the members started.");
  const begin = changes[0].at_ms;
  const whole = Math.max(1, nowMs - begin);
  const parts = changes.map((each, index) => ({
    ...each,
    until: changes[index + 1]?.at_ms ?? nowMs,
  }));
  const led = new Set(changes.map((each) => each.term)).size;
  const hue = (id) => `h${(members.indexOf(id) % 5) + 1}`;
  const bar = svg(
    "svg",
    {
      class: "leaders",
      viewBox: "0 0 1000 44",
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": `${count(led, "term")} since ${time(begin)}`,
    },
    parts.map((each) =>
      svg(
        "rect",
        {
          x: (1000 * (each.at_ms - begin)) / whole,
          y: 0,
          height: 44,
          width: Math.max(1.5, (1000 * (each.until - each.at_ms)) / whole),
          class: each.leader_id === null ? "nobody" : hue(each.leader_id),
        },
        svg(
          "title",
          {},
          `${each.leader_id === null ? "no leader" : `member ${each.leader_id}`}, term ` +
            `${each.term}, ${duration(each.until - each.at_ms)}`,
        ),
      ),
    ),
  );
  return h(
    "div",
    {},
    h("div", { class: "leader-bar" }, bar),
    h("div", { class: "ends muted" }, h("span", {}, time(begin)), h("span", {}, "now")),
    h(
      "ol",
      { class: "terms" },
      parts
        .slice(-8)
        .reverse()
        .map((each) =>
          h(
            "li",
            {},
            h("span", {
              class: `key ${each.leader_id === null ? "nobody" : hue(each.leader_id)}`,
              "aria-hidden": "true",
            }),
            h("span", {}, time(each.at_ms)),
            h("span", {}, each.leader_id === null ? "no leader" : `member ${each.leader_id} leads`),
            h(
              "span",
              { class: "muted" },
              `term ${each.term}, ${each === parts.at(-1) ? "since" : "for"} ` +
                `${duration(each.until - each.at_ms)}`,
            ),
          ),
        ),
    ),
  );
}
