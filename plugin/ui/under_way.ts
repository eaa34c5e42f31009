/**
 * What is under way in a cluster and takes time: moves, imports, and copies, also those between nodes.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { quantityToBytes } from "../../k8s/api/quantity.ts";
import type { LvmVolume } from "../../k8s/api/lvm_objects.ts";
import { isFinished } from "../../k8s/handover/handover.ts";
import type { LvmImport } from "../../k8s/handover/imports.ts";
import { moveProgressText } from "../../k8s/handover/move_status.ts";
import { type LvmMove, moveUidOf } from "../../k8s/handover/moves.ts";
import type { ClusterState } from "../diagnosis/cluster_state.ts";
import type { VolumeView } from "../diagnosis/volumes.ts";
import { importProgressText } from "../import/text.ts";
import { compareText } from "../problem.ts";
import { type CommandTarget, inCluster } from "./commands.ts";

/** Something that is under way. */
export interface Work {
  /** A `transfer` is a copy from another node. */
  readonly kind: "move" | "import" | "copy" | "transfer";
  /** The id of the volume. */
  readonly volume: string;
  /** The claim, as `namespace/name`. */
  readonly claim?: string;
  /** The node, driver, volume or snapshot that it comes from, and the node that it goes to. */
  readonly from: string;
  readonly to: string;
  readonly state: string;
  /** How much is copied, in percent. */
  readonly percent?: number;
  /** What happens, or what it waits for. */
  readonly message: string;
  /** The time at which it was requested (RFC 3339). */
  readonly since?: string;
  /** The commands that end it otherwise. */
  readonly commands: readonly string[];
  /** The chapter about what does not go on. */
  readonly runbook?: string;
}

/** Returns what is under way, in the order of its claims. @param volumes those of the state */
export function underWay(state: ClusterState, volumes: readonly VolumeView[], target: CommandTarget): Work[] {
  const views = new Map(volumes.map((view) => [view.id, view]));
  const { moves = [], imports = [] } = state.work ?? {};
  return [
    ...moves.filter(({ status }) => status?.state !== "Complete").map((move) => moveWork(move, target)),
    ...imports.filter((one) => !isFinished(one)).map((one) => importWork(one, target)),
    // that of a move is part of the move
    ...state.volumes.filter((volume) => moveUidOf(volume) === undefined)
      .flatMap((volume) => copyWork(volume, views.get(volume.metadata.name))),
  ].sort((a, b) => compareText(a.claim ?? "~", b.claim ?? "~") || compareText(a.volume, b.volume));
}

function claimOf({ claim: { namespace, name } }: LvmMove["spec"] | LvmImport["spec"]) {
  return { claim: `${namespace}/${name}`, arguments: `${name} --namespace ${namespace}` };
}

function moveWork(move: LvmMove, target: CommandTarget): Work {
  const { metadata: { name, creationTimestamp }, spec, status = {} } = move;
  const { state = "Pending", copy, removing, message } = status;
  const { claim, arguments: args } = claimOf(spec);
  const command = state === "Failed"
    ? `kubectl delete lvmmoves.lvm.denolith.dev ${name}`
    : removing || state === "Undoing"
    ? undefined
    : `kubectl denolith move ${args} --cancel`;
  return {
    ...{ kind: "move", volume: name, claim, from: spec.sourceNode, to: spec.targetNode, state },
    ...defined({ percent: state === "Copying" ? copy?.percent : undefined, since: creationTimestamp }),
    message: state === "Failed" ? message ?? "" : moveProgressText(move),
    commands: command === undefined ? [] : [inCluster(command, target)],
    runbook: "move/when-it-does-not-go-on",
  };
}

function importWork(one: LvmImport, target: CommandTarget): Work {
  const { metadata: { name, creationTimestamp }, spec, status = {} } = one;
  const { claim, arguments: args } = claimOf(spec);
  const { state = "Pending", finishing } = status;
  const flags = finishing || state === "Undoing" ? [] : [...(state === "Imported" ? ["--finish"] : []), "--cancel"];
  return {
    ...{ kind: "import", volume: name, claim, from: spec.from, to: spec.volume.nodeName, state },
    ...defined({ since: creationTimestamp }),
    message: importProgressText(one),
    commands: flags.map((flag) => inCluster(`kubectl denolith import ${args} ${flag}`, target)),
    runbook: "import/when-it-does-not-go-on",
  };
}

function copyWork({ metadata, spec, status }: LvmVolume, view: VolumeView | undefined): Work[] {
  const { copy } = status ?? {};
  if (copy === undefined) return [];
  const { source, sourceNode, nodeName } = spec;
  const [copied, total] = [quantityToBytes(copy.copied) ?? 0n, quantityToBytes(copy.total) ?? 0n];
  const percent = copy.percent ?? (total === 0n ? undefined : Number(copied * 100n / total));
  return [{
    kind: sourceNode === undefined ? "copy" : "transfer",
    volume: metadata.name,
    ...defined({ claim: view?.claim, percent, since: metadata.creationTimestamp }),
    from: sourceNode ?? source?.snapshot ?? source?.volume ?? "",
    to: nodeName,
    state: view?.state ?? "",
    message: `${copy.copied}${copy.total === undefined ? "" : ` of ${copy.total}`} copied` +
      (copy.lastError === undefined ? "" : `; the last attempt failed: ${copy.lastError}`),
    commands: [],
  }];
}
