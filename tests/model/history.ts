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
  | { readonly do: "claim"; readonly class: ClassName; readonly mib: number; readonly block: boolean }
  | { readonly do: "pod"; readonly claim: Which }
  | { readonly do: "end pod"; readonly pod: Which }
  | { readonly do: "delete claim"; readonly claim: Which }
  | { readonly do: "kill agent" | "restart agent"; readonly node: Which; readonly forMs: number }
  | { readonly do: "kill controller" | "restart controller"; readonly forMs: number }
  | { readonly do: "power off"; readonly node: Which; readonly forMs: number }
  | { readonly do: "cut"; readonly who: Which; readonly how: Cut; readonly forMs: number }
  | { readonly do: "pause"; readonly who: Which; readonly forMs: number }
  | { readonly do: "forget history" | "wait" };

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
} as const;

export type ClassName = keyof typeof CLASSES;

const which = fc.nat(7);
const short = fc.constantFrom(0, 20, 200, 1_000, 3_000);
const long = fc.constantFrom(500, 5_000, 20_000, 60_000, 400_000);

const deeds: fc.Arbitrary<Deed> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant("claim"),
      class: fc.constantFrom(...Object.keys(CLASSES) as ClassName[]),
      mib: fc.constantFrom(4, 20, 40, 64, 200),
      block: fc.boolean(),
    }),
  },
  { weight: 8, arbitrary: fc.record({ do: fc.constant("pod"), claim: which }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("end pod"), pod: which }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("delete claim"), claim: which }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constantFrom("kill agent", "restart agent"), node: which, forMs: long }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constantFrom("kill controller", "restart controller"), forMs: long }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("power off"), node: which, forMs: long }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("cut"),
      who: which,
      how: fc.constantFrom("refuses", "hangs", "loses answers"),
      forMs: long,
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("pause"), who: which, forMs: long }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom("forget history", "wait") }) },
);

/** Histories. */
export const histories: fc.Arbitrary<History> = fc.array(
  fc.tuple(
    deeds,
    fc.oneof({ weight: 4, arbitrary: short }, { weight: 1, arbitrary: long }),
    fc.noShrink(fc.nat(0x7fffffff)),
  ).map((
    [deed, ms, seed],
  ) => ({ ...deed, ms, seed })),
  { minLength: 4, maxLength: 30, size: "max" },
);
