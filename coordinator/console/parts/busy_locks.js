// The locks that anybody waits for, the longest queues first.

import { Paged } from "./paged.js";
import { segment } from "../shared/api.js";

export const LOCKS_MAX = 24;
export const QUEUE_MAX = 6;

/** Return the views of those with the longest queues, and in `total` how many there are. */
export async function busyLocks(api) {
  const paged = new Paged(async (after) => {
    const page = await api.get("/v1/locks", { after, limit: 1_000 });
    return { rows: page.locks.filter((each) => each.queue_length), next: page.next };
  });
  await paged.all();
  const busy = paged.rows.sort((one, other) => other.queue_length - one.queue_length);
  const views = await Promise.all(
    busy.slice(0, LOCKS_MAX).map((each) => api.get(`/v1/locks/${segment(each.lock)}`)),
  );
  views.total = busy.length;
  return views;
}

/** Return a view with as many of its contenders as can be drawn. */
export function shortened(view) {
  return {
    ...view,
    holders: view.holders.slice(0, QUEUE_MAX),
    queue: view.queue.slice(0, QUEUE_MAX),
  };
}
