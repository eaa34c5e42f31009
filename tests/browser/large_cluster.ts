/**
 * The objects of a cluster for the page: nodes with several volume groups, thin pools, volumes and snapshots of all
 * layouts, and one volume with everything that the page can show. The same seed makes the same cluster.
 *
 * @module
 */

import { agentLeaseFor } from "../../k8s/api/agent_leases.ts";
import type { Condition } from "../../k8s/api/conditions.ts";
import type { ConditionReason } from "../../k8s/api/condition_reasons.ts";
import {
  CLAIM_ANNOTATION,
  type LayoutSpec,
  type LvmNode,
  lvmNodes,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
  type NodeThinPool,
  type NodeVolumeGroup,
} from "../../k8s/api/lvm_objects.ts";
import {
  events,
  leases,
  nodes,
  persistentVolumeClaims,
  persistentVolumes,
  pods,
  storageClasses,
} from "../../k8s/api/objects.ts";
import { type LvmImport, lvmImports } from "../../k8s/handover/imports.ts";
import { lvmMoves } from "../../k8s/handover/moves.ts";
import { layoutOfSpec } from "../../k8s/api/volume_mapping.ts";
import { volumeSnapshotContents } from "../../k8s/api/snapshot_objects.ts";
import { snapshotIdOf, snapshotLvName, volumeIdOf, volumeLvName } from "../../base/ids.ts";
import { allocatedBytes } from "../../lvm/model/layout.ts";
import { formatQuantity } from "../../base/size.ts";
import { DRIVER } from "../fake/cluster/control_plane.ts";
import type { FakeApiServer } from "../fake/cluster/api_server.ts";
import { pick, type RandomSource, seededRandom } from "../rig/seeded_random.ts";

const GiB = 1n << 30n;
const EXTENT = 4n << 20n;
const APPS = ["db", "cache", "queue", "search", "metrics", "registry", "mail", "files"];
const TEAMS = ["shop", "billing", "search", "platform", "data", "mobile"];

/** The claim that has all that the page can show. */
export const SHOWN_CLAIM = "shop/db-0";

/** The claim that waits for its volume. */
export const WAITING_CLAIM = "data/warehouse";

/** A disk that nobody uses. */
const DISK = { size: "960Gi", rotational: false, identity: "8c1" };

/** What that claim, its snapshots, and what is made from them take: two mirrored volumes, a linear one, three snapshots. */
const SHOWN_BYTES = 2n * 2n * (100n * GiB + EXTENT) + 100n * GiB + 3n * 10n * GiB;

/** Options of {@linkcode fillCluster}. */
export interface LargeClusterOptions {
  /** The number of nodes. */
  readonly nodes: number;
  /** True if many things are wrong; otherwise a few. */
  readonly trouble: boolean;
  /** The time of now. */
  readonly now: Date;
  readonly seed?: number;
}

/** A volume group while it is filled. */
interface Group {
  readonly name: string;
  readonly size: bigint;
  free: bigint;
  readonly pool?: NodeThinPool & { virtual: bigint };
  readonly volumes: { name: string; size: string }[];
}

/** Fills a cluster. */
export function fillCluster(api: FakeApiServer, { nodes: count, trouble, now, seed = 1 }: LargeClusterOptions): void {
  const fill = new Filling(api, seededRandom(seed), now);
  for (let index = 0; index < count; index++) fill.addNode(index, trouble ? index % 9 : index);
  fill.addShownVolume();
  fill.addWork();
  for (let claim = 0; trouble && claim < 6; claim++) fill.addWaitingClaim(`${WAITING_CLAIM}-${claim}`);
}

class Filling {
  constructor(readonly api: FakeApiServer, readonly random: RandomSource, readonly now: Date) {}

  /** Returns the time so many seconds ago. */
  ago(seconds: number): string {
    return new Date(this.now.getTime() - seconds * 1_000).toISOString().replace(/\.\d+Z$/, "Z");
  }

  /** Returns a whole number from 0 to below a limit. */
  below(limit: number): number {
    return Math.floor(this.random() * limit);
  }

  condition(
    type: string,
    status: "True" | "False",
    reason: ConditionReason,
    message: string,
    seconds = 700,
  ): Condition {
    return { type, status, reason, message, lastTransitionTime: this.ago(seconds) };
  }

  /** @param fault what is wrong with it: 2 to 6, or nothing */
  addNode(index: number, fault: number): void {
    const name = `worker-${String(index).padStart(3, "0")}`;
    const groups = [this.#group("nvme", index === 0 ? [2048n] : [1024n, 2048n, 2048n])];
    if (index === 0) groups[0]!.free -= SHOWN_BYTES;
    if (index % 3 === 0) groups.push(this.#group("hdd", [2048n, 4096n]));
    for (let volume = 6 + this.below(14); volume > 0; volume--) this.#addVolume(name, pick(this.random, groups), fault);
    if (fault === 4) groups[0]!.free = 0n;
    const conditions = fault === 6
      ? [
        this.condition(
          "PhysicalVolumesMissing",
          "True",
          "PhysicalVolumesMissing",
          "nvme misses a physical volume, UUID q1w2e3",
        ),
      ]
      : fault === 5
      ? [this.condition("ThinPoolsNearFull", "True", "ThinPoolNearFull", "data of nvme/thin is used by 91%", 3_600)]
      : [];
    const seen = fault === 2 ? this.ago(1_500) : this.ago(4);
    const disks = index === 1
      ? [{ ...DISK, name: "nvme-SAMSUNG_MZ7LH960_S45NNC0R", path: "/dev/nvme3n1", volumeGroup: "nvme", proposed: true }]
      : [];
    const lvmNode: LvmNode = {
      metadata: { name, uid: `node-${index}` },
      spec: { driverName: DRIVER },
      status: { volumeGroups: groups.map((group) => this.#reported(group)), conditions, lastUpdateTime: seen, disks },
    };
    this.api.put(lvmNodes, lvmNode);
    const lease = agentLeaseFor(lvmNode, "denolith-system");
    this.api.put(leases, { ...lease, spec: { ...lease.spec, renewTime: seen } });
    this.api.put(nodes, {
      metadata: { name },
      status: { conditions: [{ type: "Ready", status: fault === 2 && index % 2 === 0 ? "False" : "True" }] },
    });
  }

  #group(name: string, sizes: readonly bigint[]): Group {
    const size = pick(this.random, sizes) * GiB;
    const pool = name === "nvme" && this.random() < 0.6
      ? {
        ...{ name: "thin", size: formatQuantity(size / 4n), owned: true, overcommit: "3", virtual: 0n },
        ...{ dataPercent: 20 + this.below(50), metadataPercent: 3 + this.below(20) },
      }
      : undefined;
    return { name, size, free: pool ? size - size / 4n : size, ...(pool && { pool }), volumes: [] };
  }

  #reported({ name, size, free, pool, volumes }: Group): NodeVolumeGroup {
    const erasing = name === "hdd" && free > 200n * GiB ? { erasing: { volumes: 1, space: "200Gi" } } : {};
    const { virtual = 0n, ...thin } = pool ?? {};
    const thinPools = pool
      ? [{ ...thin as NodeThinPool, availableVirtual: formatQuantity(size / 4n * 3n - virtual) }]
      : [];
    return {
      ...{ name, uuid: `uuid-of-${name}`, size: formatQuantity(size), thinPools, volumes, ...erasing },
      free: formatQuantity(free - (name === "hdd" && free > 200n * GiB ? 200n * GiB : 0n)),
      ...{
        extentSize: "4Mi",
        lvCount: volumes.length,
        pvCount: 4,
        snapshotCount: 0,
        missingPVCount: 0,
        writeable: true,
      },
    };
  }

  #addVolume(node: string, group: Group, fault: number): void {
    const isThin = group.pool !== undefined && this.random() < 0.4;
    const layout = isThin ? undefined : pick<LayoutSpec | undefined>(this.random, [
      ...[undefined, undefined, { type: "raid1", mirrors: 1 } as const],
      { type: "striped", stripes: 2, stripeSize: "64Ki" },
    ]);
    const size = BigInt(20 + this.below(180)) * GiB;
    const taken = isThin ? 0n : allocatedBytes(layoutOfSpec(layout), size, EXTENT);
    if (taken > group.free) return;
    group.free -= taken;
    if (group.pool && isThin) group.pool.virtual += size;
    const number = group.volumes.length;
    const claim = `${pick(this.random, TEAMS)}/${pick(this.random, APPS)}-${node.slice(-3)}-${group.name[0]}${number}`;
    const isOdd = number === 1 && (fault === 3 || fault === 6);
    const volume = this.putVolume({ node, group: group.name, size, claim, thin: isThin, ...(layout && { layout }) }, {
      lost: isOdd && fault === 3,
      degraded: isOdd && fault === 6,
    });
    group.volumes.push({ name: volume.metadata.name, size: formatQuantity(taken) });
    if (this.random() < 0.15) {
      const cow = size / 10n / EXTENT * EXTENT;
      if (!isThin && cow > group.free) return;
      if (!isThin) group.free -= cow;
      this.putSnapshot(volume, {
        name: `${claim}-nightly`,
        ...(!isThin && { cow }),
        percent: number === 2 && fault === 5 ? 88 : 12,
      });
    }
  }

  /** Creates a volume with its PersistentVolume and its claim. */
  putVolume(
    { node, group, size, claim, layout, thin = false, source, ioLimits }: VolumeFixture,
    { lost = false, degraded = false } = {},
  ): LvmVolume {
    const id = volumeIdOf(claim);
    const [namespace, name] = claim.split("/");
    const age = this.below(90 * 86_400);
    this.api.put(persistentVolumes, {
      metadata: { name: `pvc-${id.slice(3, 11)}` },
      spec: {
        storageClassName: thin ? "thin" : "fast",
        csi: { driver: DRIVER, volumeHandle: id },
        claimRef: { namespace: namespace!, name: name!, uid: `uid-${claim}` },
      },
      status: { phase: "Bound" },
    });
    this.api.put(persistentVolumeClaims, {
      metadata: { name: name!, namespace: namespace!, uid: `uid-${claim}` },
      spec: {
        ...{ storageClassName: "fast", volumeName: `pvc-${id.slice(3, 11)}` },
        resources: { requests: { storage: formatQuantity(size) } },
      },
      status: { phase: "Bound", capacity: { storage: formatQuantity(size) } },
    });
    const redundant = degraded
      ? this.condition("Redundant", "False", "Degraded", "it works without a physical volume that is missing", 5_000)
      : this.condition("Redundant", "True", "InSync", "its RAID images are in sync");
    const volume: LvmVolume = {
      metadata: { name: id, creationTimestamp: this.ago(age), annotations: { [CLAIM_ANNOTATION]: claim } },
      spec: {
        ...{ driverName: DRIVER, requestName: claim, nodeName: node, size: formatQuantity(size) },
        ...{ volumeMode: "Filesystem", fsType: pick(this.random, ["ext4", "xfs"]), shared: false, erase: "discard" },
        ...{ volumeGroupPreference: "mostFree", ...(layout && { layout }), ...(thin && { thinProvision: true }) },
        ...{ ...(source && { source }), ...(ioLimits && { ioLimits }) },
      },
      status: {
        ...{ state: lost ? "Lost" : "Ready", size: formatQuantity(size), volumeGroup: group, lvName: volumeLvName(id) },
        ...(!lost && { usedPercent: claim === SHOWN_CLAIM ? 68 : 5 + Number.parseInt(id.slice(3, 7), 16) % 95 }),
        devicePath: `/dev/${group}/${volumeLvName(id)}`,
        conditions: [
          lost
            ? this.condition(
              "Ready",
              "False",
              "Lost",
              `the logical volume ${group}/${volumeLvName(id)} is missing`,
              900,
            )
            : this.condition("Ready", "True", "Created", "the logical volume exists"),
          ...(layout?.type === "raid1" || degraded ? [redundant] : []),
        ],
      },
    };
    this.api.restore(lvmVolumes, volume); // with the time of its creation
    return volume;
  }

  /** Creates a snapshot of a volume, with its VolumeSnapshotContent. @param options `cow`: none for a thin snapshot */
  putSnapshot(of: LvmVolume, { name, cow, percent }: { name: string; cow?: bigint; percent: number }): string {
    const id = snapshotIdOf(name);
    const [namespace, short] = name.split("/");
    this.api.put(volumeSnapshotContents, {
      metadata: { name: `snapcontent-${id.slice(3, 11)}` },
      spec: {
        ...{ driver: DRIVER, deletionPolicy: "Delete", source: { volumeHandle: of.metadata.name } },
        volumeSnapshotRef: { namespace: namespace!, name: short!, uid: `uid-${name}` },
      },
      status: { snapshotHandle: id },
    });
    const isNearFull = percent >= 80;
    this.api.put(lvmSnapshots, {
      metadata: { name: id },
      spec: { driverName: DRIVER, requestName: name, nodeName: of.spec.nodeName, sourceVolume: of.metadata.name },
      status: {
        ...{
          state: "Ready",
          volumeGroup: of.status!.volumeGroup!,
          lvName: snapshotLvName(id),
          restoreSize: of.spec.size,
        },
        ...{ creationTime: this.ago(3_600 * (2 + this.below(40))), readyToUse: true },
        ...(cow !== undefined && { size: formatQuantity(cow), cowPercent: percent }),
        conditions: [
          this.condition("Ready", "True", "Created", "the snapshot exists"),
          ...(isNearFull
            ? [this.condition("Healthy", "False", "SnapshotNearFull", `${percent}% of its COW space are used`, 2_000)]
            : []),
        ],
      },
    });
    return id;
  }

  /** Adds a volume with a claim, a pod, limits, snapshots, restored volumes, and events. */
  addShownVolume(): void {
    const node = "worker-000";
    const base = { node, group: "nvme", size: 100n * GiB };
    const layout = { type: "raid1", mirrors: 1 } as const;
    const volume = this.putVolume({
      ...{ ...base, claim: SHOWN_CLAIM, layout },
      ioLimits: { readIops: "4000", writeIops: "2000", writeBps: "200Mi" },
    });
    const [id, cow] = [volume.metadata.name, 10n * GiB];
    this.putSnapshot(volume, { name: "shop/db-0-monday", cow, percent: 41 });
    const tuesday = this.putSnapshot(volume, { name: "shop/db-0-tuesday", cow, percent: 7 });
    const restored = this.putVolume({ ...base, claim: "shop/db-restored", layout, source: { snapshot: tuesday } });
    this.putSnapshot(restored, { name: "shop/db-restored-check", cow, percent: 2 });
    this.putVolume({ ...base, claim: "shop/db-staging", source: { volume: id } });
    const [namespace, name] = SHOWN_CLAIM.split("/") as [string, string];
    this.api.put(storageClasses, {
      metadata: { name: "fast" },
      ...{ provisioner: DRIVER, allowVolumeExpansion: true, volumeBindingMode: "WaitForFirstConsumer" },
    });
    this.api.put(pods, {
      metadata: { name, namespace },
      spec: { nodeName: node, containers: [], volumes: [{ name: "data", persistentVolumeClaim: { claimName: name } }] },
      status: { phase: "Running" },
    });
    const about = (kind: string, reason: string, message: string, seconds: number, type = "Normal") =>
      this.api.put(events, {
        metadata: { name: `${name}.${reason.toLowerCase()}`, namespace },
        ...{
          involvedObject: { kind, name, namespace },
          type,
          reason,
          message,
          count: 1,
          lastTimestamp: this.ago(seconds),
        },
      });
    about("PersistentVolumeClaim", "ProvisioningSucceeded", "Successfully provisioned volume", 86_400 * 3);
    about("Pod", "Started", "Started container db", 86_300);
    about("PersistentVolumeClaim", "FileSystemResizeSuccessful", "MountVolume.NodeExpandVolume succeeded", 7_200);
    about("Pod", "Unhealthy", "Readiness probe failed: connection refused", 86_280, "Warning");
  }

  /** Adds a claim that waits for its volume. */
  addWaitingClaim(claim: string): void {
    const [namespace, name] = claim.split("/") as [string, string];
    const { metadata: { uid } } = this.api.put(persistentVolumeClaims, {
      metadata: {
        name,
        namespace,
        annotations: { "volume.kubernetes.io/storage-provisioner": DRIVER },
      },
      spec: { storageClassName: "fast", resources: { requests: { storage: "20Ti" } } },
      status: { phase: "Pending" },
    });
    this.api.put(events, {
      metadata: { name: `${name}.failed`, namespace },
      involvedObject: { kind: "PersistentVolumeClaim", name, namespace, uid: uid! },
      ...{ type: "Warning", reason: "ProvisioningFailed", lastTimestamp: this.ago(30), count: 4 },
      message: "not enough free space in nvme for 20 TiB (1.20 TiB free) [NoSpace]",
    });
  }

  /** Adds a claim that waits for its volume, a move, and an import. */
  addWork(): void {
    this.addWaitingClaim(WAITING_CLAIM);
    const handover = (claim: string) => {
      const [namespace, name] = claim.split("/") as [string, string];
      return {
        ...{ driverName: DRIVER, persistentVolume: `pvc-${volumeIdOf(claim).slice(3, 11)}` },
        claim: { namespace, name, uid: `uid-${claim}` },
      };
    };
    this.api.put(lvmMoves, {
      metadata: { name: volumeIdOf(SHOWN_CLAIM) },
      spec: { ...handover(SHOWN_CLAIM), sourceNode: "worker-000", targetNode: "worker-002" },
      status: { state: "Copying", copyMode: "Online", copy: { copied: "41Gi", total: "100Gi", percent: 41 } },
    });
    this.api.put(lvmImports, {
      metadata: { name: volumeIdOf("shop/orders") },
      spec: { ...handover("shop/orders"), from: "OpenEBS", volume: { nodeName: "worker-001" } } as LvmImport["spec"],
      status: { state: "Imported", imported: true, message: "it can be returned, or finished" },
    });
  }
}

/** What a volume is made from. */
interface VolumeFixture {
  readonly node: string;
  readonly group: string;
  readonly size: bigint;
  readonly claim: string;
  readonly layout?: LayoutSpec;
  readonly thin?: boolean;
  readonly source?: { snapshot?: string; volume?: string };
  readonly ioLimits?: Record<string, string>;
}
