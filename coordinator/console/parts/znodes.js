// What recipes keep in the tree, read for the screens that show them.

import { znodeAddress } from "../shared/api.js";

const AT_ONCE = 20;
export const LISTED_MAX = 200;

/** Return the children of a znode with their Stat, the first `limit`; none if it is not there. */
export async function childrenOf(api, path, limit = LISTED_MAX) {
  try {
    const page = await api.get(znodeAddress(path), { children: true, stat: true, limit });
    return page.children;
  } catch (error) {
    if (error.status === 404 || error.status === 403) return [];
    throw error;
  }
}

/** Return the JSON in a znode's data; null if there is none, or it is not there. */
export async function jsonOf(api, path) {
  try {
    return JSON.parse((await api.get(znodeAddress(path))).data);
  } catch {
    return null;
  }
}

/** Call `work` for each item, some at a time; return the results in order. */
export async function each(items, work) {
  const results = [];
  for (let at = 0; at < items.length; at += AT_ONCE) {
    results.push(...(await Promise.all(items.slice(at, at + AT_ONCE).map(work))));
  }
  return results;
}

/** Return the name that a segment of a path stands for. */
export function nameOf(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
