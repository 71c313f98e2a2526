// The members: who leads, who lags, who sees whom; and what is wrong, in one sentence.

import { Refresher } from "../parts/refresher.js";
import { leaderLine } from "../parts/charts.js";
import { handOver } from "../deeds.js";
import { fill, fillIfChanged, h, scrolls } from "../shared/dom.js";
import { bytes, duration, number } from "../shared/format.js";

const EVERY_MS = 2_000;
const STORIES = /^http:\/\/127\.0\.0\.1:\d+\/learn#key=[\w-]+$/;

export async function clusterScreen(context) {
  const { api, rights } = context;
  const mayHandOver = await rights.may("admin", "@members");
  const deed = h("button", { type: "button", hidden: true }, "Hand over the leadership…");
  const stories = h("p", { class: "stories", hidden: true });
  let followers = [];
  let leader = null;
  const health = h("section", { class: "health", "aria-live": "polite", "aria-label": "Health" });
  const numbers = h("dl", { class: "numbers" });
  const members = h("div", { class: "members" });
  const sight = h("div", scrolls("Who sees whom"));
  const leaders = h("div", {});
  const element = h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("h1", {}, "Cluster"), deed),
    health,
    numbers,
    members,
    stories,
    h(
      "div",
      { class: "two" },
      h("section", { class: "card" }, h("h2", {}, "Elections"), leaders),
      h("section", { class: "card" }, h("h2", {}, "Who sees whom"), sight),
    ),
  );

  async function refresh() {
    const [status, { members: reports, health: said }] = await Promise.all([
      api.get("/v1/status"),
      api.get("/v1/members"),
    ]);
    leader = status.leader_id;
    followers = reports
      .filter((each) => each.facts?.is_ready && each.member_id !== leader)
      .map((each) => each.member_id);
    deed.hidden = !mayHandOver || leader === null || !followers.length;
    stories.hidden = !status.learn_url;
    fillIfChanged(stories, status.learn_url, () => storyButton(status.learn_url));
    fillIfChanged(health, said, healthCard(said, status));
    fill(
      numbers,
      [
        ["Term", number(status.term)],
        ["Zxid", number(status.zxid)],
        ["Sessions", number(status.sessions)],
        ["Znodes", number(status.znodes)],
        ["Access rights", status.access],
        ["Version", status.version],
      ].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
    );
    const most = Math.max(...reports.map((each) => each.facts?.applied_index ?? 0));
    fill(
      members,
      reports.map((each) => memberCard(each, most)),
    );
    fillIfChanged(
      sight,
      reports.map((each) => [each.member_id, each.facts?.sees]),
      sightTable(reports),
    );
    fill(
      leaders,
      leaderLine(
        leaderChanges(reports),
        reports.map((each) => each.member_id),
        Date.now(),
      ),
    );
  }

  await refresh();
  const refresher = new Refresher(refresh, { everyMs: EVERY_MS });
  deed.addEventListener("click", async () => {
    if (await handOver(context, leader, followers)) refresher.soon();
  });
  return { element, stop: () => refresher.stop() };
}

/** Offer a story on a cluster of `coordinator dev`; its page has all the others. */
function storyButton(url) {
  if (!STORIES.test(url)) return null;
  return [
    h("a", { class: "button", href: `${url}&play=freeze-ray` }, "Play a story here"),
    h(
      "span",
      { class: "muted" },
      " This is a development cluster: the freeze ray plays on it, with two clients of its own.",
    ),
  ];
}

function healthCard(said, status) {
  const mark = { good: "✓", note: "✓", warn: "!", bad: "✕" }[said.level];
  const isWhole = said.findings.length === 1 && said.findings[0].text === said.text;
  const lines = said.findings
    .map((each) => (isWhole ? [null, each.todo] : [each.text, each.todo]))
    .filter(([text, todo]) => text || todo);
  return h(
    "div",
    { class: `card verdict ${said.level}` },
    h("span", { class: "sign", "aria-hidden": "true" }, mark),
    h(
      "div",
      {},
      h("p", { class: "sentence" }, said.text),
      lines.length > 0 &&
        h(
          "ul",
          { class: "todo" },
          lines.map(([text, todo]) => h("li", {}, text && h("strong", {}, `${text} `), todo)),
        ),
      h(
        "p",
        { class: "muted" },
        `Cluster ${status.cluster}, as member ${status.member_id} sees it.`,
      ),
    ),
  );
}

function memberCard({ member_id: id, client_url: url, is_self: isSelf, facts, silence }, most) {
  if (!facts) {
    return h(
      "section",
      { class: "card member gone", "aria-label": `Member ${id}` },
      h("h2", {}, `Member ${id}`, h("span", { class: "mark bad" }, "silent")),
      h("p", { class: "muted mono" }, url),
      h("p", {}, silence),
    );
  }
  const lag = most - facts.applied_index;
  const facts_ = [
    ["Term", number(facts.term)],
    ["Lag", lag ? `${number(lag)} entries` : "none"],
    ["Disk", disk(facts)],
    ["Last snapshot", facts.snapshot_index ? `at ${number(facts.snapshot_index)}` : "none yet"],
    ["Log since then", `${number(facts.log_entries)} entries`],
    ["Runs for", duration(Math.max(0, Date.now() - facts.started_ms))],
    ["Version", facts.version + (facts.is_compiled ? ", compiled" : "")],
  ];
  return h(
    "section",
    { class: "card member", "aria-label": `Member ${id}` },
    h(
      "h2",
      {},
      `Member ${id}`,
      h("span", { class: `mark ${facts.role === "leader" ? "accent" : ""}` }, facts.role),
      !facts.is_ready && h("span", { class: "mark warn" }, "not ready"),
      isSelf &&
        h("span", { class: "mark", title: "The member that serves this page" }, "you are here"),
    ),
    url && h("p", { class: "muted mono" }, url),
    h(
      "dl",
      { class: "facts" },
      facts_.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    ),
  );
}

function disk(facts) {
  const free =
    facts.disk_free_bytes === null ? "in memory" : `${bytes(facts.disk_free_bytes)} free`;
  if (facts.is_disk_full) return h("span", { class: "mark bad" }, `full: ${free}`);
  return facts.is_disk_slow ? h("span", { class: "mark warn" }, `slow: ${free}`) : free;
}

function sightTable(reports) {
  const ids = reports.map((each) => each.member_id);
  return h(
    "table",
    { class: "sight" },
    h(
      "caption",
      { class: "visually-hidden" },
      "Each row: a member, and whether it reaches the others",
    ),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "Member"),
        ids.map((id) => h("th", { scope: "col" }, id)),
      ),
    ),
    h(
      "tbody",
      {},
      reports.map(({ member_id: id, facts }) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, id),
          ids.map((other) => h("td", {}, sees(id, other, facts))),
        ),
      ),
    ),
  );
}

function sees(id, other, facts) {
  if (id === other) return h("span", { class: "muted", "aria-label": "itself" }, "·");
  if (!facts) return h("span", { class: "muted", "aria-label": "not known" }, "?");
  return facts.sees.includes(other)
    ? h("span", { class: "yes", "aria-label": `${id} reaches ${other}` }, "●")
    : h("span", { class: "no", "aria-label": `${id} does not reach ${other}` }, "✕");
}

/** The changes that any member noticed, once for each term, in order. */
function leaderChanges(reports) {
  const byTerm = new Map();
  for (const { facts } of reports) {
    for (const each of facts?.elections ?? []) {
      if (each.leader_id === null) continue;
      const known = byTerm.get(each.term);
      if (!known || each.at_ms < known.at_ms) byTerm.set(each.term, each);
    }
  }
  const led = [...byTerm.values()].sort((one, other) => one.term - other.term);
  const leader = reports.map((each) => each.facts?.leader_id).find((each) => each) ?? null;
  const losses = reports.flatMap(({ facts }) =>
    (facts?.elections ?? []).filter((each) => each.leader_id === null),
  );
  if (leader === null && led.length && losses.length) {
    const last = losses.reduce((one, other) => (one.at_ms > other.at_ms ? one : other));
    if (last.at_ms > led.at(-1).at_ms) led.push(last);
  }
  return led.sort((one, other) => one.at_ms - other.at_ms);
}
