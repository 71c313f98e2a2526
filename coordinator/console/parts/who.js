// Names of contenders and ends of grants, in words.

/** Return who it is: label, host and process, or the session. */
export function who(contender) {
  if (!contender) return "nobody";
  const place = [contender.host, contender.pid && `pid ${contender.pid}`]
    .filter(Boolean)
    .join(", ");
  const name =
    contender.label ||
    (contender.session_id ? `session ${contender.session_id.slice(0, 8)}` : "what no session ends");
  return place ? `${name} (${place})` : name;
}

/** Return its name alone. */
export function nameOf(contender) {
  return (
    contender.label ||
    (contender.session_id ? `session ${contender.session_id.slice(0, 8)}` : contender.grant_id)
  );
}

export const HOW = {
  "": "holds",
  released: "released",
  closed: "session closed",
  expired: "lease ran out",
  failed: "client was not well",
  abandoned: "attempt abandoned",
  deleted: "znode deleted",
  forced: "revoked",
  max_hold: "longest hold over",
};

const LOSSES = new Set(["expired", "failed", "deleted", "forced", "max_hold"]);

/** Return the colour of an end: held, given back, or lost. */
export function kindOf(how) {
  if (!how) return "held";
  return LOSSES.has(how) ? "lost" : "released";
}
