// What the person may do: asked of the member, so that nothing is offered that it would refuse.

export class Rights {
  #known = new Map();

  constructor(api) {
    this.api = api;
    this.isOn = false;
    this.identity = "anonymous";
  }

  /** Ask who the caller is; what was known is forgotten. */
  async load() {
    this.#known.clear();
    const me = await this.api.get("/v1/access/me");
    this.isOn = me.is_on;
    this.identity = me.identity;
  }

  /** Return whether the person may do `verb` at `resource`: a path, or such as @sessions. */
  async may(verb, resource) {
    if (!this.isOn) return true;
    const key = `${verb} ${resource}`;
    if (!this.#known.has(key)) {
      const query = { identity: this.identity, verb, resource };
      const asked = this.api.get("/v1/access/can", query).then(
        (verdict) => verdict.is_allowed,
        () => false,
      );
      this.#known.set(key, asked);
    }
    return this.#known.get(key);
  }

  /** The name that a deed is recorded under, to begin with. */
  get by() {
    return this.isOn ? this.identity : "";
  }
}
