import { assert, assertEquals } from "@std/assert";
import { createHash } from "node:crypto";
import fc from "fast-check";
import { encryptedRuns, groupRuns, runs } from "./concurrent_callers.ts";
import { MemoryFiles } from "../fake/machine/memory_files.ts";
import { checkInterleavings, Interleavings } from "./interleaving.ts";
import { randomRuns, sampleCases } from "../rig/sample.ts";
import { loseLock, LOST_LOCKS, PINNED_SEEDS, runsFor } from "./lost_locks.ts";

/** The number of runs with a random seed. */
const RUNS = randomRuns(80, 5_000);

/** The number of runs after which the test says how far it is, and after which each call must have succeeded some times. */
const CHUNK = 500;

/** The calls that must have succeeded. */
const CALLS = ["create", "copy", "delete", "stage", "publish", "expand", "snapshot", "deleteSnapshot"];

/** The number of runs with group snapshots, each of which takes many commands. */
const GROUP_RUNS = Math.max(80, RUNS / 5);

/** The number of runs with encrypted volumes. */
const ENCRYPTED_RUNS = Math.max(60, RUNS / 20);

// The operations of a crashed driver would end with its process, which continues here.
const NO_SANITIZERS = { sanitizeOps: false, sanitizeResources: false };

/** Lets Web Crypto answer at once: in a run, nothing takes time of the machine. */
function digestAtOnce(): Disposable {
  const { subtle } = crypto;
  const original = subtle.digest;
  subtle.digest = (_algorithm, data) =>
    Promise.resolve(Uint8Array.from(createHash("sha256").update(data as Uint8Array).digest()).buffer);
  return { [Symbol.dispose]: () => void (subtle.digest = original) };
}

Deno.test(
  "concurrent callers in any order, and crashes of the driver: what was acknowledged exists, and nothing else is left",
  NO_SANITIZERS,
  async () => {
    using files = new MemoryFiles();
    const interleavings = new Interleavings(files);
    const check = async (options: { seed?: number; numRuns: number }) => {
      const details = await checkInterleavings(interleavings, options);
      if (details.failed) {
        throw new Error(await fc.asyncDefaultReportMessage(details), { cause: details.errorInstance });
      }
    };
    const withoutGroups = PINNED_SEEDS.filter(({ lost }) => runsFor(lost) === runs);
    for (const [seed, pinned] of Map.groupBy(await sampleCases("seeds", withoutGroups, 4), ({ seed }) => seed)) {
      await check({ seed, numRuns: Math.max(...pinned.map(({ runs }) => runs)) });
    }
    const { answers } = interleavings;
    const rare = () => CALLS.filter((call) => (answers.get(`${call} ok`) ?? 0) < Math.max(5, RUNS / 40));
    let done = 0;
    for (; done < RUNS || (done < CHUNK && rare().length > 0); done += Math.min(CHUNK, RUNS)) {
      await check({ numRuns: Math.min(CHUNK, RUNS) });
      if (done > 0) console.log(`${done} runs`); // a process that prints nothing for long is killed
    }
    assertEquals(rare(), [], JSON.stringify([...answers]));
    const { crashes } = interleavings;
    assert(crashes > done / 4, `only ${crashes} crashes`);
  },
);

Deno.test(
  "concurrent callers and group snapshots, and crashes of the driver: a group snapshot is whole, and no device is left suspended",
  NO_SANITIZERS,
  async () => {
    using files = new MemoryFiles();
    const interleavings = new Interleavings(files);
    const details = await checkInterleavings(interleavings, { numRuns: GROUP_RUNS, chosen: groupRuns });
    if (details.failed) {
      throw new Error(await fc.asyncDefaultReportMessage(details), { cause: details.errorInstance });
    }
    const { answers, crashes } = interleavings;
    for (const call of ["group", "deleteGroup"]) {
      assert(
        (answers.get(`${call} ok`) ?? 0) >= GROUP_RUNS / 20,
        `${call} succeeded ${answers.get(`${call} ok`)} times`,
      );
    }
    assert(crashes > GROUP_RUNS / 8, `only ${crashes} crashes`);
  },
);

Deno.test(
  "concurrent callers of encrypted volumes, and crashes of the driver: their data and a passphrase are never lost",
  NO_SANITIZERS,
  async () => {
    using files = new MemoryFiles();
    using _digests = digestAtOnce();
    const interleavings = new Interleavings(files, { isEncrypted: true });
    const details = await checkInterleavings(interleavings, { numRuns: ENCRYPTED_RUNS, chosen: encryptedRuns });
    if (details.failed) throw new Error(await fc.asyncDefaultReportMessage(details), { cause: details.errorInstance });
    const { answers, crashes } = interleavings;
    const succeeded = (...calls: string[]) => calls.reduce((sum, call) => sum + (answers.get(`${call} ok`) ?? 0), 0);
    for (const calls of [["create", "copy"], ["stage", "publish"], ["unstage", "delete"], ["snapshot", "group"]]) {
      assert(succeeded(...calls) >= ENCRYPTED_RUNS / 20, `${calls}: ${[...answers].join("; ")}`);
    }
    assert(crashes > ENCRYPTED_RUNS / 8, `only ${crashes} crashes`);
  },
);

Deno.test("concurrent callers find out that any one lock of the driver is lost", NO_SANITIZERS, async () => {
  assertEquals(PINNED_SEEDS.map(({ lost }) => lost), LOST_LOCKS);
  using files = new MemoryFiles();
  for (const { lost, seed, runs: numRuns } of await sampleCases("lost locks", PINNED_SEEDS, 4)) {
    using _lost = loseLock(lost);
    const options = { seed, numRuns, endOnFailure: true, chosen: runsFor(lost) };
    const { failed } = await checkInterleavings(new Interleavings(files), options);
    assert(failed, `without the lock ${lost}, ${numRuns} runs with the seed ${seed} found nothing`);
  }
});
