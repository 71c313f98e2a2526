// A dialog that says what will happen and to whom, before it happens.

import { inWords } from "./api.js";
import { fill, h } from "./dom.js";
import { announce } from "./live.js";

/**
 * Ask before a deed, do it, and say how it went. Returns what `act` returned, or null if it was
 * not done.
 *
 * @param {object} deed
 * @param {string} deed.title       what is to be done: "Revoke daily-report"
 * @param {string[]} deed.says      what will happen and to whom, in sentences
 * @param {string} deed.verb        the button: "Revoke"
 * @param {boolean} deed.isHarmful  whether a client loses something by it
 * @param {Array} deed.fields       {name, label, value, isRequired, help} of what must be known
 * @param {string} deed.typed       a text to be typed first, for what cannot be undone at all
 * @param {Function} deed.act       async (values) => reply
 * @param {string} deed.done        what is said when it was done
 */
export function confirmDeed({
  title,
  says,
  verb,
  isHarmful = false,
  fields = [],
  typed = "",
  act,
  done,
}) {
  const opener = document.activeElement;
  const wanted = typed
    ? [...fields, { name: "typed", label: `Type ${typed} to go on`, isRequired: true }]
    : fields;
  const inputs = wanted.map((each) => field(each));
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const go = h("button", { class: isHarmful ? "harmful" : "primary", type: "submit" }, verb);
  const cancel = h("button", { type: "button" }, "Cancel");
  const form = h(
    "form",
    { method: "dialog", novalidate: true },
    h("h2", { id: "deed-title" }, title),
    h("div", { id: "deed-says" }, ...says.map((each) => h("p", {}, each))),
    ...inputs.map((each) => each.row),
    problem,
    h("div", { class: "buttons" }, cancel, go),
  );
  const dialog = h(
    "dialog",
    { "aria-labelledby": "deed-title", "aria-describedby": "deed-says", class: "deed" },
    form,
  );
  document.body.append(dialog);

  return new Promise((resolve) => {
    let reply = null;
    const show = (text) => {
      fill(problem, text);
      problem.hidden = !text;
    };
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (opener?.isConnected) opener.focus();
      resolve(reply);
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const missing = inputs.find((each) => each.isRequired && !each.input.value.trim());
      if (missing) {
        show(`${missing.label}: this is needed.`);
        missing.input.focus();
        return;
      }
      const values = Object.fromEntries(inputs.map((each) => [each.name, each.input.value.trim()]));
      if (typed && values.typed !== typed) {
        show(`Expected ${typed}, found ${values.typed}.`);
        return;
      }
      go.disabled = true;
      show("");
      try {
        reply = (await act(values)) ?? {};
        dialog.close();
        announce(typeof done === "function" ? done(reply) : done);
      } catch (error) {
        show(inWords(error));
        go.disabled = false;
        go.focus();
      }
    });
    dialog.showModal();
    (inputs[0]?.input ?? cancel).focus();
  });
}

function field({
  name,
  label,
  value = "",
  isRequired = false,
  help = "",
  maxlength = 200,
  type = "text",
}) {
  const id = `deed-${name}`;
  const input = h("input", {
    id,
    name,
    type,
    value,
    maxlength,
    autocomplete: "off",
    spellcheck: "false",
    "aria-required": isRequired ? "true" : undefined,
    "aria-describedby": help ? `${id}-help` : undefined,
  });
  const row = h(
    "div",
    { class: "field" },
    h("label", { for: id }, label),
    input,
    help && h("p", { class: "help", id: `${id}-help` }, help),
  );
  return { name, label, input, row, isRequired };
}
