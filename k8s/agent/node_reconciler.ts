/**
 * The report of a node's storage: its LVMNode, which is written after changes and at regular intervals.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import type { Exec } from "../../lvm/exec.ts";
import type { GroupMatcher } from "../../lvm/model/groups.ts";
import type { LogicalVolume } from "../../lvm/model/report.ts";
import { formatQuantity } from "../../lvm/size.ts";
import { readSurvey, type SurveyedGroup } from "../../lvm/model/survey.ts";
import { ownedVolumeId } from "../../lvm/model/tags.ts";
import {
  availableVirtual,
  DEFAULT_OVERCOMMIT,
  formatOvercommit,
  isDriverPool,
  overcommitOf,
  poolsOf,
} from "../../lvm/pools/pool.ts";
import { type Condition, conditionsOf, type NewCondition, withConditions } from "../api/conditions.ts";
import { type ApiClient, isAlreadyExists, orAbsent } from "../client/client.ts";
import { sleep, systemClock, timestamp } from "../../lvm/clock.ts";
import {
  LVM_GROUP,
  type LvmNode,
  lvmNodes,
  type LvmNodeStatus,
  type NodeThinPool,
  type NodeVolumeGroup,
} from "../api/lvm_objects.ts";
import { nodes } from "../api/objects.ts";

/** Options of {@linkcode NodeReconciler}. */
export interface NodeReconcilerOptions {
  /** The API server. */
  readonly client: ApiClient;
  /** The runner of commands. */
  readonly exec: Exec;
  /** The driver's name. */
  readonly driver: string;
  /** The node's name. */
  readonly nodeName: string;
  /** The groups that the driver may use. */
  readonly groups: GroupMatcher;
  /** The overcommit of thin pools without one of their own, in percent of their sizes; 100 by default. */
  readonly overcommit?: bigint;
  /** Called with each report of the groups. */
  readonly onReport: (groups: readonly SurveyedGroup[]) => Promise<void> | void;
  /** Returns the conditions of the node by such a report; none by default. */
  readonly conditions?: (groups: readonly SurveyedGroup[]) => readonly NewCondition[];
  /** Called with the object each time that it was written, including what others wrote into it. */
  readonly onWritten?: (object: LvmNode) => Promise<void> | void;
  /** The maximum interval between two writes, in milliseconds. */
  readonly refreshMs?: number;
  /** The time during which changes are gathered before they are written, in milliseconds. */
  readonly batchMs?: number;
}

/** The maximum interval between two reports, in milliseconds. */
const REFRESH_MS = 60_000;

/** The time during which changes are gathered, in milliseconds: many claims at once cause one report. */
const BATCH_MS = 1_000;

const log = getLogger(["denolith", "lvmnode"]);

/** Keeps the LVMNode of a node up to date. */
export class NodeReconciler {
  readonly #options: NodeReconcilerOptions;
  #requeued = new AbortController();
  /** The conditions that the object has; not known before it was first written. */
  #conditions: Condition[] | undefined;

  /** Creates it; nothing runs before {@linkcode NodeReconciler.run}. */
  constructor(options: NodeReconcilerOptions) {
    this.#options = options;
  }

  /** Schedules a report. */
  requeue(): void {
    this.#requeued.abort();
  }

  /** Keeps the object up to date until the signal is aborted; never fails. */
  async run(signal: AbortSignal): Promise<void> {
    const { refreshMs = REFRESH_MS, batchMs = BATCH_MS } = this.#options;
    while (!signal.aborted) {
      this.#requeued = new AbortController();
      try {
        await this.refresh();
        await sleep(systemClock, refreshMs, signal, this.#requeued.signal);
      } catch (error) {
        log.warn("writing the LVMNode failed", { error });
        await sleep(systemClock, batchMs * 5, signal);
      }
      await sleep(systemClock, batchMs, signal);
    }
  }

  /** Reads a report of the volume groups, and writes it into the LVMNode. */
  async refresh(): Promise<void> {
    const { exec, driver, groups, overcommit, onReport, conditions, onWritten } = this.#options;
    const survey = await readSurvey(exec);
    try {
      await onReport(survey.groups);
    } finally {
      const now = new Date();
      const status = lvmNodeStatus(survey.groups.filter(({ name }) => groups.matches(name)), {
        driver,
        now,
        overcommit,
      });
      const object = await this.#writeStatus(status, conditions?.(survey.groups) ?? [], now);
      await onWritten?.(object);
    }
  }

  /**
   * Writes the status. A patch replaces all conditions, so the existing ones are read first. The agent may not get the
   * object, so an empty patch reads it.
   *
   * @throws {Error} when the object belongs to another driver
   */
  async #writeStatus(status: LvmNodeStatus, conditions: readonly NewCondition[], now: Date): Promise<LvmNode> {
    this.#conditions ??= conditionsOf(await this.#patchStatus({}));
    const all = withConditions(this.#conditions, conditions, timestamp(now));
    const object = await this.#patchStatus({ ...status, conditions: all });
    this.#conditions = all;
    return object;
  }

  async #patchStatus(status: LvmNodeStatus): Promise<LvmNode> {
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
    this.#conditions = undefined;
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
    const object: LvmNode = {
      apiVersion: `${LVM_GROUP}/v1alpha1`,
      kind: "LVMNode",
      metadata: { name: nodeName, ownerReferences: [owner] },
      spec: { driverName: driver },
    };
    try {
      await client.create(lvmNodes, object);
    } catch (error) {
      if (!isAlreadyExists(error)) throw error;
    }
  }
}

/** Returns the status of an LVMNode for a report of its groups. */
export function lvmNodeStatus(
  groups: readonly SurveyedGroup[],
  { driver, now, overcommit = DEFAULT_OVERCOMMIT }: { driver: string; now: Date; overcommit?: bigint | undefined },
): LvmNodeStatus {
  const sum = (size: (group: SurveyedGroup) => bigint) => formatQuantity(groups.reduce((all, g) => all + size(g), 0n));
  return {
    lastUpdateTime: timestamp(now),
    total: { volumeGroups: groups.length, size: sum(({ size }) => size), free: sum(({ free }) => free) },
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
    extentSize,
    lvs,
    pvs,
    missingPvs,
    writeable,
    allocationPolicy,
    metadataSize,
    metadataFree,
  } = group;
  const pools = poolsOf(group).map((pool) => thinPoolStatus(group, pool, { driver, overcommit }));
  return {
    name,
    uuid,
    size: formatQuantity(size),
    free: formatQuantity(free),
    extentSize: formatQuantity(extentSize),
    lvCount: lvs.length,
    pvCount: pvs.length,
    // a volume that was created as a thin snapshot is not counted
    snapshotCount:
      lvs.filter(({ origin, tags }) => origin !== undefined && ownedVolumeId(driver, tags) === undefined).length,
    missingPVCount: missingPvs,
    writeable,
    allocationPolicy,
    metadata: { size: formatQuantity(metadataSize), free: formatQuantity(metadataFree) },
    physicalVolumes: pvs.map(({ uuid, path, size, free, missing }) => ({
      ...{ uuid, path, size: formatQuantity(size), free: formatQuantity(free), missing },
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
