/**
 * `kubectl denolith adopt`: lets the volumes of a volume group follow their disks, which were carried to another node.
 *
 * @module
 */

import { TOPOLOGY_KEY } from "../../csi/topology.ts";
import { StorageError } from "../../base/error.ts";
import { formatTable } from "../../base/text_table.ts";
import { ApiError, orAbsent } from "../../k8s/client/client.ts";
import { isForgotten, type LvmNode, lvmNodes, type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { persistentVolumes } from "../../k8s/api/objects.ts";
import { isFinished } from "../../k8s/handover/handover.ts";
import { type LvmMove, lvmMoves } from "../../k8s/handover/moves.ts";
import { nodeOfVolume } from "../../k8s/handover/persistent_volume.ts";
import { EXIT } from "../../cli/command_line.ts";
import { askForMove, followObject, type NewMove } from "./move_follow.ts";
import type { Answer } from "../output.ts";
import type { Session } from "../session.ts";
import type { DrainedVolume } from "../move/drain.ts";

/** A volume of the group, and what becomes of it. */
interface AdoptedVolume extends Pick<DrainedVolume, "volume" | "claim" | "refusal"> {
  readonly sourceNode: string;
  readonly state?: string;
  readonly move?: NewMove;
}

/** Adopts the volumes of a group; with `--dry-run` only shows them. @returns 0; 1 when one cannot be adopted */
export async function adoptGroup(session: Session): Promise<number> {
  const { flags, subject } = session;
  const group = flags["GROUP"]!;
  const { node, uuid } = await findGroup(session, group);
  const plan = await planAdoption(session, node, uuid);
  const adoptable = plan.filter(({ move }) => move !== undefined);
  const isForProgram = flags.output !== undefined && flags.yes === undefined; // a program cannot be asked
  if (flags["dry-run"] !== undefined || isForProgram || adoptable.length === 0) {
    session.print(answer(group, node, plan));
    return adoptable.length === plan.length ? EXIT.success : EXIT.failure;
  }
  if (flags.yes === undefined) session.print(answer(group, node, plan));
  const count = adoptable.length === 1 ? "1 volume" : `${adoptable.length} volumes`;
  if (!session.confirm(`Let ${count} follow to node ${node} of context ${subject.context}?`)) return EXIT.failure;
  const outcomes: AdoptedVolume[] = [];
  for (const one of plan) outcomes.push(one.move === undefined ? one : await adoptOne(session, one, one.move));
  session.print(answer(group, node, outcomes));
  return outcomes.every(({ state }) => state === "Complete") ? EXIT.success : EXIT.failure;
}

/** Returns the node that reports a group, and its UUID. @throws {StorageError} */
async function findGroup({ client, driver, flags }: Session, group: string): Promise<{ node: string; uuid: string }> {
  const { items } = await client.list(lvmNodes);
  const uuidOn = ({ status }: LvmNode) => status?.volumeGroups?.find(({ name }) => name === group)?.uuid;
  const found = items.filter((node) =>
    node.spec.driverName === driver && uuidOn(node) !== undefined &&
    (flags.node === undefined || node.metadata.name === flags.node)
  );
  const [node, ...others] = found;
  if (node === undefined) throw new StorageError("NotFound", `adopt: no agent reports volume group ${group}`);
  if (others.length === 0) return { node: node.metadata.name, uuid: uuidOn(node)! };
  const names = found.map(({ metadata: { name } }) => name).join(", ");
  throw new StorageError(
    "FailedPrecondition",
    `adopt: the nodes ${names} have a volume group ${group}; name one with --node`,
  );
}

/** Returns the volumes that were in a group, and are not on its node in the cluster. */
async function planAdoption({ client, driver }: Session, node: string, uuid: string): Promise<AdoptedVolume[]> {
  const [volumes, allVolumes] = await Promise.all([client.list(lvmVolumes), client.list(persistentVolumes)]);
  const carried = volumes.items.filter(({ spec, status }) =>
    spec.driverName === driver && spec.nodeName !== node && status?.volumeGroupUUID === uuid
  );
  return carried.map((volume): AdoptedVolume => {
    const { metadata: { name }, spec: { nodeName: sourceNode } } = volume;
    const object = allVolumes.items.find(({ spec }) => spec?.csi?.driver === driver && spec.csi.volumeHandle === name);
    const { namespace = "", name: claimName = "", uid = "" } = object?.spec?.claimRef ?? {};
    const base = { volume: name, sourceNode, ...(uid !== "" && { claim: `${namespace}/${claimName}` }) };
    const refusal = object?.status?.phase !== "Bound" || uid === ""
      ? "no claim is bound to it"
      : nodeOfVolume(object, TOPOLOGY_KEY) !== sourceNode
      ? `the node affinity of PersistentVolume ${object.metadata.name} is not to node ${sourceNode} alone`
      : refusalOf(volume);
    if (refusal !== undefined) return { ...base, refusal };
    const claim = { namespace, name: claimName, uid };
    const spec = {
      driverName: driver,
      persistentVolume: object!.metadata.name,
      claim,
      sourceNode,
      targetNode: node,
      adopt: true,
    };
    return { ...base, move: { metadata: { name }, spec } };
  }).sort((a, b) => (a.claim ?? a.volume) < (b.claim ?? b.volume) ? -1 : 1);
}

function refusalOf(volume: LvmVolume): string | undefined {
  const { nodeName } = volume.spec;
  if (isForgotten(volume)) return undefined;
  return `node ${nodeName} is not forgotten: make sure that it is down, then kubectl denolith forget-node ${nodeName}`;
}

async function adoptOne(session: Session, one: AdoptedVolume, move: NewMove): Promise<AdoptedVolume> {
  try {
    const existing = await orAbsent(session.client.get(lvmMoves, { name: one.volume }));
    const asked = existing?.spec.adopt && !isFinished(existing) ? existing : await askForMove(session, move);
    const isEnd = (now: LvmMove | undefined) => now?.metadata.uid !== asked.metadata.uid || isFinished(now!);
    const onMove = (now?: LvmMove) => Promise.resolve(isEnd(now) ? now ?? asked : undefined);
    const { status } = await followObject(session, lvmMoves, one.volume, onMove);
    return { ...one, state: status?.state ?? "Pending", ...(status?.error && { refusal: status.error.message }) };
  } catch (error) {
    const isOfOne = error instanceof StorageError || error instanceof ApiError;
    if (!isOfOne || session.signal.aborted) throw error;
    return { ...one, refusal: error.message };
  }
}

function answer(group: string, node: string, volumes: readonly AdoptedVolume[]): Answer {
  const rows = volumes.map(({ claim, volume, sourceNode, state, move, refusal }) => ({
    cells: [claim ?? volume, sourceNode, state ?? (move === undefined ? "stays" : "follows")],
    notes: refusal === undefined ? [] : [refusal],
  }));
  const columns = [["CLAIM", "left"], ["FROM", "left"], ["STATE", "left"]] as const;
  return {
    data: { group, node, volumes: volumes.map(({ move: _, ...volume }) => volume) },
    text: () =>
      volumes.length === 0
        ? `No volume of the cluster was in volume group ${group} of node ${node} on another node.`
        : [`Volume group ${group} is on node ${node} now:`, "", ...formatTable(columns, rows)].join("\n"),
  };
}
