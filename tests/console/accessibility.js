// What is wrong with a page for who can not see it well, or not at all: one sentence each.
() => {
  const wrong = [];
  const shown = (each) => {
    const style = getComputedStyle(each);
    return each.getClientRects().length > 0 && style.visibility !== "hidden" && style.opacity !== "0";
  };
  const short = (each) => each.outerHTML.slice(0, 120).replace(/\s+/g, " ");

  // Names: of everything that is operated, drawn, or found by its role.
  const text = (id) => document.getElementById(id)?.textContent.trim() ?? "";
  const nameOf = (each) =>
    (each.getAttribute("aria-labelledby") ?? "").split(" ").map(text).join("").trim() ||
    each.getAttribute("aria-label")?.trim() ||
    [...(each.labels ?? [])].map((label) => label.textContent.trim()).join("") ||
    each.getAttribute("alt")?.trim() ||
    each.textContent.trim() ||
    each.getAttribute("title");
  const named = "a[href], button, input, select, textarea, [role=meter], [role=img], dialog, nav, figure[role], table";
  for (const each of document.querySelectorAll(named)) if (shown(each) && !nameOf(each)) wrong.push(`no name: ${short(each)}`);
  for (const each of document.images) if (!each.hasAttribute("alt")) wrong.push(`no alt: ${short(each)}`);

  // Structure: a language, one main, one first heading, none left out, ids once, headers of columns.
  if (!document.documentElement.lang) wrong.push("no language");
  if (document.querySelectorAll("main").length !== 1) wrong.push("not one main");
  const levels = [...document.querySelectorAll("h1, h2, h3")].filter(shown).map((each) => Number(each.tagName[1]));
  if (levels.filter((each) => each === 1).length !== 1) wrong.push(`first headings: ${levels}`);
  levels.forEach((each, at) => at && each > levels[at - 1] + 1 && wrong.push(`a heading is left out: ${levels}`));
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  for (const id of new Set(ids)) if (ids.filter((each) => each === id).length > 1) wrong.push(`twice: #${id}`);
  for (const each of document.querySelectorAll("th")) if (!each.scope) wrong.push(`no scope: ${short(each)}`);
  for (const each of document.querySelectorAll("[aria-labelledby], [aria-describedby]")) {
    for (const name of ["aria-labelledby", "aria-describedby"]) {
      for (const id of (each.getAttribute(name) ?? "").split(" ")) if (id && !document.getElementById(id)) wrong.push(`${name} names nothing: ${id}`);
    }
  }
  if (!document.querySelector("[aria-live], [role=status], [role=alert]")) wrong.push("nothing is said when it changes");

  // Contrast: 4.5 to 1 for text, 3 to 1 for large text (WCAG 2.2, 1.4.3).
  const rgba = (color) => {
    const [r, g, b, a = 1] = color.match(/[\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = (top, bottom) => top.slice(0, 3).map((each, at) => each * top[3] + bottom[at] * (1 - top[3]));
  const behind = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      const color = rgba(getComputedStyle(each).backgroundColor);
      if (color[3] > 0) layers.push(color);
      if (color[3] === 1) break;
    }
    return layers.reverse().reduce((under, each) => over(each, under), [255, 255, 255]);
  };
  const light = (color) => {
    const [r, g, b] = color.map((each) => each / 255).map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const each = node.parentElement;
    if (!node.textContent.trim() || seen.has(each) || !shown(each) || each.closest("svg, :disabled, .visually-hidden, .skip")) continue;
    seen.add(each);
    const style = getComputedStyle(each);
    const ground = behind(each);
    const ratio = contrast(over(rgba(style.color), ground), ground);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if (ratio < least) wrong.push(`contrast ${ratio.toFixed(2)}: ${node.textContent.trim().slice(0, 40)}`);
  }

  // Size: what is operated is 24 pixels high at least, but for links within text (2.5.8).
  for (const each of document.querySelectorAll("button, input:not([type=checkbox]), select")) {
    if (shown(each) && each.getBoundingClientRect().height < 24) wrong.push(`too small: ${short(each)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) wrong.push(`${document.documentElement.scrollWidth - innerWidth} pixels too wide`);
  return wrong;
}
