// Elements. Text is only ever set as text: nothing here parses HTML, and the policy of the page
// refuses what would.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Return an element: `h("button", { class: "deed", onclick: act, "aria-label": "End it" }, "End")`.
 * Children are nodes, texts, lists of those; null, undefined and false are nothing.
 */
export function h(name, given = {}, ...children) {
  return filled(document.createElement(name), given, children);
}

/** Return an element of SVG. */
export function svg(name, given = {}, ...children) {
  return filled(document.createElementNS(SVG, name), given, children);
}

/** Return the attributes of what may be wider than its place: the keyboard can move it, too. */
export function scrolls(label, more = "") {
  return { class: `scrolls ${more}`.trim(), role: "group", "aria-label": label, tabindex: "0" };
}

/** Put `children` in place of what is in `element`, and return it. */
export function fill(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

/**
 * Put `children` in place only if `mark` differs from the last one: focus and selection stay. A
 * child may be a function that makes it, which is then called only if it is needed.
 */
export function fillIfChanged(element, mark, ...children) {
  const text = JSON.stringify(mark);
  if (element.dataset.mark === text) return element;
  element.dataset.mark = text;
  return fill(element, ...children.map((each) => (typeof each === "function" ? each() : each)));
}

function filled(element, given, children) {
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style")
      for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...flat(children));
  return element;
}

function flat(children) {
  return children
    .flat(Infinity)
    .filter((each) => each !== null && each !== undefined && each !== false)
    .map((each) => (each instanceof Node ? each : String(each)));
}
