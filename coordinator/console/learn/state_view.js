// A state as a picture: lock, clients, store, members; two sides; counts; whatever a film has.

import { fill, h, scrolls } from "/console/shared/dom.js";

/** Draw `state` into `element`. */
export function stateView(element, state) {
  if (state.theirs || state.ours) {
    fill(element, h("div", { class: "sides" }, side("Redis", state.theirs), side("Ours",
      state.ours)));
    return;
  }
  fill(
    element,
    state.lock && lockCard(state.lock, state),
    state.clients && h("div", { class: "clients" }, entries(state.clients).map(clientCard)),
    state.store && storeCard(state.store),
    state.members && membersCard(state.members, state.cut ?? {}),
    state.counts && countsCard(state.counts),
    state.graph && factsCard("Who waits for whom", state.graph),
    state.seat && factsCard("Seat 1A", { now: state.seat, tickets: list(state.tickets) }),
    state.locks && tableCard("Locks", ["lock", "holder", "token", "waiting"], state.locks),
    state.sessions && tableCard("Sessions", ["session", "label", "state"], state.sessions),
    state.world && factsCard("World", state.world),
  );
}

function lockCard(lock, state) {
  const isHeld = lock.holder !== undefined && lock.holder !== "free";
  return h(
    "div",
    { class: `card lock ${isHeld ? "held" : ""}` },
    h("h3", {}, lock.name ? `Lock ${lock.name}` : "Lock"),
    h("p", { class: "big" }, isHeld ? `${lock.holder} holds` : "UNLOCKED"),
    h("dl", { class: "facts" },
      fact("fencing token", lock.token),
      fact("next token", state.next_token),
      fact("waiting", list(lock.queue))),
    leaseBar(lock),
  );
}

function leaseBar(lock) {
  if (!lock.lease_ms) return null;
  const left = lock.holder === undefined ? 0 : Math.max(0, lock.left_ms ?? lock.lease_ms);
  const share = Math.min(100, (100 * left) / lock.lease_ms);
  const text = lock.holder === undefined ? "no lease" : `lease: ${(left / 1000).toFixed(1)} s left`;
  return h(
    "div",
    { class: "lease" },
    h("div", {
      class: "bar", role: "progressbar", "aria-label": "Lease, by the leader's clock",
      "aria-valuemin": "0", "aria-valuemax": String(lock.lease_ms),
      "aria-valuenow": String(Math.round(left)), "aria-valuetext": text,
    }, h("div", { class: "left", style: { width: `${share}%` } })),
    h("span", { class: "muted" }, text),
  );
}

function clientCard([name, client]) {
  const word = String(client?.state ?? client);
  return h(
    "div",
    { class: `card client ${word.split(" ")[0]}` },
    h("h3", {}, `Client ${name}`),
    h("p", { class: "big" }, word),
    h("p", { class: "muted" }, client?.token ? `token ${client.token}` : "no token"),
  );
}

function storeCard(store) {
  const isFenced = store.is_fenced !== false;
  return h(
    "div",
    { class: `card store ${store.shield ? "shielded" : ""} ${store.damage ? "damaged" : ""}` },
    h("h3", {}, "Store"),
    h("p", { class: "big" }, `“${store.value}”`),
    h("dl", { class: "facts" },
      fact("max token", store.highest_token),
      fact("fencing", isFenced ? "on" : "off")),
    store.shield && h("p", { class: "shield", role: "alert" }, store.shield),
    store.damage && h("p", { class: "damage", role: "alert" }, store.damage),
  );
}

function membersCard(members, cut) {
  return h(
    "div",
    { class: "card members" },
    h("h3", {}, "Members"),
    h("ul", {}, entries(members).map(([name, member]) => {
      const role = member.is_up === false ? "down" : member.role || "unknown";
      const kind = { leader: "good", down: "bad", candidate: "warn" }[role] ?? "";
      return h("li", {},
        h("span", {}, `member ${name}`),
        h("span", { class: `mark ${kind}` }, role),
        member.term ? h("span", { class: "muted" }, `term ${member.term}`) : null,
        cut[name] && h("span", { class: "mark bad" }, "cut off"),
        member.is_ready === false && member.is_up ? h("span", { class: "mark warn" }, "not ready")
          : null);
    })),
  );
}

function countsCard(counts) {
  const most = Math.max(1, counts.herd ?? 0, counts.predecessor ?? 0);
  const row = (label, count) => h("div", { class: "count" },
    h("span", {}, label),
    h("div", { class: "bar" }, h("div", { class: "left",
      style: { width: `${(100 * count) / most}%` } })),
    h("strong", {}, String(count)));
  return h("div", { class: "card wide" },
    h("h3", {}, `Wake-ups of ${counts.waiters ?? "?"} clients`),
    row("all watch the holder", counts.herd ?? 0),
    row("each watches its predecessor", counts.predecessor ?? 0));
}

function side(name, given) {
  if (!given) return null;
  return h(
    "div",
    { class: "side" },
    h("h3", {}, name),
    given.masters && h("ul", { class: "masters" }, entries(given.masters).map(([master, holder]) =>
      h("li", { class: `mark ${holder === "free" ? "" : holder === "down" ? "bad" : "accent"}` },
        `${master}: ${holder}`))),
    given.believers && h("p", { class: given.believers.length > 1 ? "damage" : "" },
      given.believers.length > 1
        ? `Two believe to hold: ${list(given.believers)}`
        : `believes to hold: ${list(given.believers) || "nobody"}`),
    given.lock && lockCard(given.lock, {}),
    given.clients && h("dl", { class: "facts" }, entries(given.clients).map(([who, state]) =>
      fact(`client ${who}`, state))),
    given.store && storeCard({ ...given.store, is_fenced: given.store.highest_token !== undefined,
      shield: given.shield, damage: given.damage }),
  );
}

function factsCard(title, facts) {
  return h("div", { class: "card wide" }, h("h3", {}, title),
    h("dl", { class: "facts" }, entries(facts).map(([name, value]) => fact(name, value))));
}

function tableCard(title, heads, rows) {
  return h("div", { class: "card wide" }, h("h3", {}, title), h("div", scrolls(title),
    h("table", {},
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, entries(rows).slice(0, 50).map(([name, row]) => h("tr", {}, h("td",
        { class: "mono" }, name),
        heads.slice(1).map((head) => h("td", {}, show(row?.[head])))))))));
}

function fact(name, value) {
  if (value === undefined || value === "") return null;
  return [h("dt", {}, name), h("dd", {}, show(value))];
}

function show(value) {
  if (value === undefined || value === null) return "–";
  return Array.isArray(value) ? list(value) : String(typeof value === "object"
    ? JSON.stringify(value) : value);
}

function list(values) {
  return Array.isArray(values) ? values.map(String).join(", ") : "";
}

function entries(object) {
  return Object.entries(object ?? {});
}
