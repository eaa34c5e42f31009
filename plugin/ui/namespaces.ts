/**
 * The space that the volumes of each namespace have.
 *
 * @module
 */

import type { VolumeView } from "../diagnosis/volumes.ts";
import { compareText } from "../problem.ts";

/** The volumes of a namespace. Sizes are in bytes. */
export interface NamespaceUse {
  /** Its name; empty for volumes without a claim. */
  readonly namespace: string;
  readonly volumes: number;
  /** The sizes of its volumes; of thin ones, the virtual sizes. */
  readonly size: bigint;
}

/** Returns the namespaces, those with the most space first. */
export function namespaceUses(volumes: readonly Pick<VolumeView, "claim" | "size">[]): NamespaceUse[] {
  const uses = Map.groupBy(volumes, ({ claim }) => claim?.split("/")[0] ?? "");
  return [...uses].map(([namespace, own]) => ({
    namespace,
    volumes: own.length,
    size: own.reduce((sum, { size }) => sum + size, 0n),
  })).sort((a, b) => a.size === b.size ? compareText(a.namespace, b.namespace) : a.size < b.size ? 1 : -1);
}
