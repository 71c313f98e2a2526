// Numbers and times, as people read them.

const STEPS = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1_000, "s"],
];

/** Return a duration: "420 ms", "3.2 s", "4 min 10 s", "2 h 5 min". */
export function duration(ms) {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1_000).toFixed(1)} s`;
  const at = STEPS.findIndex(([size]) => ms >= size);
  const [size, unit] = STEPS[at];
  const whole = Math.floor(ms / size);
  const next = STEPS[at + 1];
  const rest = next ? Math.floor((ms % size) / next[0]) : 0;
  return rest ? `${whole} ${unit} ${rest} ${next[1]}` : `${whole} ${unit}`;
}

/** Return a size: "0 B", "1.4 KiB". */
export function bytes(count) {
  if (count === null || count === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = count;
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at ? value.toFixed(1) : value} ${units[at]}`;
}

/** Return a number with thin spaces between thousands. */
export function number(value) {
  if (value === null || value === undefined) return "–";
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/** Return "1 lock", "2 locks". */
export function count(value, one, many = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

/** Return the time of day; with the date if it is not today. A dash: there is no such time. */
export function time(ms) {
  const at = new Date(ms);
  if (!ms || Number.isNaN(at.getTime())) return "–";
  const clock = at.toLocaleTimeString([], { hour12: false });
  return at.toDateString() === new Date().toDateString() ? clock : `${day(at)} ${clock}`;
}

/** Return how long ago it was. */
export function ago(ms, nowMs = Date.now()) {
  return ms ? `${duration(Math.max(0, nowMs - ms))} ago` : "–";
}

/** Return the date where the person is: "2026-03-01". */
function day(at) {
  const parts = [at.getFullYear(), at.getMonth() + 1, at.getDate()];
  return parts.map((each) => String(each).padStart(2, "0")).join("-");
}
