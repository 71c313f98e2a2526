// What the figures of a lock say: the rules and thresholds of `coordinator diagnose`
// (coordinator/cli/diagnosis.py); a test compares what both find.

import { count, duration } from "../shared/format.js";

const WAITING_ON_AVERAGE_MIN = 2;
const WAIT_MS_MIN = 50;
const UNCONTENDED_GRANTS_MIN = 5;
const RANK = { problem: 0, warning: 1, note: 2 };
const RULES = [
  heldByHand,
  closedAfterLoss,
  neverEnds,
  waitDominates,
  denied,
  shorterThanPauses,
  putOut,
  boundsReached,
  shorterThanHolds,
  neverContended,
];

/** Return findings {code, severity, text, why, advice}, the worst first. */
export function diagnosed(figures) {
  const found = RULES.map((rule) => rule(figures)).filter(Boolean);
  if (!found.length) found.push(nothing(figures));
  return found.sort((one, other) => RANK[one.severity] - RANK[other.severity]);
}

function finding(code, severity, text, why, advice = "") {
  return { code, severity, text, why, advice };
}

function spread(percentiles) {
  if (!percentiles) return "no time yet";
  const { p50_ms, p95_ms, p99_ms } = percentiles;
  return `${duration(p50_ms)} (p50), ${duration(p95_ms)} (p95), ${duration(p99_ms)} (p99)`;
}

function heldByHand({ by_hand: byHand, is_overdue: isOverdue }) {
  return (
    byHand &&
    finding(
      "held-by-hand",
      isOverdue ? "problem" : "note",
      `It is held by hand${isOverdue ? " for longer than planned" : ""}.`,
      `Nobody else is granted it: ${byHand}.`,
      "`coordinator unlock` ends it.",
    )
  );
}

function closedAfterLoss({ lock_delay_ms: delay }) {
  return (
    delay &&
    finding(
      "closed-after-loss",
      "note",
      "It is closed after an unclean loss.",
      `A holder was lost without a release, and its writes may still arrive: for a lock-delay of ` +
        `${duration(delay)} nobody else is granted it.`,
    )
  );
}

function neverEnds({ endless }) {
  return (
    endless &&
    finding(
      "never-ends",
      "problem",
      "It is held by what never ends.",
      `${count(endless, "grant")} held now of a persistent znode in its queue, made by hand: no ` +
        `session, so no lease that runs out.`,
      "Revoke it, or delete the znode: that frees the lock. Such znodes are refused today; this " +
        "one is from before.",
    )
  );
}

function waitDominates(figures) {
  const { waits, holds, waiting_on_average: waiting, span_ms: span, held_ms: held } = figures;
  if (!waits || waits.p95_ms < WAIT_MS_MIN || waiting === null || waiting < WAITING_ON_AVERAGE_MIN)
    return null;
  const busy = span
    ? `; it was held for ${Math.min(100, Math.floor((100 * held) / span))} % of the ` +
      `${duration(span)} that the history covers`
    : "";
  return finding(
    "wait-dominates",
    "problem",
    "Wait dominates: the lock is the bottleneck.",
    `On average ${waiting} waited while it was held, not counting its longest hold. Waits took ` +
      `${spread(waits)}, holds ${spread(holds)}${busy}.`,
    "Hold it shorter, split it into several locks (one for each record or partition), or ask " +
      "`coordinator advise` whether it is needed.",
  );
}

function denied({ tries, left, grants }) {
  if (!tries && !left) return null;
  const isUsual = left > grants;
  return finding(
    "denied",
    isUsual ? "problem" : "note",
    isUsual ? "Most waiters leave without it." : "Some requests did not get it.",
    `${count(tries, "try", "tries")} refused at once; ${count(left, "waiter")} left before they ` +
      `got it (timed out, cancelled, or their session ended); ${count(grants, "grant")} in the ` +
      `history.`,
    "Refused tries are normal if one of several is to do the work. Waiters that leave wait for " +
      "less time than the lock is held.",
  );
}

function shorterThanPauses({ silences_ms: silences, lease_ms: lease, grants }) {
  if (!silences.length) return null;
  const longest = duration(Math.max(...silences));
  return finding(
    "lease-shorter-than-pauses",
    "warning",
    `The lease is shorter than observed pauses: ${count(silences.length, "holder")} lost it by ` +
      `silence.`,
    `${silences.length} of ${count(grants, "grant")} ended because the holder sent nothing for ` +
      `longer than the lease${lease === null ? "" : ` (${duration(lease)})`}; the longest ` +
      `silence was ${longest}.`,
    `If these programs had died, nothing is wrong. If they were only paused (garbage ` +
      `collection, a busy machine, a slow network), make the session timeout longer than their ` +
      `pauses, above ${longest}.`,
  );
}

function shorterThanHolds({ holds, lease_ms: lease }) {
  if (!holds || lease === null || lease >= holds.p99_ms) return null;
  return finding(
    "lease-shorter-than-holds",
    "note",
    "The lease is shorter than the 99th percentile of holds.",
    `The shortest lease of the present contenders is ${duration(lease)}; holds took ` +
      `${spread(holds)}.`,
    "That is normal while heartbeats are sent during the work. Work that stops them for longer " +
      "than the lease loses the lock.",
  );
}

function putOut({ ends, grants }) {
  const forced = (ends.forced ?? 0) + (ends.deleted ?? 0);
  return (
    forced &&
    finding(
      "forced-out",
      "warning",
      "People released it by force.",
      `${forced} of ${count(grants, "grant")} ended by force (${ends.deleted ?? 0} of them by ` +
        `deleting a znode).`,
      "The story below says who did it and why. A maximum hold (max_hold) ends a hold that " +
        "hangs, without people.",
    )
  );
}

function boundsReached({ ends, grants }) {
  return (
    ends.max_hold &&
    finding(
      "bounds-reached",
      "warning",
      "Holders reached their maximum hold.",
      `${ends.max_hold} of ${count(grants, "grant")} ended by max_hold.`,
      "Either the work hangs, or the maximum is shorter than the work takes.",
    )
  );
}

function neverContended(figures) {
  const { grants, at_once: atOnce, queue_length: queue, tries, left } = figures;
  if (grants < UNCONTENDED_GRANTS_MIN || atOnce < grants || queue || tries || left) return null;
  return finding(
    "never-contended",
    "note",
    "Never contended.",
    `Each of the ${grants} grants in the history was given at once, and no request is known to ` +
      `have been refused.`,
    "If that is also true under full load, the lock costs a round trip and prevents what never " +
      "happens; ask `coordinator advise` whether it is needed.",
  );
}

function nothing({ grants, at_once: atOnce, waits, holds }) {
  if (!grants)
    return finding(
      "unknown",
      "note",
      "Nothing is known of it.",
      "The history has no grant of this lock.",
    );
  return finding(
    "healthy",
    "note",
    "Nothing is wrong with it.",
    `${atOnce} of ${count(grants, "grant")} given at once; waits took ${spread(waits)}; holds ` +
      `took ${spread(holds)}.`,
  );
}
