// How the cluster is, in one sentence, and what to do about it.

import { sentence } from "../shared/api.js";
import { bytes, count, number } from "../shared/format.js";

const LAG_MAX = 1_000;
const DISK_FREE_MIN = 512 * 1024 * 1024;

/**
 * Return {level: "good" | "warn" | "bad", text, todo: [sentence]} of a status and the members'
 * reports. The worst is said first; all that is to be done is listed.
 */
export function healthOf(status, reports) {
  const found = [
    ...leadership(status, reports),
    ...silent(status, reports),
    ...reports.flatMap((report) => (report.facts ? ofMember(report.facts, reports) : [])),
    ...ofCluster(status),
  ];
  const rank = { bad: 0, warn: 1 };
  found.sort((one, other) => rank[one.level] - rank[other.level]);
  if (!found.length) {
    const leader =
      reports.find((each) => each.facts?.role === "leader")?.member_id ?? status.leader_id;
    const spare = Math.floor((reports.length - 1) / 2);
    const may = spare ? `${spare === 1 ? "one may" : `${spare} may`} fail` : "there is no other";
    return {
      level: "good",
      text:
        `All is well: member ${leader} leads in term ${status.term}, ` +
        `${count(reports.length, "member")} ` +
        `${reports.length === 1 ? "answers" : "answer"}, and ${may}.`,
      todo: [],
    };
  }
  const more = found.length - 1;
  return {
    level: found[0].level,
    text:
      found[0].text +
      (more ? ` There ${more === 1 ? "is one thing" : `are ${more} things`} more.` : ""),
    todo: found.map((each) => ({ level: each.level, what: each.text, todo: each.todo })),
  };
}

function leadership(status, reports) {
  if (status.leader_id !== null) return [];
  const quorum = Math.floor(reports.length / 2) + 1;
  const here = reports.filter((each) => each.facts).length;
  return [
    {
      level: "bad",
      text:
        `No leader is known: nothing can be written, and no lock granted. ` +
        `${sentence(status.summary)}`,
      todo:
        here < quorum
          ? `Start members again until ${quorum} of ${reports.length} run; their data stays ` +
            `where it is.`
          : "Wait for the election, some seconds. If it goes on, look at the logs of the " +
            "members for the reason.",
    },
  ];
}

function silent(status, reports) {
  const gone = reports.filter((each) => !each.facts);
  if (!gone.length) return [];
  const spare = Math.floor((reports.length - 1) / 2) - gone.length;
  const names = gone.map((each) => each.member_id).join(", ");
  const may =
    spare > 0 ? `${spare} more may fail` : spare === 0 ? "no other may fail" : "there is no quorum";
  return [
    {
      level: spare > 0 ? "warn" : "bad",
      text:
        `${gone.length === 1 ? `Member ${names} does` : `Members ${names} do`} not answer; ` +
        `${may}.`,
      todo:
        `Look at ${gone.length === 1 ? "its machine and its log" : "their machines and logs"}, ` +
        `and start ` +
        `${gone.length === 1 ? "it" : "them"} again with the same data directory. ` +
        `${gone.map((each) => sentence(each.silence)).join(" ")}`,
    },
  ];
}

function ofMember(facts, reports) {
  const id = facts.member_id;
  const found = [];
  const say = (level, text, todo) => found.push({ level, text, todo });
  const most = Math.max(...reports.map((each) => each.facts?.applied_index ?? 0));
  const lag = most - facts.applied_index;
  if (!facts.is_ready && facts.leader_id !== null)
    say("warn", sentence(facts.summary), "Send requests to the others until it has caught up.");
  else if (lag > LAG_MAX)
    say(
      "warn",
      `Member ${id} is ${number(lag)} entries behind.`,
      "Look at its disk and its network; it catches up by itself.",
    );
  if (facts.is_disk_full)
    say(
      "bad",
      `The disk of member ${id} is full: it accepts no writes.`,
      "Free space on it; the member goes on by itself.",
    );
  else if (facts.disk_free_bytes !== null && facts.disk_free_bytes < DISK_FREE_MIN) {
    say(
      "warn",
      `Member ${id} has ${bytes(facts.disk_free_bytes)} of disk left.`,
      "Free space before it is full.",
    );
  }
  if (facts.is_disk_slow)
    say(
      "warn",
      `The disk of member ${id} is slow: it hands over what it leads.`,
      "Look at what else uses that disk.",
    );
  const unseen = reports.filter(
    (each) => each.facts && each.member_id !== id && !facts.sees.includes(each.member_id),
  );
  for (const each of unseen) {
    say(
      "warn",
      `Member ${id} does not reach member ${each.member_id}.`,
      "Look at the network between them, and at the log of both.",
    );
  }
  return found;
}

function ofCluster(status) {
  const found = [];
  if (status.reserve)
    found.push({
      level: "bad",
      text: sentence(status.reserve),
      todo: "Delete what is not needed, or raise the limit: `coordinator limits`.",
    });
  if (status.limits_differ)
    found.push({
      level: "warn",
      text: sentence(status.limits_differ),
      todo: "Make the configuration agree with the cluster: `coordinator limits`.",
    });
  for (const each of status.warnings) found.push({ level: "warn", text: sentence(each), todo: "" });
  return found;
}
