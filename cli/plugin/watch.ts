/**
 * `--watch`: shows an answer again whenever an object that it depends on changes.
 *
 * @module
 */

import { type Clock, nextTurn, sleep, systemClock } from "../../lvm/clock.ts";
import { lvmNodes, lvmSnapshots, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import type { ApiClient, Selection } from "../../k8s/client/client.ts";
import type { KubeObject, Resource } from "../../k8s/api/objects.ts";
import { Informer } from "../../k8s/runtime/informer.ts";

/** Objects on which an answer depends. */
export interface Watched {
  /** Their kind. */
  readonly resource: Resource;
  /** Which of them. */
  readonly selection?: Selection;
}

/** Options of {@linkcode showWhenChanged}. */
export interface WatchOptions {
  /** The API server. */
  readonly client: ApiClient;
  /** The objects on which the answer depends. */
  readonly watched: readonly Watched[];
  /** Aborted to end it. */
  readonly signal: AbortSignal;
  /** Time. */
  readonly clock?: Clock;
}

/** The kinds on which lists depend. */
export const LISTED: readonly Watched[] = [lvmNodes, lvmVolumes, lvmSnapshots].map((resource) => ({ resource }));

/** The time during which changes are gathered, in milliseconds: each answer is some ten requests. */
const BATCH_MS = 1_000;

/** The interval after which it is shown again without a change, in milliseconds: ages grow, and agents fall silent. */
const REFRESH_MS = 30_000;

/** The time to wait for the first lists, in milliseconds. A kind that may not be watched has none. */
const SYNC_MS = 10_000;

/** Shows an answer now and after each change, until the signal is aborted. */
export async function showWhenChanged(
  show: () => Promise<void>,
  { client, watched, signal, clock = systemClock }: WatchOptions,
): Promise<void> {
  const informers = watched.map(({ resource, selection }) =>
    new Informer<KubeObject>(client, resource, { ...selection, clock })
  );
  const running = informers.map((informer) => informer.start(signal));
  const synced = Promise.all(informers.map(({ synced }) => synced));
  const hasSynced = new AbortController();
  synced.then(() => hasSynced.abort());
  await sleep(clock, SYNC_MS, signal, hasSynced.signal);
  let changed = new AbortController();
  for (const informer of informers) informer.subscribe(() => changed.abort(), { replay: false });
  while (!signal.aborted) {
    changed = new AbortController();
    await show();
    await sleep(clock, REFRESH_MS, signal, changed.signal);
    await sleep(clock, BATCH_MS, signal);
  }
  await nextTurn();
  await Promise.all(running);
}
