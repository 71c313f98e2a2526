// A lease that runs down, as the leader last said; heartbeats fill it up again.

import { h } from "../shared/dom.js";
import { duration } from "../shared/format.js";

const STEP_MS = 200;

/**
 * Return a bar of what is certainly left; it stops by itself when it leaves the page. Its
 * `renew(holder)` fills it by a later answer; that returns false if this needs another bar.
 */
export function leaseBar(holder) {
  const isKnown = ({ safe_ms: left, lease_ms: lease }) => left !== null && lease !== null;
  if (!isKnown(holder)) {
    const unknown = h(
      "p",
      { class: "muted" },
      holder.session_id ? "What is left of its lease is not known." : "Its lease is not shown.",
    );
    return Object.assign(unknown, { renew: (now) => !isKnown(now) });
  }
  const whole = Math.max(holder.lease_ms, holder.safe_ms, 1);
  let safe_ms = holder.safe_ms;
  let begun = performance.now();
  const text = h("span", { class: "lease-left" });
  const bar = h("span", { class: "lease-fill" });
  const element = h(
    "div",
    {
      class: "lease",
      role: "meter",
      "aria-label": "What is left of its lease, in seconds",
      "aria-valuemin": 0,
      "aria-valuemax": whole / 1_000,
    },
    h("span", { class: "lease-track" }, bar),
    text,
  );
  const draw = () => {
    const left = Math.max(0, safe_ms - (performance.now() - begun));
    bar.style.setProperty("width", `${(100 * left) / whole}%`);
    element.classList.toggle("low", left < whole / 4);
    text.textContent = `safe for ${duration(left)} of ${duration(holder.lease_ms)}`;
    element.setAttribute("aria-valuenow", (left / 1_000).toFixed(1));
    element.setAttribute("aria-valuetext", text.textContent);
  };
  draw();
  const timer = setInterval(() => {
    if (!element.isConnected) clearInterval(timer);
    else if (!document.hidden) draw();
  }, STEP_MS);
  const renew = (now) => {
    if (!isKnown(now)) return false;
    safe_ms = now.safe_ms;
    begun = performance.now();
    draw();
    return true;
  };
  return Object.assign(element, { renew });
}
