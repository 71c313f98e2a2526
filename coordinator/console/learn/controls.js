// The controls of a player, its question, and the log of what happened; by mouse and by keyboard.

import { fill, h } from "/console/shared/dom.js";
import { stateView } from "./state_view.js";

const LOG_LINES_MAX = 200;
const SPEEDS = [0.5, 1, 2, 4];

/** Return the element of a player: stage, controls, question, log. */
export function playerView(player, { isLive = () => false } = {}) {
  const stage = h("div", { class: "stage" });
  const title = h("h2", {}, "");
  const source = h("p", { class: "muted source" });
  const question = h("div", { class: "question", role: "group", "aria-live": "polite" });
  const verdict = h("p", { class: "verdict", role: "status" });
  const log = h("ol", {});
  // A list that is a log is no list to a screen reader any more, so the log is around it.
  const logView = h(
    "div",
    { class: "log", role: "log", "aria-label": "What happened", tabindex: "0" },
    log,
  );
  // The name begins with what is drawn, so that who says it aloud reaches the button.
  const button = (name, label, act) =>
    h("button", { type: "button", onclick: act, title: label, "aria-label": label }, name);
  const play = button("Play", "Play or pause (space)", () => toggle(player));
  const restart = button("Restart", "Restart from the beginning (Home)", () => (player.pause(),
    player.goTo(0)));
  const back = button("◀ Step", "One step back (left arrow)", () => player.back());
  const forward = button("Step ▶", "One step forward (right arrow)", () => player.forward());
  const follow = button("● Live", "Follow what happens now", () => player.follow());
  const place = h("input", {
    type: "range", min: "0", max: "1", value: "0", "aria-label": "Place in the film",
      class: "place",
    oninput: () => (player.pause(), player.goTo(Number(place.value))),
  });
  const speed = h(
    "select",
    { "aria-label": "Speed", class: "speed", onchange: () => (player.speed = Number(speed.value)) },
    SPEEDS.map((each) => h("option", { value: String(each), selected: each === 1 }, `${each}×`)),
  );
  const at = h("span", { class: "muted at" });
  const shown = { count: -1, film: null };

  player.onChange((_, guessed) => {
    const { film } = player;
    if (!film) return;
    title.textContent = film.title;
    source.textContent = film.source;
    play.textContent = player.isPlaying ? "Pause" : "Play";
    play.classList.toggle("primary", !player.isPlaying && !player.isFollowing);
    follow.hidden = !isLive();
    follow.classList.toggle("primary", player.isFollowing);
    back.disabled = restart.disabled = player.count === 0;
    forward.disabled = player.count >= film.steps.length;
    place.max = String(film.steps.length);
    place.value = String(player.count);
    const last = film.steps[player.count - 1];
    at.textContent = `${((last?.at_ms ?? 0) / 1000).toFixed(1)} s`;
    if (shown.count !== player.count || shown.film !== film) stateView(stage, player.state);
    showLog(log, player, shown);
    Object.assign(shown, { count: player.count, film });
    showQuestion(question, player);
    if (guessed) {
      const text = guessed.isRight ? "Right." : `Not so: ${guessed.right}.`;
      verdict.className = guessed.isRight ? "verdict good" : "verdict bad";
      verdict.textContent = `${text} ${guessed.why}`;
    } else if (player.question || player.count <= 1) verdict.textContent = "";
  });

  return h(
    "section",
    { class: "player", "aria-label": "Player" },
    h("div", { class: "player-head" }, title, source),
    stage,
    h("div", { class: "controls" }, restart, back, play, forward, speed, follow, place, at),
    question,
    verdict,
    logView,
  );
}

/** Play or pause by space, step by arrows, unless something that takes keys has the focus. */
export function playerKeys(player) {
  document.addEventListener("keydown", (event) => {
    if (!player.film || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.target.closest("input, select, textarea, dialog, summary")) return;
    const isOnButton = event.target.closest("button, a");
    const act = {
      " ": isOnButton ? null : () => toggle(player),
      ArrowLeft: () => player.back(),
      ArrowRight: () => player.forward(),
      Home: () => (player.pause(), player.goTo(0)),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

function toggle(player) {
  if (player.isPlaying) player.pause();
  else player.play();
}

function showQuestion(element, player) {
  const asked = player.question?.ask;
  if (!asked) {
    fill(element);
    delete element.dataset.asked;
    return;
  }
  if (element.dataset.asked === asked.text) return;
  element.dataset.asked = asked.text;
  fill(
    element,
    h("h3", {}, "Guess first"),
    h("p", {}, player.question.text),
    h("p", {}, h("strong", {}, asked.text)),
    h(
      "div",
      { class: "answers" },
      asked.answers.map((text, index) =>
        h("button", { type: "button", onclick: () => player.answer(index) }, text),
      ),
    ),
  );
}

function showLog(log, player, shown) {
  const { steps } = player.film;
  const isMore = shown.film === player.film && player.count > shown.count && shown.count >= 0;
  const from = isMore ? shown.count : 0;
  const lines = [];
  for (let at = from; at < player.count; at += 1) if (steps[at].text) lines.push(line(steps[at]));
  if (isMore) log.append(...lines);
  else log.replaceChildren(...lines.slice(-LOG_LINES_MAX));
  while (log.childElementCount > LOG_LINES_MAX) log.firstElementChild.remove();
  for (const each of log.querySelectorAll("[aria-current]")) each.removeAttribute("aria-current");
  log.lastElementChild?.setAttribute("aria-current", "step");
  log.parentElement.scrollTop = log.parentElement.scrollHeight;
}

function line(step) {
  return h(
    "li",
    { class: step.who === "lesson" || step.who === "guess" ? "lesson" : "" },
    h("span", { class: "at" }, `${(step.at_ms / 1000).toFixed(2)} s`),
    h("span", { class: "zxid" }, step.zxid === undefined ? "" : `zxid ${step.zxid}`),
    h("span", {}, isSaid(step.who) ? `${step.who}: ${step.text}` : step.text),
  );
}

/** Whether the speaker is more than the actor that the sentence names already. */
function isSaid(who) {
  return ["Kleppmann", "antirez", "ours", "outcome"].includes(who) || /^Red/.test(who || "");
}
