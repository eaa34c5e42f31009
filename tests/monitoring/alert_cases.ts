/**
 * What each alert must do: when it does not fire, when it fires and with which words, and when it clears.
 *
 * @module
 */

import type { AlertCase, Series } from "./rule_tests.ts";

/** The labels of a target, as the PodMonitor and the discovery of pods add them. */
export const TARGET = { namespace: "denolith-system", pod: "denolith-node-x", node: "n1" } as const;

/** Returns the name of a series of an agent. */
function series(metric: string, labels: Readonly<Record<string, string>> = {}): string {
  const texts = Object.entries({ ...TARGET, ...labels }).map(([name, value]) => `${name}="${value}"`);
  return `denolith_${metric}{${texts.join(",")}}`;
}

/** Returns a value for some minutes. */
const hold = (value: number, minutes: number): string => `${value}+0x${minutes - 1}`;

/** Returns no value for some minutes. */
const gap = (minutes: number): string => `_x${minutes}`;

/** Returns values that grow by a step each minute. */
const grow = (from: number, step: number, minutes: number): string => `${from}+${step}x${minutes - 1}`;

/** Returns values that grow by 1 every so many minutes. */
function growEvery(period: number, minutes: number, from = 0): string {
  return Array.from({ length: minutes }, (_, minute) => from + Math.floor((minute + 1) / period)).join(" ");
}

const GROUP = { group: "data" };
const THIN_GROUP = { group: "thin" };
const LV = { group: "data", lv: "vol-1" };
const CLAIMED_LV = { group: "data", lv: "vol-2" };
const CLAIM = { persistentvolumeclaim: "orders", claim_namespace: "shop" };
const SNAPSHOT = { group: "data", lv: "snap-1" };
const OTHER_SNAPSHOT = { group: "data", lv: "s" };
const POOL = { group: "data", pool: "pool" };

/** One of two volumes has a claim that the agent knows. */
const CLAIMED: Series = { [series("logical_volume_info", { ...CLAIMED_LV, ...CLAIM, type: "linear" })]: hold(1, 120) };

/** A volume by its LVMVolume. */
const VOLUME = { volume: "v1-1", ...CLAIM };

/** A snapshot of the driver has a claim that the agent knows; another one is not the driver's. */
const SNAPSHOTS: Series = {
  [series("logical_volume_info", { ...SNAPSHOT, ...CLAIM, type: "linear" })]: hold(1, 120),
  [series("logical_volume_info", { ...OTHER_SNAPSHOT, type: "linear" })]: hold(1, 120),
};

/** The group `data` has a volume of the driver. */
const WITH_VOLUME: Series = { [series("logical_volume_size_bytes", LV)]: hold(1, 120) };

/** The group `data` has the LV of an operating system only, and another group has volumes. */
const WITHOUT_VOLUME: Series = {
  [series("logical_volume_size_bytes", { group: "data", lv: "root" })]: hold(1, 120),
  [series("logical_volume_size_bytes", { group: "other", lv: "vol-1" })]: hold(1, 120),
};

/** Returns the case of a gauge that is 0, then 1, then 0, each for 20 minutes, and of its alert. */
function flag(
  metric: string,
  { labels = {}, joined = {}, with: others = {}, summary, for: minutes, neverFires }: {
    readonly labels?: Readonly<Record<string, string>>;
    /** The labels that it has from other series. */
    readonly joined?: Readonly<Record<string, string>>;
    /** The other series. */
    readonly with?: Series;
    readonly summary: string;
    readonly for: number;
    readonly neverFires?: Readonly<Record<string, Series>>;
  },
): AlertCase {
  const firing = { labels: { ...TARGET, ...labels, ...joined }, summary };
  return {
    series: { [series(metric, labels)]: `${hold(0, 20)} ${hold(1, 20)} ${hold(0, 20)}`, ...others },
    doesNotFire: minutes === 0 ? [1, 19] : [1, 19, 20 + minutes - 1],
    fires: Object.fromEntries([20 + minutes, 39].map((at) => [at, [firing]])),
    clears: [40, 59],
    ...(neverFires && { neverFires }),
  };
}

/** Returns the case of moves or imports that get no further, and of their alert. */
function stuck(kind: "move" | "import", neverFires: Readonly<Record<string, Series>> = {}): AlertCase {
  const of = (volume: string, state: string) =>
    series(`${kind}_progress_timestamp_seconds`, { ...VOLUME, volume, state });
  const labels = { namespace: TARGET.namespace, ...VOLUME, state: "Switching" };
  const summary = `The ${kind} of claim shop/orders has got no further for an hour (Switching)`;
  return {
    series: {
      // in minutes 80 and 81, that is a bit less and a bit more than an hour ago
      [of("v1-1", "Switching")]: `${hold(1200.5, 100)} stale`,
      [of("v1-2", "Switching")]: `${hold(1259.5, 100)} stale`,
      [of("v1-3", "Switching")]: grow(0, 60, 120),
      // a controller that was started again has seen nothing from before
      [series(`${kind}_progress_timestamp_seconds`, { ...VOLUME, state: "Switching", pod: "denolith-controller-2" })]:
        `${gap(60)} ${hold(3600, 40)} stale`,
    },
    doesNotFire: [1, 80],
    fires: Object.fromEntries(
      [81, 99].map((at) => [at, ["v1-1", "v1-2"].map((volume) => ({ labels: { ...labels, volume }, summary }))]),
    ),
    clears: [100, 119],
    neverFires,
  };
}

/** The cases, by the name of the alert. */
export const ALERT_CASES: Readonly<Record<string, AlertCase>> = {
  DenolithPhysicalVolumeMissing: flag("volume_group_missing_physical_volumes", {
    ...{ labels: GROUP, for: 1 },
    summary: "Volume group data on node n1 has 1 missing physical volumes",
  }),
  DenolithVolumeDegraded: {
    series: {
      [series("raid_redundant", LV)]: `${hold(1, 40)} ${hold(0, 60)} ${hold(1, 20)}`,
      [series("raid_sync_ratio", LV)]: `${hold(1, 40)} ${hold(0.5, 60)} ${hold(1, 20)}`,
      [series("raid_redundant", CLAIMED_LV)]: `${hold(1, 40)} ${hold(0, 60)} ${hold(1, 20)}`,
      ...CLAIMED,
    },
    doesNotFire: [1, 39, 40, 69],
    fires: Object.fromEntries([70, 99].map((at) => [at, [{
      labels: { ...TARGET, ...LV },
      summary: "RAID volume data/vol-1 on node n1 has no redundancy",
    }, {
      labels: { ...TARGET, ...CLAIMED_LV, ...CLAIM },
      summary: "RAID volume data/vol-2 on node n1 has no redundancy: claim shop/orders",
    }]])),
    clears: [100, 119],
    neverFires: {
      "a repair makes progress": {
        [series("raid_redundant", LV)]: `${hold(1, 40)} ${hold(0, 80)}`,
        [series("raid_sync_ratio", LV)]: `${hold(1, 40)} ${grow(0, 0.0001, 80)}`,
      },
      "a new volume is synchronized": {
        [series("raid_redundant", LV)]: hold(0, 120),
        [series("raid_sync_ratio", LV)]: grow(0, 0.005, 120),
      },
    },
  },
  DenolithVolumeGroupNearFull: {
    series: {
      [series("volume_group_size_bytes", THIN_GROUP)]: hold(100, 120),
      [series("volume_group_free_bytes", THIN_GROUP)]: `${hold(10, 20)} ${hold(9, 40)} ${hold(10, 20)}`,
      [series("thin_pool_virtual_available_bytes", { ...THIN_GROUP, pool: "pool" })]: hold(0, 120),
      [series("logical_volume_info", { ...THIN_GROUP, lv: "vol-1", pool: "pool" })]: hold(1, 120),
      [series("logical_volume_size_bytes", { ...THIN_GROUP, lv: "vol-1" })]: hold(1, 120),
      [series("volume_group_size_bytes", GROUP)]: hold(100, 120),
      [series("volume_group_free_bytes", GROUP)]: `${hold(10, 20)} ${hold(9, 40)} ${hold(10, 20)}`,
      [series("thin_pool_virtual_available_bytes", { ...GROUP, pool: "pool" })]: hold(50, 120),
      [series("logical_volume_info", { ...LV, pool: "" })]: hold(1, 120),
      ...WITH_VOLUME,
    },
    doesNotFire: [1, 19, 20, 34],
    fires: Object.fromEntries([35, 59].map((at) => [at, [{
      labels: { ...TARGET, ...GROUP },
      summary: "Volume group data on node n1 has only 9% free",
    }, {
      labels: { ...TARGET, ...THIN_GROUP },
      summary: "Volume group thin on node n1 has only 9% free",
    }]])),
    clears: [60, 79],
    neverFires: {
      "the group has no volumes of the driver": {
        [series("volume_group_size_bytes", GROUP)]: hold(100, 120),
        [series("volume_group_free_bytes", GROUP)]: hold(0, 120),
        ...WITHOUT_VOLUME,
      },
      "a thin pool has the space": {
        [series("volume_group_size_bytes", GROUP)]: hold(100, 120),
        [series("volume_group_free_bytes", GROUP)]: hold(0, 120),
        [series("thin_pool_virtual_available_bytes", { ...GROUP, pool: "pool" })]: hold(1, 120),
        [series("logical_volume_info", { ...LV, pool: "pool" })]: hold(1, 120),
        [series("logical_volume_info", { group: "data", lv: "root", pool: "" })]: hold(1, 120),
        ...WITH_VOLUME,
      },
    },
  },
  DenolithMetadataAreaNearFull: {
    series: {
      [series("volume_group_metadata_free_bytes", GROUP)]: `${hold(30_500, 20)} ${hold(30_499, 40)} ${
        hold(30_500, 20)
      }`,
      ...WITH_VOLUME,
    },
    doesNotFire: [1, 19, 20, 34],
    fires: Object.fromEntries([35, 59].map((at) => [at, [{
      labels: { ...TARGET, ...GROUP },
      summary: "The metadata area of volume group data on node n1 has only 29.78kiB free",
    }]])),
    clears: [60, 79],
    neverFires: {
      "the group has no volumes of the driver": {
        [series("volume_group_metadata_free_bytes", GROUP)]: hold(0, 120),
        ...WITHOUT_VOLUME,
      },
    },
  },
  DenolithSnapshotNearFull: {
    series: {
      [series("snapshot_cow_used_ratio", SNAPSHOT)]: `${hold(0.8, 20)} ${hold(0.81, 20)} ${hold(0.8, 20)}`,
      ...SNAPSHOTS,
    },
    doesNotFire: [1, 19, 20],
    fires: Object.fromEntries([21, 39].map((at) => [at, [{
      labels: { ...TARGET, ...SNAPSHOT, ...CLAIM },
      summary: "The COW space of snapshot data/snap-1 on node n1 is 81% full: claim shop/orders",
    }]])),
    clears: [40, 59],
    neverFires: {
      "the snapshot is not the driver's": {
        [series("snapshot_cow_used_ratio", OTHER_SNAPSHOT)]: hold(1, 120),
        ...SNAPSHOTS,
      },
    },
  },
  DenolithSnapshotOverflowed: flag("snapshot_overflowed", {
    ...{ labels: SNAPSHOT, joined: CLAIM, with: SNAPSHOTS, for: 1 },
    summary: "Snapshot data/snap-1 on node n1 overflowed: claim shop/orders",
    neverFires: {
      "the snapshot is not the driver's": {
        [series("snapshot_overflowed", OTHER_SNAPSHOT)]: hold(1, 120),
        ...SNAPSHOTS,
      },
    },
  }),
  DenolithThinPoolNearFull: {
    series: {
      [series("thin_pool_data_used_ratio", POOL)]: `${hold(0.8, 20)} ${hold(0.81, 20)} ${hold(0.8, 20)}`,
      [series("thin_pool_metadata_used_ratio", POOL)]: hold(0.1, 60),
      [series("thin_pool_data_used_ratio", { group: "data", pool: "other" })]: hold(0.1, 60),
      [series("thin_pool_metadata_used_ratio", { group: "data", pool: "other" })]: `${hold(0.8, 20)} ${
        hold(0.81, 20)
      } ${hold(0.8, 20)}`,
    },
    doesNotFire: [1, 19, 20, 24],
    fires: Object.fromEntries([25, 39].map((at) => [
      at,
      ["pool", "other"].map((pool) => ({
        labels: { ...TARGET, group: "data", pool },
        summary: `Thin pool data/${pool} on node n1 is 81% full`,
      })),
    ])),
    clears: [40, 59],
  },
  DenolithThinPoolFull: {
    series: {
      [series("thin_pool_data_used_ratio", POOL)]: `${hold(0.95, 20)} ${hold(0.96, 20)} ${hold(0.95, 20)}`,
      [series("thin_pool_metadata_used_ratio", POOL)]: hold(0.1, 60),
      [series("thin_pool_data_used_ratio", { group: "data", pool: "other" })]: hold(0.1, 60),
      [series("thin_pool_metadata_used_ratio", { group: "data", pool: "other" })]: `${hold(0.95, 20)} ${
        hold(0.96, 20)
      } ${hold(0.95, 20)}`,
    },
    doesNotFire: [1, 19],
    fires: Object.fromEntries([20, 39].map((at) => [
      at,
      ["pool", "other"].map((pool) => ({
        labels: { ...TARGET, group: "data", pool },
        summary: `Thin pool data/${pool} on node n1 is 96% full`,
      })),
    ])),
    clears: [40, 59],
  },
  DenolithThinPoolDamaged: flag("thin_pool_damaged", {
    ...{ labels: POOL, for: 1 },
    summary: "The metadata of thin pool data/pool on node n1 is damaged",
  }),
  DenolithCacheFailed: {
    series: {
      [series("logical_volume_health_status", { ...LV, status: "failed" })]: `${gap(20)} ${hold(1, 20)} stale`,
      [series("logical_volume_info", { ...LV, type: "cache" })]: hold(1, 60),
      [series("logical_volume_health_status", { ...CLAIMED_LV, status: "error" })]: `${gap(20)} ${hold(1, 20)} stale`,
      [series("logical_volume_info", { ...CLAIMED_LV, ...CLAIM, type: "writecache" })]: hold(1, 60),
    },
    doesNotFire: [1, 19, 20],
    fires: Object.fromEntries([21, 39].map((at) => [at, [{
      labels: { ...TARGET, ...LV, status: "failed" },
      summary: "The cache of data/vol-1 on node n1 has failed (failed)",
    }, {
      labels: { ...TARGET, ...CLAIMED_LV, ...CLAIM, status: "error" },
      summary: "The cache of data/vol-2 on node n1 has failed (error): claim shop/orders",
    }]])),
    clears: [40, 59],
    neverFires: {
      "all is well": {
        [series("logical_volume_health_status", { ...LV, status: "ok" })]: hold(1, 120),
        [series("logical_volume_info", { ...LV, type: "cache" })]: hold(1, 120),
      },
      "it is no volume": {
        [series("logical_volume_health_status", { group: "data", lv: "root", status: "error" })]: hold(1, 120),
        [series("logical_volume_info", { group: "data", lv: "root", type: "writecache" })]: hold(1, 120),
      },
    },
  },
  DenolithFilesystemReadOnly: {
    series: {
      [series("filesystem_readonly", LV)]: `${hold(0, 20)} ${hold(1, 20)} ${hold(0, 20)}`,
      [series("filesystem_readonly", CLAIMED_LV)]: `${hold(0, 20)} ${hold(1, 20)} ${hold(0, 20)}`,
      ...CLAIMED,
    },
    doesNotFire: [1, 19],
    fires: Object.fromEntries([20, 39].map((at) => [at, [{
      labels: { ...TARGET, ...LV },
      summary: "The filesystem of data/vol-1 on node n1 is read-only",
    }, {
      labels: { ...TARGET, ...CLAIMED_LV, ...CLAIM },
      summary: "The filesystem of data/vol-2 on node n1 is read-only: claim shop/orders",
    }]])),
    clears: [40, 59],
  },
  DenolithErasureStuck: {
    series: {
      [series("volume_group_erasing_volumes", GROUP)]: `${hold(0, 20)} ${hold(1, 160)} ${hold(0, 20)}`,
      [series("volume_group_erasing_bytes", GROUP)]: `${hold(0, 20)} ${hold(100, 160)} ${hold(0, 20)}`,
    },
    doesNotFire: [1, 19, 20, 79],
    fires: Object.fromEntries([80, 179].map((at) => [at, [{
      labels: { ...TARGET, ...GROUP },
      summary: "1 deleted volumes of volume group data on node n1 are not erased",
    }]])),
    clears: [180, 199],
    neverFires: {
      "large volumes are erased, and others are deleted meanwhile": {
        [series("volume_group_erasing_volumes", GROUP)]: hold(2, 200),
        [series("volume_group_erasing_bytes", GROUP)]: `${hold(200, 50)} ${hold(150, 50)} ${hold(300, 5)} ${
          hold(250, 50)
        } ${hold(200, 45)}`,
      },
    },
  },
  DenolithIOLimitsNotApplied: {
    series: {
      [series("io_limits_applied", LV)]: `${hold(1, 20)} ${hold(0, 20)} ${hold(1, 20)}`,
      [series("logical_volume_info", { ...LV, type: "linear" })]: hold(1, 60),
      [series("io_limits_applied", CLAIMED_LV)]: `${hold(1, 20)} ${hold(0, 20)} ${hold(1, 20)}`,
      ...CLAIMED,
    },
    doesNotFire: [1, 19, 29],
    fires: Object.fromEntries([30, 39].map((at) => [at, [{
      labels: { ...TARGET, ...LV },
      summary: "The IO limits of data/vol-1 on node n1 are not applied",
    }, {
      labels: { ...TARGET, ...CLAIMED_LV, ...CLAIM },
      summary: "The IO limits of data/vol-2 on node n1 are not applied: claim shop/orders",
    }]])),
    clears: [40, 59],
  },
  DenolithReconcileFailing: {
    series: {
      // an error every six minutes, from minute 35 to minute 89: three or four in twenty minutes
      [series("reconcile_duration_seconds_count", { controller: "lvmvolume", result: "error" })]: `${hold(0, 30)} ${
        growEvery(6, 60)
      } ${hold(10, 60)}`,
    },
    doesNotFire: [1, 29, 46, 66],
    fires: Object.fromEntries([68, 86].map((at) => [at, [{
      labels: { ...TARGET, controller: "lvmvolume" },
      summary: "Controller lvmvolume of pod denolith-node-x on node n1 keeps failing",
    }]])),
    clears: [105, 149],
    neverFires: {
      "an error every ten minutes": {
        [series("reconcile_duration_seconds_count", { controller: "lvmvolume", result: "error" })]: growEvery(10, 120),
      },
      "reconciles succeed": {
        [series("reconcile_duration_seconds_count", { controller: "lvmvolume", result: "success" })]: grow(0, 1, 120),
      },
      "different controllers fail now and then": Object.fromEntries(
        ["lvmvolume", "lvmsnapshot"].map((controller) => [
          series("reconcile_duration_seconds_count", { controller, result: "error" }),
          growEvery(10, 120),
        ]),
      ),
    },
  },
  DenolithWorkqueueStuck: {
    series: {
      [series("workqueue_depth", { controller: "lvmvolume" })]: `${hold(0, 30)} ${hold(1, 40)} ${hold(0, 20)}`,
    },
    doesNotFire: [1, 29, 30, 48],
    fires: Object.fromEntries([51, 69].map((at) => [at, [{
      labels: { ...TARGET, controller: "lvmvolume" },
      summary: "The workqueue of controller lvmvolume of pod denolith-node-x on node n1 is stuck",
    }]])),
    clears: [70, 89],
    neverFires: {
      "the queue is empty now and then": {
        [series("workqueue_depth", { controller: "lvmvolume" })]: `${hold(5, 15)} 0 ${hold(5, 15)} 0 ${hold(5, 15)}`,
      },
      "the process has just started, and has all objects to reconcile": {
        [series("workqueue_depth", { controller: "lvmvolume" })]: `${hold(100, 12)} ${hold(0, 100)}`,
      },
    },
  },
  DenolithMountsFailing: {
    series: {
      [series("csi_operation_duration_seconds_count", { method: "NodeStageVolume", code: "13" })]: `${hold(0, 30)} ${
        growEvery(6, 60)
      } ${hold(10, 60)}`,
    },
    doesNotFire: [1, 29, 46, 56],
    fires: Object.fromEntries([58, 86].map((at) => [at, [{
      labels: { ...TARGET, method: "NodeStageVolume" },
      summary: "NodeStageVolume keeps failing on node n1",
    }]])),
    clears: [105, 149],
    neverFires: {
      "it succeeds": Object.fromEntries(
        ["0", "10"].map((code) => [
          series("csi_operation_duration_seconds_count", { method: "NodePublishVolume", code }),
          grow(0, 1, 120),
        ]),
      ),
      "another call fails": {
        [series("csi_operation_duration_seconds_count", { method: "NodeGetVolumeStats", code: "5" })]: grow(0, 1, 120),
      },
      "an error every ten minutes": {
        [series("csi_operation_duration_seconds_count", { method: "NodeStageVolume", code: "13" })]: growEvery(10, 120),
      },
    },
  },
  DenolithOrphanLogicalVolumes: flag("orphan_logical_volumes", {
    for: 5,
    summary: "Node n1 has 1 orphan logical volumes",
  }),
  DenolithVolumeHeld: {
    series: {
      [series("volume_held", VOLUME)]: `${gap(20)} ${hold(1, 40)} stale`,
      [series("transfer_bytes_total", { direction: "sent" })]: hold(1000, 80),
      [series("transfer_bytes_total", { direction: "received" })]: grow(0, 1000, 80),
    },
    doesNotFire: [1, 19, 20, 29],
    fires: Object.fromEntries([30, 59].map((at) => [at, [{
      labels: { ...TARGET, ...VOLUME },
      summary: "Nobody can use volume v1-1 on node n1, and nothing is sent for its move: claim shop/orders",
    }]])),
    clears: [60, 79],
    neverFires: {
      "it is sent": {
        [series("volume_held", VOLUME)]: hold(1, 120),
        [series("transfer_bytes_total", { direction: "sent" })]: grow(0, 0.1, 120),
      },
      "volumes are moved one after the other": {
        [series("volume_held", VOLUME)]: `${hold(1, 9)} stale`,
        [series("volume_held", { ...VOLUME, volume: "v1-2" })]: `${gap(9)} ${hold(1, 9)} stale`,
        [series("transfer_bytes_total", { direction: "sent" })]: hold(1000, 120),
      },
      "it is not": { [series("volume_held", VOLUME)]: hold(0, 120) },
    },
  },
  DenolithVolumeLost: flag("volume_lost", {
    ...{ labels: VOLUME, for: 1 },
    summary: "The logical volume of volume v1-1 on node n1 is lost: claim shop/orders",
  }),
  DenolithKeysOutdated: flag("volume_keys_outdated", {
    ...{ labels: { ...VOLUME, reason: "KeyChangeFailed" }, for: 15 },
    summary: "Volume v1-1 on node n1 has not got the keys of its Secret (KeyChangeFailed): claim shop/orders",
    neverFires: {
      "its data is being encrypted by another key": {
        [series("volume_keys_outdated", { ...VOLUME, reason: "KeyChangeRunning" })]: hold(1, 120),
      },
    },
  }),
  DenolithMoveStuck: stuck("move"),
  DenolithImportStuck: stuck("import", {
    "it waits for a person": {
      [series("import_progress_timestamp_seconds", { ...VOLUME, state: "Imported" })]: hold(0, 120),
    },
  }),
  DenolithAgentSilent: {
    series: {
      [series("agent_silent", { lvmnode: "n2" })]: `${hold(0, 20)} ${hold(1, 20)} ${hold(0, 20)}`,
      [series("agent_silent", { lvmnode: "n3" })]: hold(0, 60),
    },
    doesNotFire: [1, 19, 24],
    fires: Object.fromEntries([25, 39].map((at) => [at, [{
      labels: { namespace: TARGET.namespace, lvmnode: "n2" },
      summary: "The agent of node n2 is silent",
    }]])),
    clears: [40, 59],
  },
  DenolithNoLeader: {
    series: {
      [series("leader", { controller: "resizer" })]: `${hold(1, 20)} ${hold(0, 20)} ${hold(1, 20)} stale _x19 ${
        hold(1, 20)
      }`,
      [series("leader", { controller: "resizer", pod: "denolith-controller-2" })]: `${hold(0, 60)} stale _x19 ${
        hold(0, 20)
      }`,
      [series("orphan_logical_volumes")]: hold(0, 100),
    },
    doesNotFire: [1, 19, 24],
    fires: {
      ...Object.fromEntries([25, 39].map((at) => [at, [{
        labels: { namespace: TARGET.namespace, controller: "resizer" },
        summary: "No resizer of the driver is active in namespace denolith-system",
      }]])),
      50: [],
      64: [],
      ...Object.fromEntries([65, 79].map((at) => [at, [{
        labels: { namespace: TARGET.namespace },
        summary: "No controller of the driver is active in namespace denolith-system",
      }]])),
    },
    clears: [80, 99],
    neverFires: {
      "the leader changes, and an official sidecar does the work of another controller": {
        [series("leader", { controller: "resizer" })]: `${hold(1, 20)} ${hold(0, 40)}`,
        [series("leader", { controller: "resizer", pod: "denolith-controller-2" })]: `${hold(0, 23)} ${hold(1, 40)}`,
        [series("orphan_logical_volumes")]: hold(0, 60),
      },
      "hosts without a cluster": { [series("volume_group_size_bytes", GROUP)]: hold(1, 120) },
    },
  },
};
