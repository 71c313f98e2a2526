// Jobs: the last run of each, who ran it, and what it came to (the ledger below /schedules/jobs).

import { childrenOf, each, jsonOf, nameOf } from "../../parts/znodes.js";
import { h } from "../../shared/dom.js";
import { count, time } from "../../shared/format.js";

const SHOWN_MAX = 50;
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

function schedule(ledger) {
  const said = ledger?.schedule;
  if (!said) return "";
  return `${typeof said === "string" ? said : (said.text ?? said.cron ?? JSON.stringify(said))}; `;
}
