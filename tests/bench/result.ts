/** The result of one run of the bench, with the keys of `deno task bench --json`. Times are in milliseconds. */
export interface BenchResult {
  /** The driver's version. */
  readonly version: string;
  /** The guest that the bench ran in. */
  readonly machine: { readonly cpus: number; readonly kernel: string; readonly kind: "uml" | "qemu" };
  /** The costs of a start. */
  readonly start: {
    /** The first start, with an empty cache: a self-extracting file unpacks itself. */
    readonly first: Start;
    /** The median of each time of the later ones, and how many they were. */
    readonly later: Start & { readonly runs: number };
    /** The median time that the runtime takes to run an empty file, by turns with the later starts. */
    readonly emptyFileMs: number;
  };
  /** The memory of the driver's process with all its descendants. */
  readonly memory: {
    /** Some seconds after the start. */
    readonly idle: Memory;
    /** After the calls of `calls`. */
    readonly afterCalls: Memory;
    /** After the operations. */
    readonly afterOperations: Memory;
  };
  /** Calls that run no command: GetPluginInfo and NodeGetInfo alternately. */
  readonly calls: { readonly count: number; readonly atATime: number; readonly perSecond: number };
  /** The operations, in the order in which they were made. */
  readonly operations: Readonly<Record<Operation, OperationResult>>;
}

/** The times of one start, each from the start of the process but the last. */
export interface Start {
  /** Until the socket takes connections. */
  readonly socketMs: number;
  /** Until a Probe that was sent as soon as it did is answered: ready. */
  readonly readyMs: number;
  /** The first call of a new connection after that: connecting, and GetPluginInfo. */
  readonly firstCallMs: number;
}

/** Memory in MiB. */
export interface Memory {
  /** Resident memory, the sum over the processes. */
  readonly rssMiB: number;
  /** The anonymous part of it: what the processes allocated themselves. */
  readonly anonymousMiB: number;
  /** The proportional set size: shared memory is divided among its users. Absent on some kernels. */
  readonly pssMiB?: number;
}

/** The costs of an operation, compared with what an administrator would type. */
export interface OperationResult {
  /** The median of the driver's times. */
  readonly driverMs: number;
  /** The median of the times of `plain`. */
  readonly plainMs: number;
  /** The first divided by the second. */
  readonly ratio: number;
  /** The number of commands that the driver ran. */
  readonly commands?: number;
  /** The commands that an administrator would type, in one of the runs. */
  readonly plain: readonly string[];
  /** Of how many runs the times are the medians. */
  readonly runs: number;
}

/** The operations, and what they are called in the table. */
export const OPERATIONS = {
  createVolume: "CreateVolume",
  deleteUnusedVolume: "DeleteVolume, never used",
  stageFirst: "NodeStageVolume, first",
  publish: "NodePublishVolume",
  stats: "NodeGetVolumeStats",
  expandVolume: "ControllerExpandVolume",
  expandFilesystem: "NodeExpandVolume",
  createSnapshot: "CreateSnapshot",
  deleteSnapshot: "DeleteSnapshot, answered",
  removeSnapshot: "… erased and removed",
  unpublish: "NodeUnpublishVolume",
  unstage: "NodeUnstageVolume",
  stageAgain: "NodeStageVolume, later",
  deleteUsedVolume: "DeleteVolume, used, answered",
  removeUsedVolume: "… erased and removed",
  clone: "CreateVolume, 128 MiB clone",
  createThin: "CreateVolume, thin",
  cloneThin: "CreateVolume, thin clone",
  listVolumes: "ListVolumes, 50 volumes",
} as const;

/** An operation. */
export type Operation = keyof typeof OPERATIONS;

/** Returns an object with a value for each operation, in their order. */
export function mapOperations<T>(value: (operation: Operation) => T): Record<Operation, T> {
  const entries = Object.keys(OPERATIONS).map((name) => [name, value(name as Operation)] as const);
  return Object.fromEntries(entries) as Record<Operation, T>;
}

/** The number of volumes for ListVolumes. */
export const LISTED_VOLUMES = 50;
