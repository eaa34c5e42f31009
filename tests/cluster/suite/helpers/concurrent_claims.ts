/**
 * Many claims at the same moment, and what becomes of them.
 *
 * @module
 */

import { volumeIdOf } from "../../../../base/ids.ts";
import type { TestNamespace } from "./test_namespace.ts";
import { claimObject, type ClaimSpec } from "./objects.ts";
import { WAIT_MS } from "./object_watcher.ts";

/** Creates claims at once that differ only in their names. */
export async function createClaimsAtOnce(
  ns: TestNamespace,
  names: readonly string[],
  spec: Omit<ClaimSpec, "name">,
): Promise<void> {
  await ns.apply(names.map((name) => JSON.stringify(claimObject({ ...spec, name }))).join("\n---\n"));
}

/** Waits until so many of the claims are bound; answers their names. @throws {Error} when that takes too long */
export async function waitForBound(ns: TestNamespace, names: readonly string[], count: number): Promise<string[]> {
  const claims = ns.informer("PersistentVolumeClaim");
  const bound = () => names.filter((name) => claims.get(`${ns.namespace}/${name}`)?.status?.phase === "Bound");
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const unsubscribe = claims.subscribe(() => bound().length >= count && resolve(true));
  const timer = setTimeout(() => resolve(false), WAIT_MS);
  const done = await promise;
  clearTimeout(timer);
  unsubscribe();
  if (!done) throw new Error(`wait until ${count} of ${names} are bound: ${bound().join(", ") || "none"} of them are`);
  return bound();
}

/** Returns the node of each claim's volume, by the claim's name. */
export async function nodesOf(ns: TestNamespace, names: readonly string[]): Promise<Record<string, string>> {
  const lvs = await ns.lvs();
  const nodeOf = async (name: string) => {
    const id = (await ns.volumeOf(name)).spec!.csi!.volumeHandle;
    return lvs.find(({ volume }) => volume === id)?.node ?? "";
  };
  return Object.fromEntries(await Promise.all(names.map(async (name) => [name, await nodeOf(name)] as const)));
}

/** Returns the failures of nodes to create volumes for claims, as their events describe them. */
export async function creationFailures(ns: TestNamespace, names: readonly string[]): Promise<string[]> {
  const claims = ns.informer("PersistentVolumeClaim");
  const ids = names.map((name) => volumeIdOf(`pvc-${claims.get(`${ns.namespace}/${name}`)?.metadata.uid}`));
  const events = (await Promise.all(ids.map((id) => ns.events("LVMVolume", id)))).flat();
  return events.filter(({ reason }) => reason === "Failed").map(({ message }) => message ?? "");
}
