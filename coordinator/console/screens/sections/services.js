// Services: the members of each group, and what they say of themselves (below /groups/NAME).

import { childrenOf, each, jsonOf, nameOf } from "../../parts/znodes.js";
import { h } from "../../shared/dom.js";
import { count, time } from "../../shared/format.js";

const SHOWN_MAX = 20;
const KIND = { up: "good", draining: "warn", down: "bad" };

export async function serviceSection(api, found, root) {
  const groups = await each(found.slice(0, SHOWN_MAX), async ({ name, stat }) => {
    const members = (await childrenOf(api, `${root}/${name}`, SHOWN_MAX)).filter(
      (member) => member.stat.ephemeral_owner,
    );
    const said = await each(members, async (member) => ({
      name: nameOf(member.name),
      stat: member.stat,
      said: await jsonOf(api, `${root}/${name}/${member.name}`),
    }));
    return { name: nameOf(name), total: stat.num_children, members: said };
  });
  const live = groups.filter((group) => group.total);
  const rows = live.map((group) =>
    h(
      "li",
      { class: "entry" },
      h(
        "p",
        {},
        h("strong", { class: "mono" }, group.name),
        h("span", { class: "muted" }, ` ${count(group.total, "member")}`),
      ),
      h(
        "ul",
        { class: "plain" },
        group.members.map(({ name, stat, said }) =>
          h(
            "li",
            {},
            h("span", { class: `mark ${KIND[said?.state] ?? ""}` }, said?.state ?? "?"),
            " ",
            h("a", { class: "mono", href: `#/sessions/${stat.ephemeral_owner}` }, name),
            h("span", { class: "muted" }, ` since ${time(stat.ctime_ms)}${metadata(said)}`),
          ),
        ),
      ),
    ),
  );
  return { mark: live, content: rows.length ? h("ul", { class: "entries" }, rows) : null };
}

function metadata(said) {
  const known = Object.entries(said?.metadata ?? {})
    .slice(0, 3)
    .map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`);
  const reason = said?.reason ? [said.reason] : [];
  return [...reason, ...known].length ? `; ${[...reason, ...known].join(", ").slice(0, 160)}` : "";
}
