/**
 * `kubectl denolith drain`: shows where the volumes of a node can go, asks, and moves them one after the other.
 *
 * @module
 */

import { parseGroupList } from "../../csi/group_list.ts";
import { requireNodeId, TOPOLOGY_KEY } from "../../csi/topology.ts";
import { StorageError } from "../../base/error.ts";
import { formatBytes } from "../../base/size.ts";
import { formatTable } from "../../base/text_table.ts";
import { ApiError } from "../../k8s/client/client.ts";
import { type DrainedVolume, planDrain, readDrainState } from "../move/drain.ts";
import { previewMove, type PreviewOptions } from "../move/preview.ts";
import { EXIT } from "../../cli/command_line.ts";
import { askForMove, followToEnd } from "./move_follow.ts";
import type { Answer } from "../output.ts";
import type { Session } from "../session.ts";

/** What became of a volume. */
type DrainOutcome = DrainedVolume & { readonly state?: string };

/** Moves the volumes of a node; with `--dry-run` only shows the plan. @returns 0; 1 when one stays, or the answer is no */
export async function drainNode(session: Session): Promise<number> {
  const { client, driver, flags, subject } = session;
  const nodeName = requireNodeId(flags["NODE"]!);
  const planNow = async () => planDrain(await readDrainState(client, driver, nodeName), previewOptions(session));
  const plan = await planNow();
  const moving = plan.filter(({ targetNode }) => targetNode !== undefined);
  const isForProgram = flags.output !== undefined && flags.yes === undefined; // a program cannot be asked
  if (flags["dry-run"] !== undefined || isForProgram || moving.length === 0) {
    session.print(drainAnswer(nodeName, plan));
    return moving.length === plan.length ? EXIT.success : EXIT.failure;
  }
  if (flags.yes === undefined) session.print(drainAnswer(nodeName, plan));
  const count = moving.length === 1 ? "1 volume" : `${moving.length} volumes`;
  if (!session.confirm(`Move ${count} from node ${nodeName} of context ${subject.context}?`)) return EXIT.failure;
  const outcomes: DrainOutcome[] = [];
  for (const one of plan) {
    const planAgain = async () => (await planNow()).find(({ volume }) => volume === one.volume) ?? one;
    // volumes that pods use together follow one that went elsewhere
    const isAsPlanned = outcomes.every(({ targetNode }, index) => targetNode === plan[index]!.targetNode);
    const first = isAsPlanned || one.targetNode === undefined ? one : await planAgain();
    outcomes.push(await moveToAnyNode(session, first, planAgain));
  }
  session.print(drainAnswer(nodeName, outcomes));
  return outcomes.every(({ state }) => state === "Complete") ? EXIT.success : EXIT.failure;
}

/** Moves a volume to the node of its plan or, where that cannot have it any more, to the next one that can. */
async function moveToAnyNode(
  session: Session,
  first: DrainedVolume,
  planAgain: () => Promise<DrainedVolume>,
): Promise<DrainOutcome> {
  const tried = new Set<string | undefined>([undefined]); // without a node, it stays
  let [next, outcome]: [DrainedVolume, DrainOutcome] = [first, first];
  while (!tried.has(next.targetNode)) {
    tried.add(next.targetNode);
    outcome = await moveOne(session, next);
    if (outcome.state !== undefined) break; // also of one that failed: it was begun
    next = await planAgain();
  }
  return outcome;
}

/** Moves a volume, as long as that is possible by now. What fails does not keep the others. */
async function moveOne(session: Session, one: DrainedVolume): Promise<DrainOutcome> {
  const { client, driver, flags } = session;
  const [namespace, claimName] = one.claim!.split("/") as [string, string];
  try {
    const request = { driver, namespace, claimName, targetNode: one.targetNode! };
    const { plan, move } = await previewMove(client, request, previewOptions(session));
    if (plan.refusal !== undefined) return { ...one, refusal: plan.refusal };
    if (flags.output === undefined) session.say(`\n${one.claim} to node ${one.targetNode}:`);
    const { move: { status } } = await followToEnd(session, plan, await askForMove(session, move));
    return {
      ...one,
      ...(status?.state && { state: status.state }),
      ...(status?.error && { refusal: status.error.message }),
    };
  } catch (error) {
    const isOfOne = error instanceof StorageError || error instanceof ApiError;
    if (!isOfOne || session.signal.aborted) throw error;
    return { ...one, refusal: error.message };
  }
}

function previewOptions({ now }: Session): PreviewOptions {
  return { topologyKey: TOPOLOGY_KEY, parseGroups: parseGroupList, now: now.getTime() };
}

function drainAnswer(nodeName: string, volumes: readonly DrainOutcome[]): Answer {
  const rows = volumes.map(({ claim, volume, size, targetNode, state, refusal }) => ({
    cells: [claim ?? volume, formatBytes(size), targetNode ?? "stays", state ?? ""],
    notes: refusal === undefined ? [] : [refusal],
  }));
  const columns = [["CLAIM", "left"], ["SIZE", "right"], ["TO", "left"], ["STATE", "left"]] as const;
  return {
    data: { node: nodeName, volumes },
    text: () => volumes.length === 0 ? `Node ${nodeName} has no volumes.` : formatTable(columns, rows).join("\n"),
  };
}
