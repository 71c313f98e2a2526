// A table of any length: only the rows that can be seen are in the page.
//
// A screen reader is told how many rows there are and which one it reads; arrow keys, Page Up, Page
// Down, Home and End move along the rows, Enter opens one.

import { fill, h } from "../shared/dom.js";

const ROW_PX = 41;
const BEYOND = 8;

/**
 * columns: {title, cell(row), className, sort(row) -> number | text, isDescending}
 * onOpen(row): what Enter or a click on a row does. name(row): what it is called.
 * onEnd(): more rows may be had. key(row): which rows are the same.
 */
export class VirtualTable {
  constructor({ label, columns, onOpen, key, onEnd = () => {}, empty = "There is nothing here." }) {
    Object.assign(this, { columns, onOpen, key, onEnd, empty });
    this.rows = [];
    this.total = null;
    this.at = 0;
    this.sorted = columns.findIndex((each) => each.isFirst);
    this.isUp = false;
    this.body = h("tbody", {});
    this.heads = columns.map((column, index) => this.#head(column, index));
    this.table = h(
      "table",
      { "aria-label": label, class: "virtual" },
      h("thead", {}, h("tr", { "aria-rowindex": 1 }, this.heads)),
      this.body,
    );
    this.nothing = h("p", { class: "muted nothing", hidden: true });
    this.view = h("div", { class: "scrolls window", tabindex: "-1" }, this.table, this.nothing);
    this.element = h("div", { class: "list" }, this.view);
    this.view.addEventListener("scroll", () => this.#draw(), { passive: true });
    this.table.addEventListener("keydown", (event) => this.#onKey(event));
    new ResizeObserver(() => this.#draw()).observe(this.view);
  }

  /** Show these rows; `total` is how many there are if not all were read yet. */
  show(rows, { total = null, empty = this.empty } = {}) {
    this.total = total;
    this.empty = empty;
    this.unsorted = rows;
    this.rows = this.#inOrder(rows);
    this.#draw(true);
  }

  #inOrder(rows) {
    const column = this.columns[this.sorted];
    if (!column?.sort) return rows;
    const way = this.isUp !== Boolean(column.isText) ? 1 : -1;
    const keyed = rows.map((row) => [column.sort(row) ?? -1, row]);
    keyed.sort(([one], [other]) => (one === other ? 0 : (one < other ? -1 : 1) * way));
    return keyed.map(([, row]) => row);
  }

  #head(column, index) {
    if (!column.sort) return h("th", { scope: "col", class: column.className }, column.title);
    const button = h(
      "button",
      { type: "button", class: "sort" },
      column.title,
      h("span", { class: "arrow", "aria-hidden": "true" }),
    );
    button.addEventListener("click", () => {
      this.isUp = this.sorted === index ? !this.isUp : false;
      this.sorted = index;
      this.rows = this.#inOrder(this.unsorted ?? []);
      this.view.scrollTop = 0;
      this.#draw(true);
    });
    return h("th", { scope: "col", class: column.className }, button);
  }

  #draw() {
    const { rows } = this;
    const height = this.view.clientHeight || 600;
    const first = Math.max(0, Math.floor(this.view.scrollTop / ROW_PX) - BEYOND);
    const last = Math.min(rows.length, first + Math.ceil(height / ROW_PX) + 2 * BEYOND);
    this.heads.forEach((head, index) => {
      const isOne = index === this.sorted && this.columns[index].sort;
      const goesUp = this.isUp !== Boolean(this.columns[index].isText);
      head.setAttribute("aria-sort", isOne ? (goesUp ? "ascending" : "descending") : "none");
    });
    this.table.setAttribute("aria-rowcount", String((this.total ?? rows.length) + 1));
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    const [key, name] = [focused?.closest("tr")?.dataset.key, focused?.dataset.focus];
    fill(
      this.body,
      first > 0 && spacer(first * ROW_PX, this.columns.length),
      rows.slice(first, last).map((row, index) => this.#row(row, first + index)),
      last < rows.length && spacer((rows.length - last) * ROW_PX, this.columns.length),
    );
    if (key !== undefined) {
      const again = [...this.body.children].find((each) => each.dataset.key === key);
      (name ? again?.querySelector(`[data-focus="${name}"]`) : again)?.focus({
        preventScroll: true,
      });
    }
    this.nothing.hidden = rows.length > 0;
    this.table.hidden = !rows.length;
    fill(this.nothing, this.empty);
    if (last >= rows.length - BEYOND) this.onEnd();
  }

  #row(row, index) {
    const isOpened = Boolean(this.onOpen);
    return h(
      "tr",
      {
        "aria-rowindex": index + 2,
        "data-key": this.key(row),
        "data-index": index,
        tabindex: index === this.at ? "0" : "-1",
        class: isOpened ? "opens" : undefined,
        onclick: isOpened
          ? (event) => !event.target.closest("a, button") && this.onOpen(row)
          : undefined,
      },
      this.columns.map((column) => h("td", { class: column.className }, column.cell(row))),
    );
  }

  #onKey(event) {
    const row = event.target.closest("tbody tr");
    if (!row) return;
    const page = Math.max(1, Math.floor(this.view.clientHeight / ROW_PX) - 2);
    const index = Number(row.dataset.index);
    const moves = {
      ArrowDown: index + 1,
      ArrowUp: index - 1,
      PageDown: index + page,
      PageUp: index - page,
      Home: 0,
      End: this.rows.length - 1,
    };
    if (event.key === "Enter" && event.target === row && this.onOpen) {
      event.preventDefault();
      this.onOpen(this.rows[index]);
    } else if (event.key in moves) {
      event.preventDefault();
      this.#goTo(Math.max(0, Math.min(this.rows.length - 1, moves[event.key])));
    }
  }

  #goTo(index) {
    this.at = index;
    const top = index * ROW_PX;
    const { scrollTop, clientHeight } = this.view;
    if (top < scrollTop) this.view.scrollTop = top;
    else if (top + 2 * ROW_PX > scrollTop + clientHeight)
      this.view.scrollTop = top + 2 * ROW_PX - clientHeight;
    this.#draw();
    this.body.querySelector(`tr[data-index="${index}"]`)?.focus({ preventScroll: true });
  }
}

function spacer(px, columns) {
  return h(
    "tr",
    { class: "spacer", "aria-hidden": "true" },
    h("td", { colspan: columns, style: { height: `${px}px` } }),
  );
}
