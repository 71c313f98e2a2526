// The player: plays a film, pauses, steps, and asks before it shows. A film that is still being
// recorded is followed; a question holds the picture, not the cluster.

import { change } from "./film.js";

const GAP_MS_MAX = 1_500;

export class Player {
  film = null;
  count = 0;
  state = Object.create(null);
  speed = 1;
  isPlaying = false;
  isFollowing = false;
  question = null;
  #answered = new Set();
  #timer = 0;
  #listeners = new Set();

  onChange(listener) {
    this.#listeners.add(listener);
  }

  /** Show a film from its beginning; `isLive`: follow it as it grows. */
  show(film, { isLive = false } = {}) {
    clearTimeout(this.#timer);
    Object.assign(this, { film, count: 0, isPlaying: false, isFollowing: isLive, question: null });
    this.state = Object.create(null);
    this.#answered.clear();
    if (isLive) this.arrived();
    else this.goTo(film.next(0));
  }

  /** Note that the film has grown. */
  arrived() {
    if (this.isFollowing) while (this.count < this.film.steps.length && this.#apply()) continue;
    this.#say();
  }

  play() {
    if (!this.film) return;
    this.isPlaying = true;
    if (this.count >= this.film.steps.length) this.#fold(0);
    this.#tick();
  }

  pause() {
    clearTimeout(this.#timer);
    this.isPlaying = false;
    this.isFollowing = false;
    this.#say();
  }

  forward() {
    this.pause();
    const end = this.film.next(this.count);
    while (this.count < end && this.#apply()) continue;
    this.#say();
  }

  back() {
    this.pause();
    this.goTo(this.film.previous(this.count));
  }

  /** Show the state after `count` steps. */
  goTo(count) {
    this.question = null;
    this.#fold(Math.max(0, Math.min(count, this.film.steps.length)));
    this.#say();
  }

  /** Follow what is being recorded, from now. */
  follow() {
    clearTimeout(this.#timer);
    this.isPlaying = false;
    this.isFollowing = true;
    this.arrived();
  }

  /** Guess; the step is shown, and whether the guess was right. */
  answer(index) {
    const asked = this.question;
    this.#answered.add(this.count);
    this.question = null;
    this.#apply();
    const isRight = asked.ask.right === index;
    this.#say({ isRight, why: asked.ask.why, right: asked.ask.answers[asked.ask.right] });
    if (this.isFollowing) this.arrived();
    else if (this.isPlaying) this.#tick();
  }

  /** Apply one step; false if a question comes first. */
  #apply() {
    const step = this.film.steps[this.count];
    if (step.ask && !this.#answered.has(this.count)) {
      this.question = step;
      return false;
    }
    change(this.state, step.set ?? []);
    this.count += 1;
    return true;
  }

  #fold(count) {
    this.state = this.film.state(count);
    this.count = count;
  }

  #tick() {
    clearTimeout(this.#timer);
    if (!this.isPlaying) return;
    const { steps } = this.film;
    if (this.count >= steps.length || !this.#apply()) {
      if (!this.question) this.isPlaying = false;
      this.#say();
      return;
    }
    this.#say();
    const here = steps[this.count - 1];
    const gap = this.count < steps.length ? steps[this.count].at_ms - here.at_ms : 0;
    const wait = Math.min(Math.max(gap, here.text ? 700 : 0), GAP_MS_MAX);
    this.#timer = setTimeout(() => this.#tick(), wait / this.speed);
  }

  #say(guessed = null) {
    for (const listener of this.#listeners) listener(this, guessed);
  }
}
