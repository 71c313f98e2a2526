// What axe-core does not look at, of a page for who can not see it well, or not at all.
() => {
  const wrong = [];
  const shown = (each) => {
    const style = getComputedStyle(each);
    return each.getClientRects().length > 0 && style.visibility !== "hidden" && style.opacity !== "0";
  };
  const short = (each) => each.outerHTML.slice(0, 120).replace(/\s+/g, " ");

  for (const each of document.querySelectorAll("[role=meter], figure, table, nav, dialog")) {
    const labels = ["aria-label", "aria-labelledby"].map((name) => each.getAttribute(name));
    const isNamed = labels.some(Boolean) || each.querySelector(":scope > figcaption, :scope > caption");
    if (shown(each) && !isNamed) wrong.push(`no name: ${short(each)}`);
  }
  const first = [...document.querySelectorAll("h1")].filter(shown);
  if (first.length !== 1) wrong.push(`first headings: ${first.length}`);
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  for (const id of new Set(ids)) if (ids.filter((each) => each === id).length > 1) wrong.push(`twice: #${id}`);
  for (const each of document.querySelectorAll("th")) if (!each.scope) wrong.push(`no scope: ${short(each)}`);
  for (const each of document.querySelectorAll("[aria-labelledby], [aria-describedby]")) {
    for (const name of ["aria-labelledby", "aria-describedby"]) {
      for (const id of (each.getAttribute(name) ?? "").split(" ")) if (id && !document.getElementById(id)) wrong.push(`${name} names nothing: ${id}`);
    }
  }

  // Size: what is operated is 24 pixels high at least, wherever it is (axe looks at its distance).
  for (const each of document.querySelectorAll("button, input:not([type=checkbox]), select")) {
    if (shown(each) && each.getBoundingClientRect().height < 24) wrong.push(`too small: ${short(each)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) wrong.push(`${document.documentElement.scrollWidth - innerWidth} pixels too wide`);
  return wrong;
}
