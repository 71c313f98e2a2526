// When something is asked again: after a change, and as often as what is not in the tree needs.
//
// It rests for RESTS times as long as the last answers took, up to REST_MS_MAX: so a page takes a
// fifth of a member's time at the most, however much there is to read or however busy it is.

const RESTS = 4;
const REST_MS_MAX = 20_000;

/**
 * Call `work` now and then: `soon()` within `atLeastMs` of the last one, and by itself each
 * `everyMs` (0: never). One call at a time; not while the tab is hidden.
 */
export class Refresher {
  #timer = 0;
  #isRunning = false;
  #isWanted = false;
  #last = 0;
  #restMs = 0;
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
    if (this.#isRunning) return;
    const next = this.#last + Math.max(this.atLeastMs, this.#restMs);
    this.#plan(Math.max(0, next - performance.now()));
  }

  /** From now on call it each `ms` by itself; 0: only when it is asked for. */
  every(ms) {
    if (this.everyMs === ms) return;
    this.everyMs = ms;
    if (!this.#isRunning && !this.#isWanted) this.#plan(ms);
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
    const begun = performance.now();
    try {
      await this.work();
    } catch {
      // It was said above the screen; the next one may do better.
    }
    this.#isRunning = false;
    this.#last = performance.now();
    this.#restMs = Math.min(REST_MS_MAX, RESTS * (this.#last - begun));
    if (this.#isWanted) this.#plan(Math.max(this.atLeastMs, this.#restMs));
    else if (this.everyMs) this.#plan(Math.max(this.everyMs, this.#restMs));
  }
}
