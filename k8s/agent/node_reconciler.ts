/**
 * The report of a node's storage: its LVMNode, which is written when it changes. In between, the agent renews its Lease,
 * so that the controller knows that it lives. The Lease is renewed only after a report, which shows that LVM answers.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { defined } from "../../base/defined.ts";
import { truncate } from "../../base/error.ts";
import type { Exec } from "../../lvm/exec.ts";
import { erasingOf } from "../../lvm/inventory/leftovers.ts";
import { type GroupMatcher, groupsAllowedBy } from "../../lvm/model/groups.ts";
import type { LogicalVolume } from "../../lvm/model/report.ts";
import { formatQuantity } from "../../base/size.ts";
import { readSurvey, type SurveyedGroup } from "../../lvm/model/survey.ts";
import { GroupSectors } from "../../lvm/health/sectors.ts";
import { ownedVolumeId } from "../../lvm/model/tags.ts";
import { isSameContent } from "../api/object_status.ts";
import {
  availableVirtual,
  DEFAULT_OVERCOMMIT,
  formatOvercommit,
  isDriverPool,
  overcommitOf,
  poolsOf,
} from "../../lvm/pools/pool.ts";
import { agentLeaseName } from "../api/agent_leases.ts";
import { conditionsOf, type NewCondition, withConditions } from "../api/conditions.ts";
import { ApiError, isAlreadyExists, type MergePatch, type NodeClient, orAbsent } from "../client/client.ts";
import { backoffMs, type Clock, sleep, systemClock, timestamp } from "../../base/clock.ts";
import {
  type LvmNode,
  lvmNodes,
  type LvmNodeStatus,
  type NodeDisk,
  type NodeThinPool,
  type NodeVolumeGroup,
} from "../api/lvm_objects.ts";
import { isAtLeastVersion, leases, nodes } from "../api/objects.ts";
import type { Informer } from "../runtime/informer.ts";

/** Options of {@linkcode NodeReconciler}. */
export interface NodeReconcilerOptions extends NodeClient {
  /** The runner of commands. */
  readonly exec: Exec;
  /** The groups that the driver may use. */
  readonly groups: GroupMatcher;
  /** The overcommit of thin pools without one of their own, in percent of their sizes; 100 by default. */
  readonly overcommit?: bigint;
  /** Adds to groups why LVM has refused to change them some minutes ago. */
  readonly withRefusals?: (groups: readonly SurveyedGroup[]) => readonly SurveyedGroup[];
  /** Called with each report of the groups, before it is written. */
  readonly onReport: (groups: readonly SurveyedGroup[]) => Promise<void> | void;
  /**
   * Verifies the objects of the node by such a report. It follows the LVMNode, because it may take minutes after many
   * volumes were lost, and meanwhile their space would be offered.
   */
  readonly verify?: ((groups: readonly SurveyedGroup[]) => Promise<void>) | undefined;
  /** Returns the conditions of the node by such a report; none by default. */
  readonly conditions?: (groups: readonly SurveyedGroup[]) => readonly NewCondition[];
  /** Returns where the agent sends snapshots to other agents; `null` if it does not, `undefined` while that is not known. */
  readonly transfer?: (() => LvmNodeStatus["transfer"] | null) | undefined;
  /** Reads the disks that rules name, and reports their changes; none without rules. */
  readonly disks?: ((node: LvmNode) => Promise<NodeDisk[] | undefined>) | undefined;
  /** Called with the object after each report, including what others wrote into it. */
  readonly onReported?: (object: LvmNode) => Promise<void> | void;
  /** The LVMNode of this node. */
  readonly objects: Informer<LvmNode>;
  /** The namespace of the agent's Lease. */
  readonly namespace: string;
  /** The maximum interval between two reports, in milliseconds. */
  readonly refreshMs?: number;
  /** The time during which changes are gathered before they are written, in milliseconds. */
  readonly batchMs?: number;
}

/** The maximum interval between two reports, in milliseconds. */
const REFRESH_MS = 60_000;

/**
 * The time after a sign of life from which the next report gives another one, in milliseconds. That is every other
 * report, so every two minutes, and the controller waits for five.
 */
const SIGN_OF_LIFE_MS = 90_000;

/** The time during which changes are gathered, in milliseconds: many claims at once cause one report. */
const BATCH_MS = 1_000;

/** The maximum length of a text about a group, in characters. */
const MAX_REFUSAL_LENGTH = 300;

/** The maximum length of the names of all groups, in characters. */
const MAX_NAMES_LENGTH = 300;

const log = getLogger(["denolith", "lvmnode"]);

/**
 * What the agent reports of its node: all fields but those that others write, so that a new one does not compile before it
 * is decided here. `null` removes what the node does not have; `undefined`, while that is not known, keeps it.
 */
type NodeReport = {
  readonly [Field in Exclude<keyof LvmNodeStatus, "agent" | "doctor" | "acceptedDisks">]:
    | LvmNodeStatus[Field]
    | null
    | undefined;
};

/** The part of a report that volume groups decide. */
type GroupsReport = Omit<NodeReport, "conditions" | "transfer" | "disks">;

/** Keeps the LVMNode of a node up to date. */
export class NodeReconciler {
  readonly #options: NodeReconcilerOptions;
  readonly #clock: Clock;
  readonly #sectors: GroupSectors;
  #requeued = new AbortController();
  /** The object as it was last written, until the cache shows it; `undefined` when it was deleted since. */
  #written: LvmNode | undefined;
  /** The number of times that the object was deleted. */
  #deletions = 0;
  /** The time of the last sign of life, in the clock's milliseconds. */
  #signedAt = -Infinity;

  /** Creates it; nothing runs before {@linkcode NodeReconciler.run}. */
  constructor(options: NodeReconcilerOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#sectors = new GroupSectors(options.exec);
    options.objects.subscribe((name, now, before) => {
      if (name === options.nodeName) this.#onChanged(now, before);
    }, { replay: false });
  }

  /** Schedules a report. */
  requeue(): void {
    this.#requeued.abort();
  }

  /** Keeps the object up to date until the signal is aborted; never fails. */
  async run(signal: AbortSignal): Promise<void> {
    const { refreshMs = REFRESH_MS, batchMs = BATCH_MS } = this.#options;
    for (let failures = 0; !signal.aborted;) {
      this.#requeued = new AbortController();
      try {
        await this.refresh();
        failures = 0;
        await sleep(this.#clock, refreshMs, signal, this.#requeued.signal);
      } catch (error) {
        log.warn("reporting the node failed", { failures: ++failures, error });
        await sleep(
          this.#clock,
          backoffMs({ startMs: batchMs * 5, capMs: refreshMs }, failures, this.#clock),
          signal,
        );
      }
      await sleep(this.#clock, batchMs, signal);
    }
  }

  /** Reads a report of the volume groups, and writes it into the LVMNode unless it is there. */
  async refresh(): Promise<void> {
    const { exec, onReport, verify, withRefusals = (groups) => groups } = this.#options;
    const groups = await this.#sectors.addTo(withRefusals((await readSurvey(exec)).groups));
    try {
      await onReport(groups);
    } finally {
      try {
        await this.#writeReport(groups);
      } finally {
        await verify?.(groups);
      }
    }
  }

  async #writeReport(reported: readonly SurveyedGroup[]): Promise<void> {
    const { driver, groups, overcommit, conditions, onReported } = this.#options;
    const now = this.#clock.date();
    const status = lvmNodeStatus(groupsAllowedBy(reported, groups), { driver, now, overcommit });
    const object = await this.#report(status, conditions?.(reported) ?? [], now);
    await onReported?.(object);
  }

  /** Reports again at once when the object was deleted, or when somebody asks for something, or accepts a disk. */
  #onChanged(now: LvmNode | undefined, before: LvmNode | undefined): void {
    if (now === undefined) {
      this.#written = undefined;
      this.#deletions++;
    }
    const [asked, askedBefore] = [now, before].map((object) =>
      JSON.stringify([object?.metadata.annotations ?? {}, object?.spec.acceptedDisks ?? []])
    );
    if (now === undefined || (before !== undefined && asked !== askedBefore)) this.requeue();
  }

  /**
   * Writes the status when it differs from that of the object. Otherwise it renews the Lease now and then. While that is
   * not possible, as under a controller that creates no Leases, it writes the status as a sign of life.
   *
   * @returns the object
   * @throws {Error} when the object belongs to another driver
   */
  async #report(status: GroupsReport, added: readonly NewCondition[], now: Date): Promise<LvmNode> {
    const { objects } = this.#options;
    // A patch replaces all conditions. The agent may not get the object, so an empty patch reads it.
    const known = this.#requireOurs(this.#latest() ?? await this.#patchStatus({}));
    const conditions = withConditions(conditionsOf(known), added, timestamp(now));
    const transfer = this.#options.transfer?.();
    const disks = this.#options.disks === undefined ? null : await this.#options.disks(known);
    const wanted: NodeReport = { ...status, conditions, transfer, disks };
    const isWritten = objects.hasSynced && isContained(wanted, { ...known.status, lastUpdateTime: timestamp(now) });
    if (isWritten) {
      log.debug("nothing to do", { because: "the LVMNode says what LVM reports" });
      if (this.#clock.now() - this.#signedAt < SIGN_OF_LIFE_MS) return known;
      if (await this.#renewLease(now)) {
        this.#signedAt = this.#clock.now();
        return known;
      }
    }
    const deletions = this.#deletions;
    const written = await this.#patchStatus(wanted);
    if (deletions === this.#deletions) this.#written = written;
    this.#signedAt = this.#clock.now();
    return written;
  }

  /** Returns the object as it was last seen; `undefined` when it is not known or does not exist. */
  #latest(): LvmNode | undefined {
    const { objects, nodeName } = this.#options;
    const cached = objects.get(nodeName);
    if (cached === undefined) return this.#written;
    // from then on the cache is right, also when it shows a restored backup, whose revision is lower
    if (isAtLeastVersion(cached, this.#written?.metadata.resourceVersion ?? "0")) this.#written = undefined;
    return this.#written ?? cached;
  }

  /**
   * Renews the Lease of the agent.
   *
   * @returns whether there is one, and the API server accepts it: roles of an older version, or a webhook, may not
   */
  async #renewLease(now: Date): Promise<boolean> {
    const { client, namespace, nodeName } = this.#options;
    const at = { name: agentLeaseName(nodeName), namespace };
    const spec = { holderIdentity: nodeName, renewTime: `${now.toISOString().slice(0, -1)}000Z` };
    try {
      return await orAbsent(client.patch(leases, at, { merge: { spec } })) !== undefined;
    } catch (error) {
      if (error instanceof ApiError && error.status !== 0 && error.status !== 429) return false;
      throw error;
    }
  }

  async #patchStatus(status: MergePatch<LvmNodeStatus>): Promise<LvmNode> {
    const { client, nodeName } = this.#options;
    const patch = () => client.patch(lvmNodes, { name: nodeName }, { merge: { status }, subresource: "status" });
    const patched = await orAbsent(patch());
    if (patched !== undefined) return this.#requireOurs(patched);
    await this.#create();
    return this.#requireOurs(await patch());
  }

  /** Requires that the object is of this driver. Otherwise nothing is written before it is read again. */
  #requireOurs(object: LvmNode): LvmNode {
    const { driver, nodeName } = this.#options;
    const { driverName } = object.spec;
    if (driverName === driver) return object;
    this.#written = undefined;
    throw new Error(
      `writing LVMNode ${nodeName}: LVMNode ${nodeName} belongs to the driver ${driverName}, so ${driver} offers no space on ` +
        "this node; delete it if that driver is gone, or keep the two drivers on different nodes",
    );
  }

  /** Creates the object, owned by the Node, so that it is deleted with it. */
  async #create(): Promise<void> {
    const { client, driver, nodeName } = this.#options;
    const { metadata: { uid } } = await client.get(nodes, { name: nodeName });
    const owner = { apiVersion: "v1", kind: "Node", name: nodeName, uid: uid! };
    try {
      const metadata = { name: nodeName, ownerReferences: [owner] };
      await client.create(lvmNodes, { metadata, spec: { driverName: driver } });
    } catch (error) {
      if (!isAlreadyExists(error)) throw error;
    }
  }
}

/**
 * Reports whether a value has all that another one has, and not what that has as `null`. Lists must have the same content,
 * since they are written as a whole. What else only the value has is of others, or of a newer version.
 */
function isContained(part: unknown, value: unknown): boolean {
  if (part === undefined) return true;
  if (part === null) return value === undefined;
  if (typeof part !== "object" || Array.isArray(part)) return isSameContent(part, value);
  if (typeof value !== "object" || value === null) return false;
  return Object.entries(part).every(([key, field]) => isContained(field, (value as Record<string, unknown>)[key]));
}

/** Returns the status of an LVMNode for a report of its groups. */
export function lvmNodeStatus(
  groups: readonly SurveyedGroup[],
  { driver, now, overcommit = DEFAULT_OVERCOMMIT }: { driver: string; now: Date; overcommit?: bigint | undefined },
): GroupsReport {
  const sum = (size: (group: SurveyedGroup) => bigint) => formatQuantity(groups.reduce((all, g) => all + size(g), 0n));
  return {
    lastUpdateTime: timestamp(now),
    total: {
      volumeGroups: groups.length,
      names: truncate(groups.map(({ name }) => name).join(", "), MAX_NAMES_LENGTH),
      size: sum(({ size }) => size),
      free: sum(({ free }) => free),
    },
    volumeGroups: groups.map((group) => groupStatus(group, driver, overcommit)),
    thinPoolOvercommit: formatOvercommit(overcommit),
  };
}

function groupStatus(group: SurveyedGroup, driver: string, overcommit: bigint): NodeVolumeGroup {
  const {
    name,
    uuid,
    size,
    free,
    spare,
    hostUse,
    sectorBytes,
    extentSize,
    lvs,
    pvs,
    missingPvs,
    writeable,
    refusal,
    refusalReason,
    allocationPolicy,
    metadataSize,
    metadataFree,
  } = group;
  const erasing = erasingOf(driver, group);
  const pools = poolsOf(group).map((pool) => thinPoolStatus(group, pool, { driver, overcommit }));
  return {
    name,
    uuid,
    size: formatQuantity(size),
    free: formatQuantity(free),
    ...(spare === undefined ? {} : { spare: formatQuantity(spare) }),
    ...defined({ hostUse }),
    ...(sectorBytes === undefined ? {} : { sectorSize: formatQuantity(sectorBytes) }),
    ...(erasing.volumes === 0 ? {} : { erasing: { volumes: erasing.volumes, space: formatQuantity(erasing.bytes) } }),
    extentSize: formatQuantity(extentSize),
    lvCount: lvs.length,
    pvCount: pvs.length,
    // a volume that was created as a thin snapshot is not counted
    snapshotCount:
      lvs.filter(({ origin, tags }) => origin !== undefined && ownedVolumeId(driver, tags) === undefined).length,
    missingPVCount: missingPvs,
    writeable: writeable && refusal === undefined,
    ...defined({ refusal: refusal && truncate(refusal, MAX_REFUSAL_LENGTH), refusalReason }),
    allocationPolicy,
    metadata: { size: formatQuantity(metadataSize), free: formatQuantity(metadataFree) },
    physicalVolumes: pvs.map(({ uuid, path, size, free, cacheFree, missing }) => ({
      ...{ uuid, path, size: formatQuantity(size), free: formatQuantity(free), missing },
      ...(cacheFree === undefined ? {} : { cacheFree: formatQuantity(cacheFree) }),
    })),
    volumes: lvs.flatMap(({ tags, size }) => {
      const id = ownedVolumeId(driver, tags);
      return id === undefined ? [] : [{ name: id, size: formatQuantity(size) }];
    }),
    ...(pools.length === 0 ? {} : { thinPools: pools }),
  };
}

function thinPoolStatus(
  group: SurveyedGroup,
  pool: LogicalVolume,
  { driver, overcommit }: { driver: string; overcommit: bigint },
): NodeThinPool {
  const { dataPercent, metadataPercent } = pool.thinPool!;
  return {
    name: pool.name,
    size: formatQuantity(pool.size),
    owned: isDriverPool(driver, pool),
    overcommit: formatOvercommit(overcommitOf(pool, overcommit)),
    availableVirtual: formatQuantity(availableVirtual(group, pool, overcommit)),
    ...(dataPercent === undefined ? {} : { dataPercent: Math.min(100, Math.ceil(dataPercent)) }),
    ...(metadataPercent === undefined ? {} : { metadataPercent: Math.min(100, Math.ceil(metadataPercent)) }),
  };
}
