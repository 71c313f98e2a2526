// The deeds on the live stage: what a person may do, each a button that says what it does.

import { h } from "/console/shared/dom.js";
import { announce } from "/console/shared/live.js";
import { deed } from "./live_stage.js";

/** Return the panel of deeds; `film` returns what is being recorded. */
export function deedsView(stage, film) {
  const act = (body) => async () => {
    try {
      await deed(body);
    } catch (error) {
      announce(error.message, { isTrouble: true });
    }
  };
  const button = (text, body, given = {}) => h("button", { type: "button", onclick: act(body),
    ...given }, text);
  const freeze = `Freeze ${stage.freeze_ms / 1000} s`;
  const fenced = h("input", { type: "checkbox", checked: true, id: "fenced" });
  fenced.addEventListener("change", () => act({ do: "fence", is_fenced: fenced.checked })());
  const script = h("select", { "aria-label": "Story" },
    stage.scripts.map((each) => h("option", { value: each.name }, each.title)));
  const member = h("select", { "aria-label": "Member", class: "member" },
    stage.members.map((each) => h("option", { value: each }, `member ${each}`)));
  return h(
    "div",
    { class: "deeds" },
    h("div", { class: "card" },
      h("h2", {}, "A story that plays itself"),
      h("div", { class: "row" }, script,
        h("button", { type: "button", class: "primary",
          onclick: () => act({ do: "play", script: script.value, is_fenced: fenced.checked })() },
            "Play"))),
    h("div", { class: "card" },
      h("h2", {}, "The open stage"),
      h("div", { class: "row" },
        h("button", { type: "button", class: "primary",
          onclick: () => act({ do: "open", is_fenced: fenced.checked })() }, "Open the stage"),
        h("label", { class: "check", for: "fenced" }, fenced, " the store checks tokens")),
      ["A", "B"].map((who) => h("div", { class: "row", role: "group",
        "aria-label": `Client ${who}` },
        h("strong", {}, who),
        button("Acquire", { do: "acquire", who }), button(freeze, { do: "freeze", who }),
        button("Write", { do: "write", who }), button("Release", { do: "release", who }))),
      stage.has_members && h("div", { class: "row", role: "group", "aria-label": "Members" },
        button("Kill the leader", { do: "kill leader" }, { class: "harmful" }),
        stage.can_cut && member,
        stage.can_cut && h("button", { type: "button",
          onclick: () => act({ do: "cut", member: member.value })() }, "Cut off"),
        button("Heal", { do: "heal" }))),
    h("p", {}, h("button", { type: "button", class: "quiet", onclick: () => save(film()) },
      "Save this film")),
  );
}

/** Let the browser save a film as a file. */
function save(film) {
  if (!film) {
    announce("Nothing is recorded yet: play a story, or open the stage.");
    return;
  }
  const text = JSON.stringify({ format: 1, title: film.title, source: film.source,
    steps: film.steps });
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  h("a", { href: address, download: "film.json" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1_000);
}
