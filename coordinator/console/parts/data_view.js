// The data of a znode: as text, as JSON, or as bytes in hexadecimal.

import { fill, h } from "../shared/dom.js";
import { bytes } from "../shared/format.js";

const SHOWN_BYTES = 64 * 1024;
const HEX_BYTES = 4 * 1024;

/** Return the data with a choice of how it is shown; the best fitting one is chosen first. */
export function dataView(znode) {
  const raw = bytesOf(znode);
  const place = h("pre", { class: "data", tabindex: "0", "aria-label": "Data" });
  const views = [
    ["Text", () => textOf(raw)],
    ["JSON", () => jsonOf(raw)],
    ["Hex", () => hexOf(raw)],
  ];
  const first =
    znode.data === undefined
      ? "Hex"
      : jsonOf(raw) !== null && /^\s*[[{]/.test(znode.data)
        ? "JSON"
        : "Text";
  const buttons = views.map(([name, make]) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(name === first),
        disabled: make() === null,
        onclick: () => show(name),
      },
      name,
    ),
  );
  function show(name) {
    buttons.forEach((each) => each.setAttribute("aria-pressed", String(each.textContent === name)));
    fill(place, views.find(([each]) => each === name)[1]() ?? "");
  }
  show(first);
  if (!raw.length) return h("p", { class: "muted" }, "It has no data.");
  return h(
    "div",
    {},
    h(
      "div",
      { class: "choice", role: "group", "aria-label": "Show the data as" },
      buttons,
      h("span", { class: "muted" }, bytes(raw.length)),
    ),
    place,
  );
}

function bytesOf({ data, data_base64: encoded }) {
  if (data !== undefined) return new TextEncoder().encode(data);
  return encoded ? Uint8Array.from(atob(encoded), (each) => each.charCodeAt(0)) : new Uint8Array();
}

function textOf(raw) {
  const text = new TextDecoder().decode(raw.subarray(0, SHOWN_BYTES));
  return raw.length > SHOWN_BYTES ? `${text}\n… and ${bytes(raw.length - SHOWN_BYTES)} more` : text;
}

function jsonOf(raw) {
  if (raw.length > SHOWN_BYTES) return null;
  try {
    return JSON.stringify(
      JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(raw)),
      null,
      2,
    );
  } catch {
    return null;
  }
}

function hexOf(raw) {
  const lines = [];
  for (let at = 0; at < Math.min(raw.length, HEX_BYTES); at += 16) {
    const part = [...raw.subarray(at, at + 16)];
    const hex = part
      .map((each) => each.toString(16).padStart(2, "0"))
      .join(" ")
      .padEnd(47);
    const text = part
      .map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : "."))
      .join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex}  ${text}`);
  }
  if (raw.length > HEX_BYTES) lines.push(`… and ${bytes(raw.length - HEX_BYTES)} more`);
  return lines.join("\n");
}
