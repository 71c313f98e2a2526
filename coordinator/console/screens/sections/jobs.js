// Jobs: the last run of each, who ran it, what it came to, and when the next one is (the ledger
// below /schedules/jobs).

import { childrenOf, each, jsonOf, nameOf } from "../../parts/znodes.js";
import { fill, h } from "../../shared/dom.js";
import { count, duration, time } from "../../shared/format.js";

const SHOWN_MAX = 50;
const DRAWN_MS = 5_000;
const KIND = { started: "accent", done: "good", failed: "bad" };

export async function jobSection(api, found, root) {
  const jobs = await each(found.slice(0, SHOWN_MAX), async ({ name }) => {
    const path = `${root}/${name}`;
    const [ledger, runs] = await Promise.all([jsonOf(api, path), childrenOf(api, path)]);
    const starts = runs
      .map((run) => run.name)
      .filter((run) => /^\d{1,15}$/.test(run))
      .sort((one, other) => other - one);
    return {
      name: nameOf(name),
      path,
      ledger,
      runs: runs.length,
      start: Number(starts[0]),
      run: starts.length ? await jsonOf(api, `${path}/${starts[0]}`) : null,
    };
  });
  const rows = jobs.map(({ name, path, ledger, runs, start, run }) =>
    h(
      "li",
      { class: "entry" },
      h(
        "p",
        {},
        h("a", { class: "mono", href: `#/tree/${encodeURIComponent(path)}` }, name),
        " ",
        run
          ? h("span", { class: `mark ${KIND[run.state] ?? ""}` }, run.state)
          : h("span", { class: "mark" }, "has not run"),
      ),
      run &&
        h(
          "p",
          { class: "muted" },
          `Interval ${time(start)}, by ${run.by}, attempt ` +
            `${run.attempt}${run.reason ? `: ${run.reason}` : ""}`,
        ),
      nextRun(ledger, run),
      h(
        "p",
        { class: "muted" },
        schedule(ledger),
        `${count(runs, "run")} remembered`,
        ledger?.skipped ? `, ${ledger.skipped} skipped` : "",
      ),
    ),
  );
  return { mark: jobs, content: rows.length ? h("ul", { class: "entries" }, rows) : null };
}

/** Say when the next interval begins, or since when it is due; that comes by itself. */
function nextRun(ledger, run) {
  const next = ledger?.next_ms;
  if (!Number.isSafeInteger(next) || next <= 0) return null;
  const element = h("p", {});
  const draw = () => {
    const left = next - Date.now();
    const isDue = left <= 0;
    const isLate = isDue && run?.state !== "started";
    const said = isDue
      ? `Due since ${time(next)}${isLate ? ", and nobody runs it" : ""}.`
      : `Next run at ${time(next)}, in ${duration(left)}.`;
    fill(element, isLate && [h("span", { class: "mark warn" }, "late"), " "], said);
    if (!isDue) setTimeout(() => element.isConnected && draw(), Math.min(left + 500, DRAWN_MS));
  };
  draw();
  return element;
}

function schedule(ledger) {
  const said = ledger?.schedule;
  if (!said) return "";
  return `${typeof said === "string" ? said : (said.text ?? said.cron ?? JSON.stringify(said))}; `;
}
