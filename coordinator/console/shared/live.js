// What has happened, said to people who see and to those who listen.

import { h } from "./dom.js";

const SHOWN_MS = 6_000;
let region = null;

/** Show a sentence for some seconds, and have a screen reader read it when it is free. */
export function announce(text, { isTrouble = false } = {}) {
  if (!text) return;
  region ??= document.body.appendChild(
    h("div", { class: "announcements", role: "status", "aria-live": "polite" }),
  );
  const shown = h("p", { class: isTrouble ? "announcement trouble" : "announcement" }, text);
  if (region.childElementCount > 3) region.firstElementChild.remove();
  region.append(shown);
  setTimeout(() => shown.remove(), SHOWN_MS);
}
