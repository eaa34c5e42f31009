/**
 * The rows of the record of proof: what is run to show that the driver works, and the code that each shows.
 *
 * @module
 */

import { SUITES as GUEST_SUITES } from "../lvm/suites.ts";

/** What is run as a whole, by one command. */
export interface Row {
  /** The task with its arguments, which is also the name of the row: `test:cluster move`. */
  readonly command: string;
  /** The beginnings of the paths of the product that it shows; empty for all. */
  readonly covers: readonly string[];
  /** Whether CI runs it at each commit (`always`), draws it, or people run it (`by hand`), as it takes long. */
  readonly ci: "always" | "drawn" | "by hand";
  /** Its time while none is recorded, in seconds. */
  readonly seconds?: number;
}

const MACHINE = ["lvm/", "csi/", "base/"];
const NODE = ["k8s/agent/", ...MACHINE];
const CLAIMS = ["k8s/provisioner/", "k8s/service/", "k8s/scheduling/", "k8s/sidecars/"];
const SNAPSHOTS = ["k8s/snapshotter/", "lvm/snapshots/", "lvm/copies/"];
const TRANSFERS = ["k8s/transfers/", "lvm/transfers/", "lvm/copies/"];
const HANDOVER = ["k8s/handover/", "lvm/volumes/", ...TRANSFERS];
const RUNTIME = ["k8s/runtime/", "k8s/client/"];
const INSTALL = ["deploy/", "cli/"];
const PLUGIN = ["plugin/"];
const LIMITS = ["k8s/agent/", "k8s/resizer/", "lvm/host/"];

/** The suites in a cluster, with what each shows. */
const CLUSTER_SUITES: Readonly<Record<string, readonly string[]>> = {
  adopt: [...HANDOVER, ...PLUGIN],
  bare_host: INSTALL,
  capacity: CLAIMS,
  changed_blocks: ["lvm/differences/", "k8s/transfers/", "k8s/snapshotter/"],
  chart: INSTALL,
  chaos_api: [...RUNTIME, ...CLAIMS],
  chaos_copies: [...SNAPSHOTS, ...NODE],
  chaos_guides: ["deploy/"],
  chaos_io_limits: LIMITS,
  chaos_kills: [...NODE, ...CLAIMS],
  chaos_leader: ["k8s/runtime/", "cli/"],
  chaos_moves: HANDOVER,
  chaos_moves_power: HANDOVER,
  chaos_node: [...NODE, "lvm/staging/"],
  chaos_sidecars: ["csi/", ...CLAIMS],
  chaos_snapshots: SNAPSHOTS,
  chaos_timings: [...RUNTIME, ...NODE],
  chaos_transfers: TRANSFERS,
  chaos_unused_rbac: ["deploy/"],
  copies: SNAPSHOTS,
  copies_thin: [...SNAPSHOTS, "lvm/pools/"],
  disks: ["lvm/disks/", "k8s/disks/"],
  encryption: ["lvm/encryption/", "k8s/sidecars/"],
  ephemeral: CLAIMS,
  examples: ["deploy/", "csi/"],
  expansion: ["k8s/resizer/", ...MACHINE],
  forget_node: ["plugin/node_removal/"],
  group_snapshots: ["lvm/group_snapshots/", "k8s/snapshotter/"],
  health: ["lvm/health/", "k8s/agent/"],
  import: [...HANDOVER, ...PLUGIN],
  io_limits: LIMITS,
  kubernetes_storage: [],
  lifecycle: [],
  monitoring: ["cli/metrics/", "deploy/monitoring/"],
  move: HANDOVER,
  move_postgresql: HANDOVER,
  node_isolation: ["deploy/chart/", "k8s/api/"],
  observability: ["cli/", "k8s/runtime/"],
  orphans: ["k8s/agent/", "lvm/deletion/"],
  pending_claim: [...CLAIMS, ...PLUGIN],
  pods: NODE,
  raid: ["lvm/health/", "lvm/settings/"],
  runbooks: PLUGIN,
  snapshot_autoextend: ["lvm/snapshots/"],
  snapshots: SNAPSHOTS,
  stacked_devices: ["lvm/inventory/", "lvm/client/", "lvm/disks/"],
  thin: ["lvm/pools/", "lvm/volumes/"],
  transfers: TRANSFERS,
  two_nodes: [...CLAIMS, "lvm/inventory/"],
  ui: ["plugin/ui/", "plugin/diagnosis/"],
};

/** The suites in a cluster that CI does not draw: they take more than ten minutes, alone or with those that they look back at. */
const LONG_CLUSTER_SUITES = [
  "chaos_moves",
  "chaos_moves_power",
  "chaos_transfers",
  "chaos_unused_rbac",
  "kubernetes_storage",
];

/** The suites in a cluster that run in CI at each commit: the common lifecycle. */
const ALWAYS_CLUSTER_SUITES = ["lifecycle", "node_isolation"];

/** The suites in a guest, with what each shows; the others show all of {@linkcode MACHINE}. */
const GUEST_COVERS: Readonly<Record<string, readonly string[]>> = {
  apparmor: ["lvm/exec.ts", "deploy/"],
  differences: ["lvm/differences/"],
  disks: ["lvm/disks/"],
  encryption_cost: ["lvm/encryption/"],
  erasure: ["lvm/deletion/", "lvm/volumes/"],
  group_snapshots: ["lvm/group_snapshots/"],
  hostile_tenants: ["lvm/inventory/", "lvm/client/", "lvm/host/", "lvm/staging/"],
  large_difference: ["lvm/differences/"],
  layouts: ["lvm/settings/", "lvm/volumes/", "lvm/health/"],
  permission_set: ["deno.json", "cli/"],
  selinux: ["lvm/exec.ts", "deploy/"],
  stacked_devices: ["lvm/inventory/", "lvm/client/"],
  transfers: TRANSFERS,
};

const ALWAYS: readonly Row[] = [
  { command: "test", covers: [], ci: "always", seconds: 150 },
  { command: "test:processes", covers: [], ci: "always", seconds: 100 },
];

const OTHERS: readonly Row[] = [
  { command: "test:crashes", covers: [...HANDOVER, ...MACHINE], ci: "drawn", seconds: 430 },
  { command: "test:model", covers: [], ci: "drawn", seconds: 200 },
  { command: "test:browser", covers: ["plugin/ui/"], ci: "drawn", seconds: 75 },
  { command: "test:monitoring", covers: ["cli/metrics/", "deploy/monitoring/"], ci: "drawn", seconds: 40 },
  { command: "test:release", covers: INSTALL, ci: "drawn", seconds: 200 },
  { command: "test:release --full", covers: INSTALL, ci: "by hand" },
  byHand("test:newest", []),
  ...["cluster", "compiled", "compiled_arm64"].map((suite) => byHand(`test:release ${suite}`, INSTALL)),
  ...["power_cuts-1 --full", "power_cuts-2 --full"].map((arguments_) => byHand(`test:lvm ${arguments_}`, MACHINE)),
  ...["contract-1", "contract-2", "contract-3", "contract-4"].map((suite) =>
    byHand(`test:lvm ${suite} --debian trixie`, MACHINE)
  ),
  { command: "test:cluster --kubernetes 1.32", covers: ["k8s/"], ci: "by hand" },
  { command: "test:cluster chaos_moves_power --full", covers: HANDOVER, ci: "by hand" },
  { command: "soak", covers: [], ci: "by hand" },
  { command: "fuzz", covers: [], ci: "by hand" },
  { command: "mutants", covers: [], ci: "by hand" },
  { command: "bench", covers: MACHINE, ci: "by hand" },
  { command: "bench:cluster", covers: [...CLAIMS, ...NODE], ci: "by hand" },
  { command: "bench:cluster --groups 3", covers: [...CLAIMS, ...NODE], ci: "by hand" },
  { command: "bench:transfers", covers: TRANSFERS, ci: "by hand" },
  { command: "bench:scale", covers: ["k8s/"], ci: "by hand" },
];

function byHand(command: string, covers: readonly string[]): Row {
  return { command, covers, ci: "by hand" };
}

/** The rows of the record. */
export const ROWS: readonly Row[] = [
  ...ALWAYS,
  ...OTHERS,
  ...GUEST_SUITES.map(({ name }): Row => ({
    command: `test:lvm ${name}`,
    covers: GUEST_COVERS[name] ?? MACHINE,
    ci: "drawn",
    seconds: 300,
  })),
  ...Object.entries(CLUSTER_SUITES).map(([name, covers]): Row => ({
    command: `test:cluster ${name}`,
    covers,
    ci: LONG_CLUSTER_SUITES.includes(name) ? "by hand" : ALWAYS_CLUSTER_SUITES.includes(name) ? "always" : "drawn",
    seconds: 180,
  })),
];
