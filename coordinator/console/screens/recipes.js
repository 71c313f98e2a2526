// What runs where: elections, jobs, queues, services. Each kind is a section, read from the znodes
// of its recipe (docs/recipes.md); a new kind is one more line in SECTIONS.

import { Refresher } from "../parts/refresher.js";
import { inWords, Problem } from "../shared/api.js";
import { childrenOf } from "../parts/znodes.js";
import { electionSection } from "./sections/elections.js";
import { jobSection } from "./sections/jobs.js";
import { queueSection } from "./sections/queues.js";
import { serviceSection } from "./sections/services.js";
import { fillIfChanged, h } from "../shared/dom.js";

const SECTIONS = [
  {
    title: "Elections",
    root: "/elections",
    make: electionSection,
    empty: "No election has a candidate.",
  },
  { title: "Jobs", root: "/schedules/jobs", make: jobSection, empty: "No job has run here." },
  { title: "Queues", root: "/queues", make: queueSection, empty: "There is no queue." },
  {
    title: "Services",
    root: "/groups",
    make: serviceSection,
    empty: "Nobody is registered in a group.",
  },
];

/** Say so in the one section: what a client wrote there is no reason to hide the others. */
function unreadable(error) {
  if (error instanceof Problem) throw error;
  const text = `It cannot be read: ${inWords(error)}`;
  return { mark: text, content: h("p", { class: "problem" }, text) };
}

export async function recipesScreen({ api, feed }) {
  const places = SECTIONS.map(() => h("section", { class: "card" }));
  const stale = new Set(SECTIONS);

  async function refresh() {
    const now = [...stale];
    stale.clear();
    await Promise.all(
      now.map(async (section) => {
        const found = await childrenOf(api, section.root);
        const { mark, content } = await section.make(api, found, section.root).catch(unreadable);
        fillIfChanged(
          places[SECTIONS.indexOf(section)],
          mark,
          h("h2", {}, section.title),
          found.length && content ? content : h("p", { class: "muted" }, section.empty),
        );
      }),
    );
  }

  await refresh();
  const refresher = new Refresher(refresh, { atLeastMs: 1_000 });
  const touch = (path) => {
    for (const each of SECTIONS)
      if (!path || `${path}/`.startsWith(`${each.root}/`)) stale.add(each);
    if (stale.size) refresher.soon();
  };
  feed.follow(
    SECTIONS.map(({ root }) => ({ path: root, kind: "subtree" })),
    {
      onChange: ({ events }) => events.forEach((each) => touch(each.path)),
      onResync: () => touch(""),
    },
  );
  return {
    element: h(
      "div",
      { class: "screen" },
      h("h1", {}, "Services and jobs"),
      h("div", { class: "two" }, places),
    ),
    stop: () => refresher.stop(),
  };
}
