import * as known from "../../../k8s/api/objects.ts";
import type { ResourceKind } from "./api_store.ts";

/** The kinds that every API server has, as far as the driver uses them. */
export const BUILT_IN_KINDS: readonly ResourceKind[] = [
  {
    resource: known.persistentVolumes,
    immutable: ["nodeAffinity"],
    hasStatusSubresource: true,
    countsGenerations: false,
    allowsUnconditionalUpdate: true,
  },
  {
    resource: known.persistentVolumeClaims,
    hasStatusSubresource: true,
    countsGenerations: false,
    allowsUnconditionalUpdate: true,
  },
  { resource: known.nodes, hasStatusSubresource: true, countsGenerations: false, allowsUnconditionalUpdate: true },
  { resource: known.pods, hasStatusSubresource: true, countsGenerations: true, allowsUnconditionalUpdate: true },
  {
    resource: known.statefulSets,
    hasStatusSubresource: true,
    countsGenerations: true,
    allowsUnconditionalUpdate: true,
  },
  {
    resource: known.events,
    hasStatusSubresource: false,
    countsGenerations: false,
    allowsUnconditionalUpdate: true,
    allowsCreateOnUpdate: true,
  },
  {
    resource: known.storageClasses,
    hasStatusSubresource: false,
    countsGenerations: false,
    allowsUnconditionalUpdate: true,
  },
  {
    resource: known.volumeAttributesClasses,
    hasStatusSubresource: false,
    countsGenerations: false,
    allowsUnconditionalUpdate: true,
  },
  { resource: known.csiNodes, hasStatusSubresource: false, countsGenerations: false, allowsUnconditionalUpdate: true },
  {
    resource: known.csiStorageCapacities,
    hasStatusSubresource: false,
    countsGenerations: false,
    allowsUnconditionalUpdate: true,
  },
  {
    resource: known.leases,
    hasStatusSubresource: false,
    countsGenerations: false,
    allowsUnconditionalUpdate: false,
    allowsCreateOnUpdate: true,
  },
];
