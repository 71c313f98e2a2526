// Which singleton runs where, since when, and who would be next.

import { each, nameOf } from "../../parts/znodes.js";
import { segment } from "../../shared/api.js";
import { h } from "../../shared/dom.js";
import { count, time } from "../../shared/format.js";

const SHOWN_MAX = 50;

export async function electionSection(api, found) {
  const views = await each(found.slice(0, SHOWN_MAX), ({ name }) =>
    api.get(`/v1/elections/${segment(nameOf(name))}`).catch(() => null),
  );
  const live = views.filter((view) => view && (view.elected || view.candidate_count));
  const rows = live.map(({ election, elected, candidate_count: others }) =>
    h(
      "li",
      { class: "entry" },
      h(
        "p",
        {},
        h("strong", { class: "mono" }, election),
        " ",
        elected
          ? h("span", { class: "mark good" }, elected.label || "elected")
          : h("span", { class: "mark warn" }, "nobody"),
      ),
      elected
        ? h(
            "p",
            { class: "muted" },
            elected.value
              ? [h("span", { class: "mono" }, String(elected.value).slice(0, 120)), ", "]
              : "",
            `epoch ${elected.epoch}, since ${time(elected.since_ms)}, `,
            elected.session_id && h("a", { href: `#/sessions/${elected.session_id}` }, "session"),
            `; ${count(others, "candidate")} behind it`,
          )
        : h("p", { class: "muted" }, `${count(others, "candidate")} wait.`),
    ),
  );
  const more = found.length - SHOWN_MAX;
  const content = rows.length
    ? h("ul", { class: "entries" }, rows, more > 0 && h("li", {}, `and ${more} more`))
    : null;
  return { mark: live.map((view) => [view.election, view.elected, view.candidate_count]), content };
}
