// A list that a member gives in pages: read as far as it is looked at, or whole when it is sorted.

export class Paged {
  /** `read(after)` returns {rows, next}. */
  constructor(read, { max = 100_000 } = {}) {
    this.read = read;
    this.max = max;
    this.reset();
  }

  reset() {
    this.rows = [];
    this.next = undefined;
    this.isWhole = false;
    this.life = (this.life ?? 0) + 1;
    this.reading = null;
  }

  /** Read one page more; several callers share it. */
  more() {
    if (this.isWhole) return Promise.resolve(false);
    this.reading ??= this.#page(this.life).finally(() => {
      this.reading = null;
    });
    return this.reading;
  }

  /** Read all pages, with `onPage` after each. */
  async all(onPage) {
    const { life } = this;
    while (this.life === life && (await this.more())) onPage?.();
  }

  async #page(life) {
    const { rows, next } = await this.read(this.next);
    if (life !== this.life) return false;
    this.rows.push(...rows);
    this.next = next;
    this.isWhole = next === null || next === undefined || this.rows.length >= this.max;
    return true;
  }
}
