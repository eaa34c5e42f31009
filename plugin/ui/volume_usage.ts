/**
 * How full the filesystem of a volume is, as kubelet measures it.
 *
 * @module
 */

/** How full a volume is, in bytes. */
export interface VolumeUsage {
  readonly used: number;
  readonly capacity: number;
  readonly inodesUsed?: number;
  readonly inodes?: number;
}

/** Returns the path at which the API server passes on kubelet's statistics (the Summary API of kubelet). */
export function summaryPath(node: string): string {
  return `/api/v1/nodes/${encodeURIComponent(node)}/proxy/stats/summary`;
}

/** The part of the answer that is read. */
interface Summary {
  readonly pods?: readonly {
    readonly volume?: readonly {
      readonly pvcRef?: { readonly namespace?: string; readonly name?: string };
      readonly usedBytes?: number;
      readonly capacityBytes?: number;
      readonly inodesUsed?: number;
      readonly inodes?: number;
    }[];
  }[];
}

/**
 * Finds a claim in kubelet's statistics.
 *
 * @param claim as `namespace/name`
 * @returns `undefined` for a claim that no pod on the node has mounted, or that kubelet has not measured
 */
export function usageInSummary(json: string, claim: string): VolumeUsage | undefined {
  const { pods = [] } = JSON.parse(json) as Summary;
  for (
    const { pvcRef, usedBytes: used, capacityBytes: capacity, inodesUsed, inodes } of pods.flatMap(({ volume = [] }) =>
      volume
    )
  ) {
    if (`${pvcRef?.namespace}/${pvcRef?.name}` !== claim || used === undefined || capacity === undefined) continue;
    return { used, capacity, ...(inodesUsed !== undefined && inodes !== undefined && { inodesUsed, inodes }) };
  }
  return undefined;
}
