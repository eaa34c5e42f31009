import type { Operation } from "./result.ts";

/** One side's part in an operation. */
export interface Side {
  /** Prepares the operation. This is not measured. */
  prepare?(): Promise<unknown>;
  /** Runs the operation. This is measured. */
  run(): Promise<unknown>;
}

/** One side's part in each of some operations. */
export type Sides<O extends Operation> = Readonly<Record<O, Side>>;

/**
 * The operations of a volume's lifecycle. Those within brackets follow each other at once: the second continues from
 * where the first has answered, and its costs count from the start of the first.
 */
export const LIFECYCLE = [
  ["createVolume"],
  ["deleteUnusedVolume"],
  ["stageFirst"],
  ["publish"],
  ["stats"],
  ["expandVolume"],
  ["expandFilesystem"],
  ["createSnapshot"],
  ["deleteSnapshot", "removeSnapshot"],
  ["unpublish"],
  ["unstage"],
  ["stageAgain"],
  ["deleteUsedVolume", "removeUsedVolume"],
] as const satisfies readonly (readonly Operation[])[];

/** The ways to create volumes with content, or in thin pools. The volumes of an earlier run are removed first. */
export const CREATION = [
  ["clone"],
  ["createThin"],
  ["cloneThin"],
] as const satisfies readonly (readonly Operation[])[];

/** An operation that creates such a volume. */
export type CreationOperation = typeof CREATION[number][number];

/** An operation of a volume's lifecycle. */
export type LifecycleOperation = typeof LIFECYCLE[number][number];

/** The sizes in MiB: of a volume, of the expanded volume, of a snapshot's COW space, of a thin pool. */
export const SIZES_MIB = { volume: 128, grown: 192, snapshot: 32, pool: 512 } as const;
