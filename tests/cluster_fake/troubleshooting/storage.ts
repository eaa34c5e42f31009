/**
 * The cases of the chapters about storage.
 *
 * @module
 */

import { CACHE_PV } from "../../../lvm/model/tags.ts";
import { lvmVolumes } from "../../../k8s/api/lvm_objects.ts";
import { endSync } from "../../fake/machine/pvs.ts";
import type { FakeMachine, FakePool } from "../../fake/machine/machine.ts";
import { machineWith, MiB } from "../../fake/cluster/volume_cluster.ts";
import { type Chapter, once, type Play } from "./case.ts";
import { UNEXPECTED_DATA } from "./mounts.ts";
import type { Stage } from "./stage.ts";

const STATUS = ["status"];
const SNAPSHOT = ["why", "volumesnapshot/cut"];

/** Starts a cluster with a claim of a class, changes the machine, and has the agent report. */
function reporting(
  change: (stage: Stage) => unknown,
  { parameters = {}, machine = machineWith({ data: 256n * MiB }) }: {
    readonly parameters?: Record<string, string>;
    readonly machine?: FakeMachine;
  } = {},
): Play {
  return async (stage) => {
    await stage.start({ machines: { n1: machine } });
    stage.cluster.addClass("odd", {
      volumeBindingMode: "Immediate",
      parameters: { volumeGroup: "data", ...parameters },
    });
    await stage.bindClaim({ className: "odd" });
    await change(stage);
    await stage.report();
  };
}

/** Starts a cluster with a thin volume, and changes its pool. */
function withPool(change: (pool: FakePool) => void): () => Play {
  return () =>
    reporting(({ machine }) => change(machine.allLvs().find(({ lv }) => lv.thinPool !== undefined)!.lv.thinPool!), {
      parameters: { thinProvision: "yes", thinPoolSize: "192Mi" },
      machine: machineWith({ data: 224n * MiB }), // no space to extend the pool
    });
}

const nearFull = withPool((pool) => pool.dataPercent = 95);
const full = withPool((pool) => Object.assign(pool, { dataPercent: 100, health: "out_of_data" }));
const damaged = withPool((pool) => pool.needsCheck = true);

/** Starts a cluster with a cached volume, of whose cache LVM says this. */
function failedCache(health: string): Play {
  const machine = machineWith({ data: 512n * MiB }, 2);
  machine.groups[0]!.pvs[1]!.tags = new Set([CACHE_PV]);
  return reporting(({ lv }) => lv.cacheHealth = health, {
    parameters: { layout: "writecache", cacheSize: "64Mi" },
    machine,
  });
}

/** Starts a cluster with a volume, whose group has two disks, on the one that is then missing, or on the other one. */
function missingDisk(isOnIt: boolean): () => Play {
  return () => {
    const machine = machineWith({});
    const group = machine.addGroup("data", 256n * MiB, 4n * MiB, 2);
    return reporting(({ lv }) => {
      lv.pvSegments = [{ subLv: "", pvUuid: group.pvs[isOnIt ? 0 : 1]!.uuid, size: lv.size }];
      group.missingPvs = 1;
    }, { machine });
  };
}

/** Starts a cluster with a volume of the layout `raid1`, and changes it. */
function raid(change: (stage: Stage) => void, parameters: Record<string, string> = {}): Play {
  const machine = machineWith({});
  const group = machine.addGroup("data", 512n * MiB, 4n * MiB, 2);
  return reporting((stage) => {
    endSync(group);
    change(stage);
  }, { machine, parameters: { layout: "raid1", ...parameters } });
}

/** Starts a cluster with a snapshot, and changes its logical volume. */
function snapshot(change: (stage: Stage, lv: Stage["lv"]) => unknown): Play {
  return reporting(async (stage) => {
    await stage.takeSnapshot({ snapSize: "8Mi" });
    await change(stage, stage.machine.allLvs().find(({ lv }) => lv.origin !== undefined)!.lv);
  });
}

/** Fills the volume group. */
const fill = (stage: Stage) => stage.bindClaim({ name: "rest", size: "224Mi" });

/** The chapters. */
export const STORAGE: Readonly<Record<string, Chapter>> = {
  "Volume group full": {
    asks: ["why", "data"],
    cases: {
      "status: VolumeGroupFull": once("VolumeGroupFull", reporting(fill), STATUS),
      "why CLAIM: NoCapacity": once("NoCapacity", async (stage) => {
        await stage.start();
        stage.cluster.addClaim({ className: "later", size: "1Gi" });
        stage.addUnschedulablePod("0/1 nodes are available: 1 node(s) did not have enough free storage.");
      }),
      "why CLAIM: NoSpace": once("NoSpace", async (stage) => {
        await stage.start();
        stage.cluster.addClaim({ size: "1Gi" });
      }),
      "why CLAIM: MetadataAreaFull": once("MetadataAreaFull", async (stage) => {
        await stage.start();
        const stderr =
          "  VG data 11 metadata on /dev/vdb (524325 bytes) too large for circular buffer (1043968 bytes with " +
          "518643 used)\n  Failed to write VG data.";
        stage.machine.fault = ({ args }) => args[0] === "lvcreate" ? { code: 5, stdout: "", stderr } : undefined;
        stage.cluster.addClaim();
      }),
    },
  },
  "Thin pool near full": {
    asks: ["why", "data"],
    cases: {
      "status: ThinPoolNearFull": once("ThinPoolNearFull", (stage) => nearFull()(stage), STATUS),
      "status: ThinPoolFull": once("ThinPoolFull", (stage) => full()(stage), STATUS),
      "why CLAIM: ThinPoolNearFull": once("ThinPoolNearFull", (stage) => nearFull()(stage)),
      "why CLAIM: ThinPoolFull": once("ThinPoolFull", (stage) => full()(stage)),
      "why CLAIM: ThinPoolDamaged": once("ThinPoolDamaged", (stage) => damaged()(stage)),
    },
  },
  "Snapshot near full": {
    asks: SNAPSHOT,
    cases: {
      "why volumesnapshot/NAME: SnapshotCannotExtend": once(
        "SnapshotCannotExtend",
        snapshot(async (stage, lv) => {
          await stage.bindClaim({ name: "rest", size: "216Mi" });
          lv.cowPercent = 90;
        }),
      ),
      "why volumesnapshot/NAME: Overflowed": once("Overflowed", snapshot((_, lv) => lv.invalid = true)),
      "status: Overflowed": once("Overflowed", snapshot((_, lv) => lv.invalid = true), STATUS),
    },
  },
  "Filesystem read-only": {
    asks: ["why", "data"],
    cases: {
      "why CLAIM: FilesystemReadOnly": once(
        "FilesystemReadOnly",
        reporting(async (stage) => {
          await stage.startPod();
          for (const mount of stage.machine.mounts) if (mount.lv === stage.lv) mount.remountedReadOnly = true;
        }),
      ),
    },
  },
  "Failed cache": {
    asks: ["why", "data"],
    cases: {
      "CacheFailed": once("CacheFailed", (stage) => failedCache("error")(stage)),
      "CacheReadOnly": once("CacheReadOnly", (stage) => failedCache("metadata_read_only")(stage)),
    },
  },
  "Missing physical volume": {
    asks: ["why", "data"],
    cases: {
      "status: PhysicalVolumesMissing": once("PhysicalVolumesMissing", (stage) => missingDisk(false)()(stage), STATUS),
      "why CLAIM: Partial": once("Partial", (stage) => missingDisk(true)()(stage)),
      "why CLAIM: PhysicalVolumesMissing": once("PhysicalVolumesMissing", (stage) => missingDisk(false)()(stage)),
    },
  },
  "Degraded RAID volume": {
    asks: ["why", "data"],
    cases: {
      "The missing disk comes back": once(
        "Degraded",
        (stage) => raid(({ machine }) => machine.groups[0]!.missingPvs = 1)(stage),
      ),
      "RefreshNeeded": once(
        "RefreshNeeded",
        (stage) => raid(({ lv }) => lv.raid!.refreshNeeded = true)(stage),
      ),
      "Rebuilding": once(
        "Rebuilding",
        (stage) => raid(({ lv }) => Object.assign(lv.raid!, { action: "recover", syncPercent: 12 }))(stage),
      ),
      "SharedPhysicalVolume": once("SharedPhysicalVolume", (stage) =>
        raid(({ lv }) => {
          const { pvUuid } = lv.pvSegments![0]!;
          lv.pvSegments = lv.pvSegments!.map((segment) => ({ ...segment, pvUuid }));
        })(stage)),
      "Mismatches": once("Mismatches", (stage) => raid(({ lv }) => lv.raid!.mismatches = 8)(stage)),
      "RaidFailed": once(
        "RaidFailed",
        (stage) => raid(({ machine }) => machine.groups[0]!.missingPvs = 2)(stage),
      ),
      "The missing disk is gone for good": "what is seen of it is the same as before",
    },
  },
  "Lost volume": {
    asks: ["why", "data"],
    cases: {
      "why CLAIM: Lost": once("Lost", reporting(({ machine }) => machine.groups[0]!.lvs.splice(0))),
      "status: Lost": once("Lost", reporting(({ machine }) => machine.groups[0]!.lvs.splice(0)), STATUS),
    },
  },
  "Orphan logical volume": {
    asks: STATUS,
    cases: {
      "status: OrphansFound": once(
        "OrphansFound",
        reporting(async (stage) => {
          const name = stage.volume()!.spec!.csi!.volumeHandle;
          const { client } = stage.cluster.agents;
          await stage.bindClaim({ name: "other" }); // a node without any volume is taken for one whose objects were lost
          await client.patch(lvmVolumes, { name }, { merge: { metadata: { finalizers: null } } as never });
          await client.delete(lvmVolumes, { name });
          await stage.report();
          await stage.agent.clock.advance(60_000);
        }),
      ),
      "why CLAIM: NoLVMVolume": once(
        "NoLVMVolume",
        reporting(async (stage) => {
          const name = stage.volume()!.spec!.csi!.volumeHandle;
          const { client } = stage.cluster.agents;
          await client.patch(lvmVolumes, { name }, { merge: { metadata: { finalizers: null } } as never });
          await client.delete(lvmVolumes, { name });
        }),
        ["why", "data"],
      ),
    },
  },
  "Unexpected data on the device": {
    asks: ["why", "data"],
    cases: { "why CLAIM: UnexpectedData": { reason: "UnexpectedData", plays: UNEXPECTED_DATA } },
  },
  // events and metrics say it, and no answer of the plugin
  "Deleted volume not erased": { asks: STATUS, cases: {} },
  "Volume mounted with a warning": { asks: STATUS, cases: {} },
};
