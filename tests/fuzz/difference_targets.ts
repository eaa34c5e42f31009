/**
 * Targets: what snapshots consist of, as programs read it.
 *
 * @module
 */

import { assert } from "@std/assert";
import fc from "fast-check";
import { ExceptionScanner, parseCowHeader } from "../../lvm/differences/cow_store.ts";
import { ThinDeltaReader } from "../../lvm/differences/thin_delta.ts";
import { parsed } from "./expect.ts";
import { changedText, oddTexts } from "./inputs.ts";
import { statelessTarget, type Target } from "./target.ts";

const OUTPUT = Deno.readTextFileSync(new URL("../fixtures/differences/thin_delta.xml", import.meta.url));

/** The chunks of the volume whose store is fed. */
const ORIGIN_CHUNKS = 1000;

const smallOrAny = fc.oneof(fc.nat({ max: 300 }), fc.maxSafeNat());

/** The targets. */
export const DIFFERENCE_TARGETS: readonly Target[] = [
  statelessTarget({
    name: "thin-delta",
    description: "the output of thin_delta, in pieces",
    inputs: fc.record({
      text: fc.oneof(changedText([OUTPUT]), oddTexts),
      pieceLength: fc.integer({ min: 1, max: 200 }),
    }),
    testRuns: 100,
    check: ({ text, pieceLength }) => {
      const bytes = new TextEncoder().encode(text);
      parsed(["CommandFailed"], () => {
        const reader = new ThinDeltaReader((_, { begin, end }) => assert(begin >= 0 && begin < end));
        for (let at = 0; at < bytes.length; at += pieceLength) reader.take(bytes.subarray(at, at + pieceLength));
        return reader.end();
      });
    },
  }),
  statelessTarget({
    name: "cow-store",
    description: "the header and the tables of COW space, in pieces",
    inputs: fc.record({
      header: fc.array(fc.oneof(fc.constantFrom(0x70416e53, 1, 8), fc.nat({ max: 2 ** 32 - 1 })), { maxLength: 5 }),
      exceptions: fc.array(fc.tuple(smallOrAny, smallOrAny), { maxLength: 600 }),
      pieceLength: fc.integer({ min: 1, max: 5000 }),
    }),
    testRuns: 100,
    check: ({ header, exceptions, pieceLength }) => {
      parsed(["CommandFailed"], () => parseCowHeader(new Uint8Array(Uint32Array.from(header).buffer)));
      const bytes = new Uint8Array(BigUint64Array.from(exceptions.flat(), BigInt).buffer);
      parsed(["CommandFailed"], () => {
        const scanner = new ExceptionScanner(
          4096,
          ORIGIN_CHUNKS,
          (chunk) => assert(chunk >= 0 && chunk < ORIGIN_CHUNKS),
        );
        for (let at = 0; at < bytes.length; at += pieceLength) scanner.take(bytes.subarray(at, at + pieceLength));
        return scanner.done;
      });
    },
  }),
];
