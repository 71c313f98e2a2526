// The page: which lesson the address names, the player, and the live stage if there is one.

import { fill, h } from "/console/shared/dom.js";
import { announce } from "/console/shared/live.js";
import { applyTheme, themeButton } from "/console/shared/theme.js";
import { playerKeys, playerView } from "./controls.js";
import { deedsView } from "./deeds.js";
import { filmOf } from "./film.js";
import { LESSONS } from "./lessons.js";
import { deed, describe, follow, givenFilm, takeKey } from "./live_stage.js";
import { Player } from "./player.js";

const FILM_BYTES_MAX = 16 * 1024 * 1024;
const player = new Player();
let stage = null;
let liveFilm = null;
let isLiveShown = false;

applyTheme();
const first = takeKey();
themeButton(document.getElementById("theme"));
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});
const view = playerView(player, { isLive: () => isLiveShown });
playerKeys(player);
window.addEventListener("hashchange", route);
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  if (event.dataTransfer.files.length) openFile(event.dataTransfer.files[0]);
});
begin();

async function begin() {
  stage = await describe();
  if (stage?.has_stage) {
    follow(
      (film) => {
        liveFilm = film;
        if (isLiveShown) player.show(film, { isLive: true });
      },
      () => isLiveShown && player.arrived(),
    );
    if (first) play(first);
  }
  if (stage?.has_film) {
    const film = filmOf(await givenFilm());
    showPage("A film", [h("h1", {}, "A film"), opener()], false);
    player.show(film);
    return;
  }
  route();
}

/** Begin a story that the page was opened for. */
async function play(script) {
  try {
    await deed({ do: "play", script, is_fenced: true });
  } catch (error) {
    announce(error.message, { isTrouble: true });
  }
}

function route() {
  const id = location.hash.replace(/^#\/?/, "");
  const lesson = LESSONS.find((each) => each.id === id);
  if (lesson) showLesson(lesson);
  else if (id === "list") showCatalog();
  else if (id === "glossary") showGlossary();
  else if (id === "film") showPage("A film of your own", filmPage(), false);
  else showStart();
}

function showStart() {
  if (stage?.has_stage) {
    const open = [
      h("h1", {}, "Play it live"),
      h("p", {}, "Play a story, or open the stage and do it yourself: acquire as A, freeze A, " +
        "let A write (it will when it wakes), acquire as B, write as B. What does A's late " +
        "write do? What you see are the events of real members and real processes."),
      deedsView(stage, () => liveFilm),
    ];
    showPage("The stage", open, true);
    if (liveFilm) player.show(liveFilm, { isLive: true });
    return;
  }
  showPage("The freeze ray", [
    h("h1", {}, "What goes wrong with locks, and how it looks"),
    h("p", {}, "These are recordings of real clusters: the events, the zxids and the tokens are " +
      "true. To " +
      "freeze a client and to kill a leader yourself, run ", h("code", {}, "coordinator learn"),
      " on your machine; on a cluster of ", h("code", {}, "coordinator dev"), " the ",
      h("a", { href: "/console#/cluster" }, "console"), " has a button for it. It never plays on " +
      "a cluster for production."),
  ], false);
  load("freeze-ray");
}

function showLesson(lesson) {
  showPage(lesson.title, [
    h("h1", {}, lesson.title),
    h("p", { class: "learn-one" }, lesson.learn),
    lesson.text.map((each) => h("p", {}, each)),
    h("div", { class: "films", role: "group", "aria-label": "Films" }, lesson.films.map(([name,
      title], index) =>
      h("button", {
        type: "button", "aria-pressed": String(index === 0),
        onclick: (event) => {
          for (const each of event.target.parentElement.children) {
            each.setAttribute("aria-pressed", "false");
          }
          event.target.setAttribute("aria-pressed", "true");
          load(name);
        },
      }, title))),
  ], false, [
    h("div", { class: "code" }, code("Python", lesson.python), code("curl", lesson.curl)),
    h("p", {}, "By itself, on a cluster of its own: ", lesson.runs.map((name, index) => [
      index ? ", " : "", h("code", {}, `python -m examples ${name}`)])),
    nextLesson(lesson),
  ]);
  load(lesson.films[0][0]);
}

function nextLesson(lesson) {
  const next = LESSONS[LESSONS.indexOf(lesson) + 1];
  return next && h("p", {}, h("a", { class: "button", href: `#/${next.id}` },
    `Next: ${next.title}`));
}

function code(title, text) {
  return h("figure", {}, h("figcaption", {}, title), h("pre", { tabindex: "0" }, h("code", {},
    text)));
}

/** Put a page around the player; without `below` the player is the end of it. */
function showPage(title, above, isLive, below = []) {
  isLiveShown = isLive;
  document.title = `${title} · coordinator`;
  fill(document.getElementById("main"), above, isLive !== null && view, below);
  navigation();
  window.scrollTo(0, 0);
}

function navigation() {
  const here = location.hash.replace(/^#\/?/, "");
  const links = [["", "Stage"], ...LESSONS.map((each) => [each.id, each.title]),
    ["list", "All stories"], ["glossary", "Glossary"], ["film", "Open a film"]];
  fill(document.getElementById("nav"), links.map(([id, title]) =>
    h("a", { href: `#/${id}`, "aria-current": id === here ? "page" : null }, title)));
}

async function load(name) {
  try {
    const response = await fetch(`/learn/films/${name}.json`, { credentials: "omit" });
    if (!response.ok) throw new Error(`no film ${name}`);
    player.show(filmOf(await response.json()));
  } catch (error) {
    announce(`The film cannot be shown: ${error.message}`, { isTrouble: true });
  }
}

async function showCatalog() {
  const parts = await (await fetch("/learn/catalog.json", { credentials: "omit" })).json();
  let number = 0;
  showPage("All stories", [
    h("h1", {}, "All stories, in an order to read"),
    parts.map((part) => h("section", {}, h("h2", {}, part.part), h("ol",
      { start: String(number + 1), class: "stories" },
      part.stories.map((story) => ((number += 1), h("li", {},
        story.page && LESSONS.some((each) => each.id === story.page)
          ? h("a", { href: `#/${story.page}` }, story.title) : story.title,
        h("code", {}, story.runs))))))),
  ], null);
}

async function showGlossary() {
  const terms = await (await fetch("/learn/glossary.json", { credentials: "omit" })).json();
  showPage("Glossary", [
    h("h1", {}, "Glossary"),
    h("p", { class: "muted" }, "The terms of the articles, what we call them, and where they are " +
      "in our code."),
    h("dl", { class: "glossary" }, terms.map((each) => [
      h("dt", {}, each.term), h("dd", {}, each.says, " ", h("code", {}, each.place))])),
  ], null);
}

function filmPage() {
  return [
    h("h1", {}, "A film of your own"),
    h("p", {}, "Record any cluster, or the trace of a simulated world, with ",
      h("code", {}, "coordinator visualize"),
        ", and drop the file here. It stays in this browser."),
    opener(),
  ];
}

function opener() {
  const input = h("input", {
    type: "file", accept: ".json,application/json", "aria-label": "A film",
    onchange: () => input.files.length && openFile(input.files[0]),
  });
  return h("p", { class: "drop" }, "Drop a film here, or choose it: ", input);
}

async function openFile(file) {
  try {
    if (file.size > FILM_BYTES_MAX) throw new Error("expected at most 16 MiB");
    const film = filmOf(JSON.parse(await file.text()));
    showPage("A film", filmPage(), false);
    player.show(film);
  } catch (error) {
    announce(`This is no film: ${error.message}`, { isTrouble: true });
  }
}
