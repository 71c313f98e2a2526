// Who is before the screen: a token for this tab, once access rights are on.

import { inWords } from "../shared/api.js";
import { fill, h } from "../shared/dom.js";

/** Ask for a token until one is accepted, or the person gives up. */
export function signIn(api, problem = null) {
  const wrong = h("p", { class: "problem", role: "alert", hidden: true });
  const input = h("input", {
    id: "token",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "token-help",
  });
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "sign-in-title" }, "Who are you?"),
    h(
      "p",
      {},
      "Access rights are on. Show a token of an identity; what it may not do is not offered.",
    ),
    h(
      "div",
      { class: "field" },
      h("label", { for: "token" }, "Token"),
      input,
      h(
        "p",
        { class: "help", id: "token-help" },
        "co_…, from `coordinator access token add`. It is kept for this tab alone.",
      ),
    ),
    wrong,
    h("div", { class: "buttons" }, h("button", { class: "primary", type: "submit" }, "Sign in")),
  );
  const dialog = h("dialog", { "aria-labelledby": "sign-in-title" }, form);
  document.body.append(dialog);
  const show = (text) => {
    fill(wrong, text);
    wrong.hidden = !text;
  };
  if (problem && api.token) show(inWords(problem));
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve();
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      api.token = input.value.trim();
      try {
        await api.get("/v1/access/me");
        dialog.close();
      } catch (error) {
        api.token = "";
        show(inWords(error));
        input.focus();
      }
    });
    dialog.showModal();
    input.focus();
  });
}

/** Show who acts, with the way to be another: `onOut` is called. */
export function whoButton(place, rights, onOut) {
  const name = rights.identity;
  if (!rights.isOn) {
    fill(
      place,
      h(
        "span",
        { class: "mark warn", title: "Anybody who reaches this port may do everything" },
        "Access rights are off",
      ),
    );
    return;
  }
  const out = h(
    "button",
    { class: "quiet", type: "button", "aria-label": `Signed in as ${name}. Sign out` },
    name,
  );
  out.addEventListener("click", onOut);
  fill(place, out);
}
