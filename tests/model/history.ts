/**
 * Histories: what people, faults and chance do to a cluster.
 *
 * @module
 */

import fc from "fast-check";
import type { Cut } from "./network.ts";

/** Which of the things that are there, by a number of which the remainder counts. */
type Which = number;

/** What happens. */
export type Deed =
  | {
    readonly do: "claim";
    readonly class: ClassName;
    readonly mib: number;
    readonly block: boolean;
    readonly pod: boolean;
  }
  | { readonly do: "pod"; readonly claim: Which }
  | { readonly do: "end pod"; readonly pod: Which }
  | { readonly do: "snapshot"; readonly claim: Which; readonly class: SnapshotClassName }
  | { readonly do: "delete snapshot"; readonly snapshot: Which }
  | { readonly do: "group snapshot"; readonly claims: readonly Which[] }
  | { readonly do: "delete group snapshot"; readonly group: Which }
  | {
    readonly do: "restore" | "clone";
    readonly from: Which;
    readonly class: Which;
    readonly more: number;
    readonly pod: boolean;
  }
  | { readonly do: "grow"; readonly claim: Which; readonly mib: number }
  | { readonly do: "rotate key"; readonly claim: Which }
  | { readonly do: "move"; readonly claim: Which; readonly offline: boolean; readonly evict: boolean }
  | { readonly do: "undo move"; readonly move: Which }
  | { readonly do: "foreign claim"; readonly node: Which; readonly mib: number }
  | { readonly do: "import"; readonly claim: Which }
  | { readonly do: "finish import" | "undo import"; readonly import: Which }
  | { readonly do: "delete claim"; readonly claim: Which }
  | { readonly do: "kill agent" | "restart agent"; readonly node: Which; readonly forMs: number }
  | { readonly do: "kill controller" | "restart controller"; readonly forMs: number }
  | { readonly do: "power off"; readonly node: Which; readonly forMs: number }
  | { readonly do: "slow down"; readonly node: Which; readonly times: number; readonly forMs: number }
  | { readonly do: "forget node"; readonly node: Which }
  | { readonly do: "cut"; readonly who: Which; readonly how: Cut; readonly forMs: number }
  | { readonly do: "pause"; readonly who: Which; readonly forMs: number }
  | { readonly do: "forget history" };

/** A step of a history. */
export type Step = Deed & {
  /** The time that passes before the next one, in milliseconds. */
  readonly ms: number;
  /** Of the chance until then. */
  readonly seed: number;
};

/** A history. */
export type History = readonly Step[];

/** The classes, with what makes them. */
export const CLASSES = {
  now: { parameters: {}, volumeBindingMode: "Immediate" },
  later: { parameters: {}, volumeBindingMode: "WaitForFirstConsumer" },
  thin: { parameters: { thinProvision: "yes", thinPoolSize: "128Mi" }, volumeBindingMode: "Immediate" },
  locked: {
    parameters: { encryption: "luks2", ...secretsFor("node-stage", "node-publish") },
    volumeBindingMode: "Immediate",
  },
} as const;

export type ClassName = keyof typeof CLASSES;

/** The classes of snapshots, with their parameters. */
export const SNAPSHOT_CLASSES = { whole: {}, small: { snapSize: "20%" } } as const;

export type SnapshotClassName = keyof typeof SNAPSHOT_CLASSES;

/** Returns the parameters of a class whose volumes have secrets with the names of their claims. */
function secretsFor(...uses: readonly string[]): Record<string, string> {
  return Object.fromEntries(uses.flatMap((use) => [
    [`csi.storage.k8s.io/${use}-secret-name`, "${pvc.name}"],
    [`csi.storage.k8s.io/${use}-secret-namespace`, "${pvc.namespace}"],
  ]));
}

const which = fc.nat(7);
const faultMs = fc.constantFrom(500, 5_000, 20_000, 60_000, 400_000);

/** What people do. */
const wishes: fc.Arbitrary<Deed> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant("claim"),
      class: fc.constantFrom(...Object.keys(CLASSES) as ClassName[]),
      mib: fc.constantFrom(4, 20, 40, 64, 200),
      block: fc.boolean(),
      pod: fc.constantFrom(true, true, true, false),
    }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("pod"), claim: which }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("end pod"), pod: which }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("delete claim"), claim: which }) },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant("snapshot"), claim: which, class: fc.constantFrom("whole", "small") }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("delete snapshot"), snapshot: which }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant("group snapshot"),
      claims: fc.array(which, { minLength: 1, maxLength: 3 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("delete group snapshot"), group: which }) },
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constantFrom("restore", "clone"),
      from: which,
      class: which,
      more: fc.constantFrom(0, 0, 20),
      pod: fc.constantFrom(true, true, true, false),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("grow"), claim: which, mib: fc.constantFrom(4, 30, 100) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("rotate key"), claim: which }) },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant("move"), claim: which, offline: fc.boolean(), evict: fc.boolean() }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("undo move"), move: which }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("foreign claim"), node: which, mib: fc.constantFrom(20, 40) }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("import"), claim: which }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom("finish import", "undo import"), import: which }) },
);

/** What fails. */
const faults: fc.Arbitrary<Deed> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constantFrom("kill agent", "restart agent"), node: which, forMs: faultMs }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constantFrom("kill controller", "restart controller"), forMs: faultMs }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("power off"), node: which, forMs: faultMs }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("forget node"), node: which }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("slow down"),
      node: which,
      times: fc.constantFrom(20, 100, 400),
      forMs: faultMs,
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("cut"),
      who: which,
      how: fc.constantFrom("refuses", "hangs", "loses answers"),
      forMs: faultMs,
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("pause"), who: which, forMs: faultMs }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("forget history") }) },
);

/** The time between two steps, in milliseconds: mostly short, so that things meet; now and then what began may end. */
const pauses = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(0, 20, 100, 200, 500) },
  { weight: 3, arbitrary: fc.constantFrom(1_000, 3_000, 10_000) },
  { weight: 1, arbitrary: fc.constantFrom(40_000, 120_000) },
);

/** Histories. */
export const histories: fc.Arbitrary<History> = fc.array(
  fc.tuple(
    fc.oneof({ weight: 3, arbitrary: wishes }, { weight: 1, arbitrary: faults }),
    pauses,
    fc.noShrink(fc.nat(0x7fffffff)),
  ).map(([deed, ms, seed]) => ({ ...deed, ms, seed })),
  { minLength: 6, maxLength: 40, size: "max" },
);
