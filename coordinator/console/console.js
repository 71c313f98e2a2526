// The console: which screen is shown, by the address behind the #.

import { Api, inWords } from "./shared/api.js";
import { fill, h } from "./shared/dom.js";
import { applyTheme, themeButton } from "./shared/theme.js";
import { Feed } from "./parts/feed.js";
import { Rights } from "./parts/rights.js";
import { signIn, whoButton } from "./parts/sign_in.js";
import { nameOf } from "./parts/znodes.js";
import { clusterScreen } from "./screens/cluster.js";
import { eventsScreen } from "./screens/events.js";
import { lockScreen } from "./screens/lock.js";
import { locksScreen } from "./screens/locks.js";
import { recipesScreen } from "./screens/recipes.js";
import { sessionScreen, sessionsScreen } from "./screens/sessions.js";
import { treeScreen } from "./screens/tree.js";
import { waitsScreen } from "./screens/waits.js";

const SCREENS = [
  ["cluster", "Cluster", clusterScreen],
  ["locks", "Locks", locksScreen, lockScreen],
  ["waits", "Who waits", waitsScreen],
  ["recipes", "Services and jobs", recipesScreen],
  ["sessions", "Sessions", sessionsScreen, sessionScreen],
  ["tree", "Tree", treeScreen, treeScreen],
  ["events", "Events", eventsScreen],
];

const main = document.getElementById("main");
const trouble = document.getElementById("trouble");
const api = new Api();
const feed = new Feed(api, document.getElementById("live"));
const rights = new Rights(api);
let shown = null;
let visit = 0;

/** Go to a screen: `go("locks", "daily-report")`. */
function go(screen, ...rest) {
  location.hash = `#/${[screen, ...rest.map(encodeURIComponent)].join("/")}`;
}

/** Show nothing more of what was read, in whose name it may have been. */
function leave() {
  visit += 1;
  shown?.stop?.();
  shown = null;
  feed.stop();
  fill(main);
}

async function show() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const found = SCREENS.find(([each]) => each === name) ?? SCREENS[0];
  const [id, title, list, one] = found;
  const parameter = nameOf(rest.join("/"));
  visit += 1;
  const mine = visit;
  shown?.stop?.();
  shown = null;
  feed.stop();
  for (const link of document.querySelectorAll("#screens a")) {
    if (link.dataset.screen === id) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${parameter || title} · coordinator`;
  const make = parameter && one ? one : list;
  // A screen that was left before it was read whole must not take the stream of the next one.
  const own = { follow: (...all) => (mine === visit ? feed.follow(...all) : undefined) };
  const context = { api, feed: own, rights, go };
  try {
    const screen = await make(context, parameter);
    if (mine !== visit) return screen.stop?.();
    shown = screen;
    fill(main, screen.element);
  } catch (error) {
    if (mine !== visit) return;
    fill(
      main,
      h("h1", { tabindex: "-1" }, title),
      h("p", { class: "problem", role: "alert" }, inWords(error)),
    );
  }
  main.dataset.screen = id;
  const heading = main.querySelector("h1");
  if (heading && mine > 1) {
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  }
  window.scrollTo(0, 0);
}

/** Say that the member does not answer, until it does. */
api.onAnswer((problem) => {
  const isGone = problem !== null && (problem.status === 0 || problem.status === 503);
  if (problem?.status === 401) askWho(problem);
  trouble.hidden = !isGone;
  if (isGone) fill(trouble, `${inWords(problem)} What is shown may be old; it is asked again.`);
});

let isAsking = false;

async function askWho(problem) {
  if (isAsking) return;
  isAsking = true;
  leave();
  await signIn(api, problem);
  isAsking = false;
  begin();
}

async function begin() {
  try {
    await rights.load();
  } catch (error) {
    if (error.status === 401) return;
  }
  whoButton(document.getElementById("who"), rights, () => {
    api.token = "";
    askWho(null);
  });
  show();
}

applyTheme();
themeButton(document.getElementById("theme"));
fill(
  document.getElementById("screens"),
  SCREENS.map(([id, title]) => h("li", {}, h("a", { href: `#/${id}`, "data-screen": id }, title))),
);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", show);
begin();
