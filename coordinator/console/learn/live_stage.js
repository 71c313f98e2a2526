// The live stage of `coordinator learn`: its steps as they happen, and the deeds of a person.
//
// The key comes in the fragment of the address, is taken out of it at once, and is kept for this
// tab alone; it travels in a header alone.

import { Film } from "./film.js";

const KEY = "coordinator.learn.key";
const LIVE = "/learn/live";
const AGAIN_MS = 1_000;

/** Take the key out of the address, if there is one; return the story to begin with, or "". */
export function takeKey() {
  const found = /^#key=([\w-]+)(?:&play=([a-z-]+))?$/.exec(location.hash);
  if (!found) return "";
  sessionStorage.setItem(KEY, found[1]);
  history.replaceState(null, "", location.pathname);
  return found[2] ?? "";
}

function hasKey() {
  return Boolean(sessionStorage.getItem(KEY));
}

/** Return what the stage is, or null where there is none (a member serves this page). */
export async function describe() {
  if (!hasKey()) return null;
  try {
    const response = await asked("/stage");
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

/** Return the film that the page was opened with. */
export async function givenFilm() {
  return (await asked("/film")).json();
}

/** Do a deed; throws what was said if it was refused. */
export async function deed(body) {
  const response = await asked("/deeds", {
    method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" },
  });
  if (!response.ok) throw new Error((await response.json().catch(() => ({}))).detail ?? "refused");
}

/** Call `onRun(film)` for each run and `onSteps()` as it grows, for as long as the page is open. */
export async function follow(onRun, onSteps) {
  for (;;) {
    try {
      await readSteps(onRun, onSteps);
    } catch {
      // the stage has ended, or begins again
    }
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

async function readSteps(onRun, onSteps) {
  const response = await asked("/steps");
  if (!response.ok) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let film = null;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const text of lines) {
      if (!text.trim()) continue;
      const line = JSON.parse(text);
      if (line.run === undefined) film?.add(line);
      else onRun((film = new Film(line.title, line.source)));
    }
    onSteps();
  }
}

function asked(path, { headers = {}, ...rest } = {}) {
  const key = sessionStorage.getItem(KEY) ?? "";
  return fetch(LIVE + path, { ...rest, credentials: "omit", headers: { ...headers,
    "Learn-Key": key } });
}
