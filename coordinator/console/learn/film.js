// Films: what happened, step by step. The state after a step is that of all changes up to it, so
// one step back is one change less. A film is data of others: it is checked, and shown as
// text only.

const FORMAT = 1;
const STEPS_MAX = 20_000;
const RESERVED = new Set(["__proto__", "constructor", "prototype"]);

/** Return a film made of a document, or throw an Error that says what is wrong with it. */
export function filmOf(document) {
  if (document?.format !== FORMAT) throw new Error(`expected a film of format ${FORMAT}`);
  if (!Array.isArray(document.steps) || document.steps.length > STEPS_MAX) {
    throw new Error(`expected at most ${STEPS_MAX} steps`);
  }
  const film = new Film(String(document.title ?? ""), String(document.source ?? ""));
  for (const step of document.steps) film.add(step);
  return film;
}

export class Film {
  steps = [];

  constructor(title, source) {
    this.title = title;
    this.source = source;
  }

  /** Add a step where its time says; it comes late if its words needed a question. */
  add(step) {
    if (!Number.isFinite(step?.at_ms)) throw new Error("expected a step with at_ms");
    for (const change of step.set ?? []) {
      const isFine = Array.isArray(change) && Array.isArray(change[0]) && change[0].length > 0;
      if (!isFine || change[0].some((name) => RESERVED.has(String(name)))) {
        throw new Error("expected [path, value] in set");
      }
    }
    if (step.ask && !Array.isArray(step.ask.answers)) throw new Error("expected answers to ask");
    this.steps.push(step);
  }

  /** Return the state after the first `count` steps. */
  state(count) {
    const state = Object.create(null);
    for (let at = 0; at < count; at += 1) change(state, this.steps[at].set ?? []);
    return state;
  }

  /** Return how many steps there are up to the next one with a sentence, from `count` on. */
  next(count) {
    let at = count;
    while (at < this.steps.length && !this.steps[at].text) at += 1;
    return Math.min(at + 1, this.steps.length);
  }

  /** Return how many steps are left one sentence before `count`. */
  previous(count) {
    let at = count - 1;
    while (at > 0 && !this.steps[at].text) at -= 1;
    return Math.max(at, 0);
  }
}

/** Make changes in a state; null removes. */
export function change(state, changes) {
  for (const [path, value] of changes) {
    let place = state;
    for (const name of path.slice(0, -1)) {
      const below = place[name];
      const isBelow = below && typeof below === "object" && !Array.isArray(below);
      if (!isBelow) place[name] = Object.create(null);
      place = place[name];
    }
    const last = path[path.length - 1];
    if (value === null) delete place[last];
    else place[last] = structuredClone(value); // later changes are not made in the step
  }
}
