// One lock in numbers, from its grants: the same as `coordinator diagnose` draws.

/** Return the figures of a lock from its grants, the oldest first, and its view. */
export function figuresOf(grants, view) {
  const ended = grants.filter((each) => each.ended_ms !== null);
  const holds = ended.map((each) => length(each.granted_ms, each.ended_ms));
  const ends = {};
  for (const each of ended) ends[each.how] = (ends[each.how] ?? 0) + 1;
  const leases = [...view.holders, ...view.queue]
    .map((each) => each.lease_ms)
    .filter((each) => each !== null);
  const begin = Math.min(...grants.map((each) => each.granted_ms));
  const end = Math.max(...grants.map((each) => each.ended_ms || each.granted_ms));
  return {
    grants: grants.length,
    at_once: grants.filter((each) => each.granted_zxid === each.entered_zxid).length,
    waits: percentiles(grants.map((each) => length(each.entered_ms, each.granted_ms))),
    holds: percentiles(holds),
    ends,
    silences_ms: ended.filter((each) => each.how === "expired").map((each) => each.silent_ms),
    span_ms: grants.length ? length(begin, end) : 0,
    held_ms: sum(holds),
    queue_length: view.queue_length,
    lease_ms: leases.length ? Math.min(...leases) : null,
    endless: grants.filter((each) => each.ended_ms === null && !each.session_id).length,
    tries: view.denied?.tries ?? 0,
    left: view.denied?.left ?? 0,
    by_hand: view.by_hand,
    is_overdue: view.is_overdue,
    lock_delay_ms: view.closed?.delay_ms ?? 0,
    waiting_on_average: waitingOnAverage(grants),
  };
}

/** Return percentiles by nearest rank; null of nothing. */
export function percentiles(lengths) {
  if (!lengths.length) return null;
  const ordered = [...lengths].sort((one, other) => one - other);
  const at = (percent) => ordered[Math.max(Math.ceil((ordered.length * percent) / 100) - 1, 0)];
  return {
    count: ordered.length,
    p50_ms: at(50),
    p95_ms: at(95),
    p99_ms: at(99),
    max_ms: ordered[ordered.length - 1],
  };
}

/** What all waits took by what all holds took, without the longest hold and what waited for it. */
function waitingOnAverage(grants) {
  const holds = grants
    .filter((each) => each.ended_ms !== null)
    .map((each) => [each.granted_ms, each.ended_ms]);
  if (holds.length < 2) return null;
  const longest = holds.reduce((one, other) =>
    other[1] - other[0] > one[1] - one[0] ? other : one,
  );
  const waits = sum(
    grants.map(
      (each) =>
        length(each.entered_ms, each.granted_ms) -
        length(Math.max(each.entered_ms, longest[0]), Math.min(each.granted_ms, longest[1])),
    ),
  );
  const held = sum(holds.map(([begin, end]) => length(begin, end))) - length(...longest);
  return Math.round((10 * waits) / Math.max(1, held)) / 10;
}

function length(begin, end) {
  return Math.max(0, end - begin);
}

function sum(values) {
  return values.reduce((total, each) => total + each, 0);
}
