// The public HTTP API of the member that served this page.
//
// 1. The token is kept for this tab alone (sessionStorage), and is sent in the Authorization header
//    alone: never in an address, never in a cookie. So no other site can act in its name.
// 2. A write carries a client id and a request number, and is repeated with the same two while its
//    outcome is unknown: it is done once.
// 3. Whatever is refused is a `Problem`, which says what was expected, what was found, what to do.

const TOKEN = "coordinator.token";
const REPEATS_MAX = 4;

/** A request that was refused, or whose outcome is unknown (`isDefinite` is false). */
export class Problem extends Error {
  constructor(body, status) {
    super(body.detail || body.title || `the member answered ${status}`);
    this.status = status;
    this.code = body.code || "Error";
    this.isDefinite = body.definite !== false;
    this.body = body;
  }
}

/** No answer came: the member is gone, or the network between. */
class NoAnswer extends Problem {
  constructor(cause) {
    super({ detail: "the member does not answer", code: "ConnectionLost", definite: false }, 0);
    this.cause = cause;
  }
}

export class Api {
  #clientId = randomId();
  #number = 0;
  #listeners = new Set();

  get token() {
    return sessionStorage.getItem(TOKEN) || "";
  }

  /** Keep a token for this tab; "" forgets it. */
  set token(value) {
    if (value) sessionStorage.setItem(TOKEN, value);
    else sessionStorage.removeItem(TOKEN);
  }

  /** Call `listener(problem | null)` after each request: null when it was answered. */
  onAnswer(listener) {
    this.#listeners.add(listener);
  }

  /** Return the body of a read; `query` is an object of names and values (true: the name alone). */
  async get(path, query = {}, signal = undefined) {
    const response = await this.#fetch("GET", address(path, query), { signal });
    return response.json();
  }

  /** Return the text of a read: of the metrics. */
  async text(path, signal = undefined) {
    return (await this.#fetch("GET", path, { signal })).text();
  }

  /** Do a write once, and return the body of its answer. */
  async send(method, path, body = undefined, query = {}) {
    this.#number += 1;
    const headers = {
      "Coordinator-Client-Id": this.#clientId,
      "Coordinator-Request-Number": String(this.#number),
    };
    for (let attempt = 1; ; attempt += 1) {
      try {
        const response = await this.#fetch(method, address(path, query), { body, headers });
        return await response.json();
      } catch (problem) {
        const isOver = problem.isDefinite !== false && problem.status !== 503;
        if (!(problem instanceof Problem) || isOver || attempt >= REPEATS_MAX) throw problem;
        await pause(250 * attempt);
      }
    }
  }

  /**
   * Call `onLine(object)` for each line of a response that goes on, until it ends or `signal` is
   * aborted. `body` makes it a POST. `method` is for the streams that a write opens.
   */
  async lines(path, { query = {}, body = undefined, signal, onLine }) {
    const headers = { Accept: "application/x-ndjson" };
    const method = body === undefined ? "GET" : "POST";
    const response = await this.#fetch(method, address(path, query), { body, headers, signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read().catch((error) => {
        if (signal?.aborted) return { done: true };
        throw new NoAnswer(error);
      });
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.trim()) onLine(JSON.parse(line));
    }
  }

  async #fetch(method, target, { body, headers = {}, signal } = {}) {
    const sent = { ...headers };
    if (this.token) sent.Authorization = `Bearer ${this.token}`;
    if (body !== undefined || method === "POST") sent["Content-Type"] = "application/json";
    const text = body === undefined ? undefined : JSON.stringify(body);
    let response;
    try {
      const credentials = "omit";
      response = await fetch(target, { method, headers: sent, body: text, signal, credentials });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw this.#said(new NoAnswer(error));
    }
    if (!response.ok) throw this.#said(await problemOf(response));
    this.#said(null);
    return response;
  }

  #said(problem) {
    for (const listener of this.#listeners) listener(problem);
    return problem;
  }
}

/** Return a path with its query; of several values a list. */
export function address(path, query = {}) {
  const parts = [];
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === false || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) {
      parts.push(each === true ? name : `${name}=${encodeURIComponent(each)}`);
    }
  }
  return parts.length ? `${path}?${parts.join("&")}` : path;
}

/** Return a name as one segment of an address: a slash in it is %2F. */
export function segment(name) {
  return encodeURIComponent(name);
}

/** Return the address of a znode. */
export function znodeAddress(path) {
  return `/v1/tree${path === "/" ? "" : path.split("/").map(encodeURIComponent).join("/")}`;
}

/** Return the sentence that a person is shown of any error. */
export function inWords(error) {
  if (!(error instanceof Problem)) return String(error?.message || error);
  const unknown = error.isDefinite ? "" : " It is not known whether it was done.";
  return sentence(error.message) + unknown;
}

/** Return text as a sentence: with a capital and a full stop. */
export function sentence(text) {
  const said = text.trim();
  if (!said) return "";
  return said[0].toUpperCase() + said.slice(1) + (/[.!?]$/.test(said) ? "" : ".");
}

async function problemOf(response) {
  try {
    return new Problem(await response.json(), response.status);
  } catch {
    return new Problem({ definite: response.status < 500 }, response.status);
  }
}

function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `console-${Array.from(bytes, (each) => each.toString(16).padStart(2, "0")).join("")}`;
}

export function pause(ms) {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
