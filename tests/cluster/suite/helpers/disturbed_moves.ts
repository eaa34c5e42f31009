/**
 * Moves of a claim in use that something befalls: at a step that the LVMMove records, or at a random moment after that.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { isFinished } from "../../../../k8s/handover/handover.ts";
import type { LvmMove } from "../../../../k8s/handover/moves.ts";
import { pollUntil } from "../../../rig/poll_until.ts";
import { type RandomSource, runRandom } from "../../../rig/seeded_random.ts";
import { listDriverLvs } from "./driver_lvs.ts";
import { DriverPods } from "./driver_pods.ts";
import { addWriter, lvsOf, moveAndCheck, removeWriter } from "./move_helpers.ts";
import { WAIT_MS } from "./object_watcher.ts";
import { TestNamespace } from "./test_namespace.ts";
import { createClasses, type Layout } from "./transfer_helpers.ts";

/** The steps of an online move at which something befalls it, as the LVMMove records them, in their order. */
export const STEPS = {
  "the volume in use is copied": ({ status }) =>
    status?.state === "Copying" && !isHeld(status) && !status.differences && (status.copy?.percent ?? 0) > 0,
  "a difference is copied while the volume is used": ({ status }) =>
    status?.state === "Copying" && !isHeld(status) && (status.differences ?? 0) > 0,
  "the volume is being held": ({ status }) => status?.state === "Holding",
  "the last difference is copied": ({ status }) => status?.state === "Copying" && isHeld(status),
  "the PersistentVolume is made again": ({ status }) => status?.state === "Switching",
  "the source is being removed": ({ status }) => status?.state === "Removing",
} as const satisfies Record<string, (move: LvmMove) => boolean>;

/** The name of a step. */
export type StepName = keyof typeof STEPS;

/** The names of all steps. */
export const STEP_NAMES = Object.keys(STEPS) as StepName[];

/** What befalls a move. */
export interface Blow {
  /** What it is, in words. */
  readonly name: string;
  /** When it befalls the move: as soon as a step is recorded, or so many milliseconds after the one before. */
  readonly when: StepName | number;
  /** Strikes. @param now the LVMMove as it is then @returns more about it, in words */
  readonly strike: (harness: Harness, now: LvmMove) => Promise<string | void>;
}

/** A claim in use that is moved. */
export interface Harness {
  readonly ns: TestNamespace;
  readonly driver: DriverPods;
  readonly random: RandomSource;
  /** The digest of what the workload does not change. */
  readonly digest: string;
  /** The id of its volume. */
  readonly id: string;
}

function isHeld({ heldTime }: NonNullable<LvmMove["status"]>): boolean {
  return heldTime !== undefined;
}

/** Describes where a move is. */
export function textOf({ status }: LvmMove): string {
  const { state = "not begun", differences = 0, copy, heldTime } = status ?? {};
  const percent = copy?.percent === undefined ? "" : `, ${copy.percent} %`;
  return state === "Copying" ? `${state}${heldTime ? " while held" : ""}, difference ${differences}${percent}` : state;
}

/** Reads the move from the API server. */
export async function readMove({ ns, id }: Harness): Promise<LvmMove | undefined> {
  const text = await ns.kubectl("get", "lvmmove", id, "--ignore-not-found", "--output=json");
  return text.trim() === "" ? undefined : JSON.parse(text);
}

/** Waits for the moment of a blow. @returns the move as it is then; `undefined` when it is over by then */
async function waitForMoment(harness: Harness, when: Blow["when"]): Promise<LvmMove | undefined> {
  const { ns, id } = harness;
  if (typeof when === "number") {
    await new Promise((resolve) => setTimeout(resolve, when)); // the moment is random: any must do no harm
    const now = await readMove(harness);
    return now === undefined || isFinished(now) ? undefined : now;
  }
  const isThere = (move: LvmMove | undefined) => move !== undefined && (isFinished(move) || STEPS[when](move));
  const now = await ns.waitFor("LVMMove", id, isThere, `records that ${when}`);
  assert(!isFinished(now), `the move is ${now.status?.state} and never recorded that ${when}`);
  return now;
}

/**
 * Moves the claim once, while blows befall the move; checks that they leave nothing. What would come after the end of the move
 * does not come, and is not counted.
 *
 * @returns how many there were
 */
export async function moveUnder(harness: Harness, blows: readonly Blow[]): Promise<number> {
  const { ns, id, digest } = harness;
  const befallen: string[] = [];
  const outcome = await moveAndCheck(ns, digest, async () => {
    await ns.waitFor("LVMMove", id, (move) => move?.status?.state !== undefined, "has begun");
    for (const { name, when, strike } of blows) {
      const now = await waitForMoment(harness, when);
      if (now === undefined) return;
      const more = await strike(harness, now);
      const after = typeof when === "number" ? `, ${when} ms after the one before` : "";
      befallen.push(`${textOf(now)}${after}: ${name}${more ? ` (${more})` : ""}`);
      const found = await lvsOf(ns, id).catch(() => []); // a node may be away
      assert(found.length <= 1, `two LVs have the id: ${JSON.stringify(found)}`);
    }
  });
  await assertNothingLeft(harness);
  await ns.deleteAndWait("LVMMove", id);
  console.error(`${outcome}; ${befallen.join("; ") || "undisturbed"}`);
  return befallen.length;
}

/** Waits until the LV of the volume is all that is there of it on either node; no device may be suspended. */
async function assertNothingLeft({ ns }: Harness): Promise<void> {
  let left: string[] = [];
  const isClean = async () => {
    const lvs = (await Promise.all(ns.cluster.nodes.map(listDriverLvs))).flat();
    const objects = (await ns.kubectl("get", "lvmvolumes,lvmsnapshots", "--output=name")).trim().split("\n");
    const own = lvs.filter(({ tags }) => tags.some((tag) => /^denolith\.(?:volume|snapshot|deleted)=/.test(tag)));
    left = [...objects, ...own.map(({ node, name, tags }) => `${node}: LV ${name} ${tags}`)];
    return objects.length === 1 && own.length === 1;
  };
  await pollUntil(isClean, { action: "wait for one volume alone", timeoutMs: WAIT_MS, intervalMs: 500 }).catch((e) => {
    throw new Error(`${e.message}: ${left.join(", ")}`);
  });
  for (const node of ns.cluster.nodes) {
    const devices = await ns.runOnNode("dmsetup info -c --noheadings --separator ' ' -o name,suspended", node);
    assertEquals(devices.split("\n").filter((line) => line.endsWith("Suspended")), [], `devices of ${node.name}`);
  }
}

/** Opens a namespace with a claim in use, and removes it at the end. */
export async function withHarness(layout: Layout, body: (harness: Harness) => Promise<void>): Promise<void> {
  await using ns = await TestNamespace.open(`moves-${layout}`);
  await using driver = await DriverPods.open(ns.cluster);
  const random = runRandom();
  const classes = await createClasses(ns);
  const digest = await addWriter(ns, classes[layout]);
  const id = (await ns.volumeOf("data")).spec!.csi!.volumeHandle;
  await body({ ns, driver, random, digest, id });
  await removeWriter(ns);
}
