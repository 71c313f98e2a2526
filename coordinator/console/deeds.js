// What may be done to others: each asks first, says what will happen and to whom, and is recorded.

import { segment, znodeAddress } from "./shared/api.js";
import { confirmDeed } from "./shared/dialog.js";
import { count, duration } from "./shared/format.js";
import { who } from "./parts/who.js";

const BY = {
  name: "by",
  label: "Your name",
  isRequired: true,
  help: "Recorded in the history and the audit log.",
};
const REASON = {
  name: "reason",
  label: "Why",
  isRequired: true,
  help: "The holder is shown it; it is recorded.",
};

/** End a grant against its holder's will. */
export function revokeGrant({ api, rights }, lock, holder, { waiting = 0 } = {}) {
  const next = waiting
    ? `The next of ${count(waiting, "contender")} is granted at once`
    : "Nobody waits, so it becomes free";
  return confirmDeed({
    title: `Revoke ${lock}?`,
    says: [
      `${who(holder)} loses the lock now (grant ${holder.grant_id}, fencing token ` +
        `${holder.fencing_token}). It learns of it with its next heartbeat.`,
      next +
        (holder.lock_delay_ms
          ? `, after its lock-delay of ${duration(holder.lock_delay_ms)}.`
          : "."),
      "What it still writes is refused only by a store that checks fencing tokens.",
    ],
    verb: "Revoke",
    isHarmful: true,
    fields: [{ ...BY, value: rights.by }, REASON],
    act: ({ by, reason }) =>
      api.send("POST", `/v1/locks/${segment(lock)}/revoke`, {
        grant_id: holder.grant_id,
        by,
        reason,
      }),
    done: `${lock} was revoked.`,
  });
}

/** Have another member lead. */
export function handOver({ api }, leader, followers) {
  return confirmDeed({
    title: "Hand the leadership over?",
    says: [
      `Member ${leader} leads now. The follower with the most entries takes over: ` +
        `${followers.length === 1 ? "member" : "one of members"} ${followers.join(", ")}.`,
      "Writes and grants wait for some ms. No session, lock or lease is lost.",
    ],
    verb: "Hand over",
    act: () => api.send("POST", "/v1/members/handover", {}),
    done: (reply) => `Member ${reply.leader_id} leads now, in term ${reply.term}.`,
  });
}

/** End a session and all that it owns. */
export function endSession({ api, rights }, session, holds = []) {
  const named = holds
    .slice(0, 5)
    .map((each) => each.lock)
    .join(", ");
  const locks = holds.length
    ? `It holds ${count(holds.length, "grant")}: ` +
      `${named}${holds.length > 5 ? " and more" : ""}; they are lost.`
    : "It holds no lock that is known here.";
  return confirmDeed({
    title: "End this session?",
    says: [
      `Session ${session.session_id}${session.label ? `, ${session.label},` : ""} ends now, and ` +
        `its ${count(session.ephemeral_count, "ephemeral znode")} are deleted.`,
      locks,
      "Its client learns of it with its next heartbeat, and has to begin again.",
    ],
    verb: "End it",
    isHarmful: true,
    fields: [{ ...BY, value: rights.by }, REASON],
    act: ({ by, reason }) =>
      api.send("DELETE", `/v1/sessions/${segment(session.session_id)}`, undefined, {
        failure: reason,
        by,
      }),
    done: `Session ${session.session_id.slice(0, 8)} has ended.`,
  });
}

/** Delete a znode, with all below it if it has children. */
export function deleteZnode({ api }, path, stat) {
  const isDeep = stat.num_children > 0;
  return confirmDeed({
    title: `Delete ${path}?`,
    says: [
      isDeep
        ? `${path} and everything below it (${count(stat.num_children, "child", "children")}, ` +
          `and theirs) are deleted. This cannot be undone.`
        : `${path} is deleted, if it is still version ${stat.version}. This cannot be undone.`,
      stat.ephemeral_owner
        ? `It belongs to session ${stat.ephemeral_owner}, which keeps running without it.`
        : "It belongs to no session.",
    ],
    verb: "Delete",
    isHarmful: true,
    typed: isDeep ? path : "",
    act: () =>
      api.send(
        "DELETE",
        znodeAddress(path),
        undefined,
        isDeep
          ? { recursive: true, expected_czxid: stat.czxid }
          : { expected_version: stat.version, expected_czxid: stat.czxid },
      ),
    done: (reply) => `${count(reply.deleted_count, "znode was", "znodes were")} deleted.`,
  });
}
