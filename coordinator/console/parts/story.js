// The story of a lock on a time line: each grant a row, its wait a thin line, its hold a bar.

import { h, scrolls } from "../shared/dom.js";
import { count, duration, time } from "../shared/format.js";
import { HOW, kindOf, nameOf, who } from "./who.js";

const SHOWN_MAX = 40;
const GAP_MS_MIN = 100;

/** Return the latest grants, the newest first; `grants` are the oldest first. */
export function story(grants, nowMs) {
  if (!grants.length) return h("p", { class: "muted" }, "The history has no grant of it.");
  const shown = grants.slice(-SHOWN_MAX);
  const begin = Math.min(...shown.map((each) => each.entered_ms));
  const end = Math.max(nowMs, ...shown.map((each) => each.ended_ms ?? 0));
  const at = (ms) => `${(100 * (ms - begin)) / Math.max(1, end - begin)}%`;
  const wide = (from, to) =>
    `${Math.max(0.4, (100 * Math.max(0, to - from)) / Math.max(1, end - begin))}%`;
  return h(
    "div",
    {},
    h(
      "p",
      { class: "legend" },
      [
        ["wait", "waits"],
        ["held", "holds"],
        ["released", "given back"],
        ["lost", "lost"],
        ["closed", "held by nobody after a loss"],
      ].map(([kind, text]) =>
        h("span", {}, h("span", { class: `key ${kind}`, "aria-hidden": "true" }), text),
      ),
      h(
        "span",
        { class: "muted" },
        `${time(begin)} to ${time(end)}; the latest ${shown.length} of ` +
          `${count(grants.length, "grant")}`,
      ),
    ),
    h(
      "div",
      scrolls("Story of the lock"),
      h(
        "table",
        { class: "story", "aria-label": "Grants, the newest first" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            [
              ["Token"],
              ["Who"],
              ["Granted", "wide"],
              ["Waited", "wide"],
              ["Held"],
              ["How it ended"],
              ["Time line", "line"],
            ].map(([each, kind]) => h("th", { scope: "col", class: kind }, each)),
          ),
        ),
        h(
          "tbody",
          {},
          shown.reverse().map((each, index) => row(each, shown[index - 1], { at, wide, nowMs })),
        ),
      ),
    ),
  );
}

function row(grant, next, { at, wide, nowMs }) {
  const ended = grant.ended_ms ?? nowMs;
  const kind = kindOf(grant.how);
  const gap = kind === "lost" && next ? Math.max(0, next.granted_ms - ended) : 0;
  return h(
    "tr",
    {},
    h("td", { class: "mono" }, grant.fencing_token),
    h("td", { title: who(grant) }, nameOf(grant)),
    h("td", { class: "wide" }, time(grant.granted_ms)),
    h("td", { class: "wide" }, duration(Math.max(0, grant.granted_ms - grant.entered_ms))),
    h("td", {}, duration(Math.max(0, ended - grant.granted_ms))),
    h(
      "td",
      {},
      h(
        "span",
        { class: `mark ${{ held: "accent", lost: "bad", released: "" }[kind]}` },
        HOW[grant.how] ?? grant.how,
      ),
      why(grant),
      afterLoss(grant, next, gap),
    ),
    h(
      "td",
      { class: "line" },
      h(
        "div",
        { class: "track", "aria-hidden": "true" },
        h("span", {
          class: "wait",
          style: { left: at(grant.entered_ms), width: wide(grant.entered_ms, grant.granted_ms) },
        }),
        h("span", {
          class: `hold ${kind}`,
          style: { left: at(grant.granted_ms), width: wide(grant.granted_ms, ended) },
        }),
        gap > 0 &&
          h("span", {
            class: "closed",
            style: { left: at(ended), width: wide(ended, ended + gap) },
          }),
      ),
    ),
  );
}

/** Say how long nobody held it after a loss: closed by its lock-delay if one waited already. */
function afterLoss(grant, next, gap) {
  if (gap < GAP_MS_MIN) return null;
  const isDelay = next.entered_ms <= grant.ended_ms && !next.group?.length;
  const said = isDelay ? "closed" : "free";
  const by = isDelay ? " by its lock-delay" : "";
  return h("span", { class: "muted" }, `; then ${said} for ${duration(gap)}${by}`);
}

function why(grant) {
  const said = [
    grant.by && `by ${grant.by}`,
    grant.reason,
    grant.how === "expired" && `silent for ${duration(grant.silent_ms)}`,
    grant.term > 0 && `term ${grant.term}`,
  ].filter(Boolean);
  return said.length > 0 && h("span", { class: "muted" }, ` ${said.join(", ")}`);
}
