// When something is asked again: after a change, and as often as what is not in the tree needs.

/**
 * Call `work` now and then: `soon()` within `atLeastMs` of the last one, and by itself each
 * `everyMs` (0: never). One call at a time; not while the tab is hidden.
 */
export class Refresher {
  #timer = 0;
  #isRunning = false;
  #isWanted = false;
  #last = 0;
  #isStopped = false;

  constructor(work, { atLeastMs = 500, everyMs = 0 } = {}) {
    this.work = work;
    this.atLeastMs = atLeastMs;
    this.everyMs = everyMs;
    this.onVisible = () => !document.hidden && this.soon();
    document.addEventListener("visibilitychange", this.onVisible);
    this.#plan(everyMs);
  }

  soon() {
    if (this.#isStopped) return;
    this.#isWanted = true;
    if (!this.#isRunning) this.#plan(Math.max(0, this.#last + this.atLeastMs - performance.now()));
  }

  stop() {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.onVisible);
  }

  #plan(ms) {
    clearTimeout(this.#timer);
    if (this.#isStopped || (!ms && !this.#isWanted)) return;
    this.#timer = setTimeout(() => this.#run(), ms);
  }

  async #run() {
    if (document.hidden) return;
    this.#isRunning = true;
    this.#isWanted = false;
    try {
      await this.work();
    } catch {
      // It was said above the screen; the next one may do better.
    }
    this.#isRunning = false;
    this.#last = performance.now();
    if (this.#isWanted) this.#plan(this.atLeastMs);
    else if (this.everyMs) this.#plan(this.everyMs);
  }
}
