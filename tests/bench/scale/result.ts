/** What a part of the measurement cost the controller. */
export interface Cost {
  /** CPU time of all its threads, in milliseconds. */
  readonly cpuMs: number;
  /** The longest time for which its event loop served nothing, and that of the 99th percentile, in milliseconds. */
  readonly stall: { readonly longestMs: number; readonly p99Ms: number };
  /** Its requests, without those for Leases of agents. */
  readonly requests: number;
  /** The bytes of objects that the server sent, in answers and on watches. */
  readonly bytes: number;
}

/** Times of claims from their creation until they were Bound, in milliseconds. */
export interface BoundTimes {
  readonly count: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** Memory of the controller, in MiB. */
export interface ControllerMemory {
  /** V8's heap after garbage was collected. */
  readonly heapMiB: number;
  readonly rssMiB: number;
  readonly anonymousMiB: number;
}

/** The result of one cluster size. */
export interface ScaleResult {
  readonly nodes: number;
  readonly volumes: number;
  /** From the start of the process until it leads and has nothing left to do. */
  readonly start: Cost;
  readonly memory: ControllerMemory;
  /** Claims for chosen nodes, all at once. */
  readonly burst: Cost & BoundTimes;
  /** Claims for chosen nodes, so many in a second. */
  readonly steady: Cost & BoundTimes & { readonly perSecond: number };
  /** Claims whose nodes the driver chooses, all at once. */
  readonly immediate: Cost & BoundTimes;
  /** The deletion of all claims above at once, and how long it took. */
  readonly deletion: Cost & { readonly count: number; readonly ms: number };
  /** Nodes whose agents are silent, with a claim each; as many claims for other nodes; and all agents are back at once. */
  readonly reboot: {
    readonly nodes: number;
    readonly others: BoundTimes;
    readonly silent: Cost;
    readonly back: Cost & { readonly ms: number };
  };
  /** Another process, which has listed everything, becomes the leader. */
  readonly takeover: Cost & { readonly ms: number };
  readonly memoryAfter: ControllerMemory;
}

/** A run: what was measured, and on what machine. */
export interface ScaleReport {
  readonly version: string;
  readonly cpus: number;
  /** The load of the machine at the beginning and at the end, over a minute. */
  readonly load: readonly number[];
  readonly results: readonly ScaleResult[];
}
