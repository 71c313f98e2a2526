// What changes, by one watch stream: that of the screen that is shown.
//
// 1. It resumes behind the last zxid that it saw, so nothing is missed while a connection breaks.
// 2. If that is not kept any more, `onResync` is called: read again.
// 3. Its state is shown: live, connecting, or why not.

import { inWords, pause } from "../shared/api.js";
import { fill, h } from "../shared/dom.js";

const AGAIN_MS_MIN = 500;
const AGAIN_MS_MAX = 8_000;
const REFUSED = new Set([400, 401, 403, 404, 405]);

export class Feed {
  #stop = null;

  constructor(api, place) {
    this.api = api;
    this.place = place;
    this.#say("");
  }

  /** End the stream of the last screen. */
  stop() {
    this.#stop?.abort();
    this.#stop = null;
    this.#say("");
  }

  /**
   * Follow `watches` ([{path, kind}]) until the screen changes.
   *
   * `onChange(change)` gets {zxid, events}; `onResync()` is called when changes may be missing.
   * `from`: a zxid behind which past changes are given, too, as far as they are kept.
   */
  async follow(watches, { onChange, onResync, from = undefined }) {
    this.stop();
    const stop = (this.#stop = new AbortController());
    const { signal } = stop;
    let zxid = from;
    let again_ms = AGAIN_MS_MIN;
    while (!signal.aborted) {
      this.#say("connecting");
      try {
        const body = { watches };
        if (zxid !== undefined) body.from_zxid = zxid;
        await this.api.lines("/v1/watch", {
          body,
          signal,
          onLine: (line) => {
            if (signal.aborted) return;
            if (line.zxid !== undefined) zxid = line.zxid;
            if (line.type === "resync") {
              zxid = undefined;
              onResync?.();
            } else if (line.type === "change") onChange?.(line);
            else if (line.type === "watching") {
              again_ms = AGAIN_MS_MIN;
              this.#say("live");
            }
          },
        });
      } catch (error) {
        if (signal.aborted) return;
        if (error.code === "Compacted") {
          zxid = undefined;
          onResync?.();
        } else if (REFUSED.has(error.status)) {
          this.#say("not live", inWords(error));
          return;
        }
      }
      if (signal.aborted) return;
      this.#say("connecting");
      await pause(again_ms);
      again_ms = Math.min(AGAIN_MS_MAX, again_ms * 2);
    }
  }

  #say(state, why = "") {
    const kind = { live: "good", connecting: "warn", "not live": "warn" }[state];
    fill(
      this.place,
      state &&
        h(
          "span",
          { class: `mark live ${kind}`, title: why || undefined },
          h("span", { class: "dot", "aria-hidden": "true" }),
          { live: "Live", connecting: "Connecting", "not live": "Not live" }[state],
          why && h("span", { class: "visually-hidden" }, `: ${why}`),
        ),
    );
  }
}
