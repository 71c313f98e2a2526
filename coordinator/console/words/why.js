// Why a lock is as it is, in words: what `coordinator why` says.

import { count, duration, time } from "../shared/format.js";
import { who } from "./who.js";

const SHOWN_MAX = 5;

/** Return sentences about a lock, from its view (GET /v1/locks/{name}). */
export function whySentences(view, nowMs = Date.now()) {
  const lines = [];
  if (view.by_hand) {
    const turn = view.holders.length ? " Who is shown as its holder has its turn after that." : "";
    lines.push(`${view.by_hand[0].toUpperCase()}${view.by_hand.slice(1)}.${turn}`);
  }
  if (view.closed) {
    const left = view.closed.remaining_ms;
    lines.push(
      `It is closed to later contenders for ` +
        `${left === null ? "an unknown time" : `another ${duration(left)}`} ` +
        `(lock-delay of ${duration(view.closed.delay_ms)}): a holder was lost without a ` +
        `release, and its writes may still arrive.`,
    );
  }
  if (!view.holders.length && !view.closed && !view.by_hand) {
    lines.push(
      view.queue.length
        ? "Nobody holds it; the first in its queue also waits for other locks, or is being " +
            "granted at this moment."
        : "It is free: nobody holds it, and nobody waits.",
    );
  }
  if (view.holder_count > 1 || view.size) {
    lines.push(
      `It has ${count(view.holder_count, "holder")}${view.size ? ` of ${view.size}` : ""}.`,
    );
  }
  for (const each of view.holders.slice(0, SHOWN_MAX)) lines.push(...oneHolder(each, nowMs));
  if (view.holder_count > SHOWN_MAX)
    lines.push(`And ${count(view.holder_count - SHOWN_MAX, "more holder")}.`);
  if (view.queue_length) {
    const first = view.queue[0];
    lines.push(
      `${count(view.queue_length, "contender waits", "contenders wait")}; the next is ` +
        `${who(first)}, ` +
        `${first.kind}, since ${duration(nowMs - first.since_ms)}.`,
    );
  } else if (view.holders.length) lines.push("Nobody waits.");
  return lines;
}

function oneHolder(holder, nowMs) {
  const since = holder.granted_ms ?? holder.since_ms;
  const lines = [
    `Held by ${who(holder)} since ${time(since)}, for ${duration(Math.max(0, nowMs - since))}; ` +
      `${holder.kind}, fencing token ${holder.fencing_token}.`,
  ];
  if (!holder.session_id && holder.lease_ms === null) {
    lines.push("No session that you may see ends it.");
  } else if (holder.safe_ms === null) {
    lines.push("How long it is safe is not known: the leader did not answer in time.");
  } else {
    lines.push(
      `It certainly holds for another ${duration(holder.safe_ms)}; heartbeats renew its lease ` +
        `of ${duration(holder.lease_ms)}.`,
    );
  }
  if (holder.max_hold_ms) lines.push(`It may be held for ${duration(holder.max_hold_ms)} at most.`);
  if (holder.lock_delay_ms) {
    lines.push(
      `If it is lost without a release, the lock stays closed for another ` +
        `${duration(holder.lock_delay_ms)}.`,
    );
  }
  if (holder.purpose || holder.guard) {
    lines.push(
      `It was acquired ` +
        `${holder.purpose ? `for ${holder.purpose}` : "without a stated purpose"}, with ` +
        `${holder.guard || "no guard"}.`,
    );
  }
  if (holder.when_unsure === "continue")
    lines.push("Its holder continues when it is unsure whether it still holds.");
  return lines;
}
