import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import type { Command } from "../../lvm/exec.ts";
import { type PassphraseHarness, passphraseHarness, type Secret } from "../fake/machine/passphrase_harness.ts";
import { randomRuns } from "../rig/sample.ts";

/** The number of runs. Each takes some ten milliseconds. */
const RUNS = randomRuns(60, 5_000);

/** A passphrase of an administrator, which no secret has. */
const OTHER = "X";

/** A call with a secret, during which the driver may die. */
interface Round {
  readonly call: "use" | "stage" | "publish";
  readonly secret: Secret;
  /** How many commands it runs before it dies, if it does. */
  readonly crash?: number | undefined;
  /** True if the command at which it dies leaves a header that cannot be read, where it writes one. */
  readonly isHalfway: boolean;
  /** True if the node restarts afterwards, and not the driver alone. */
  readonly isNodeRestart: boolean;
}

const round: fc.Arbitrary<Round> = fc.record({
  call: fc.constantFrom("use", "stage", "publish"),
  secret: fc.tuple(
    fc.constantFrom("A", "B", "C"),
    fc.constantFrom(undefined, "A", "B", "C"),
    fc.constantFrom(undefined, undefined, "k1", "k2"),
  ),
  crash: fc.option(fc.nat(34), { nil: undefined, freq: 4 }),
  isHalfway: fc.boolean(),
  isNodeRestart: fc.boolean(),
});

/** What a volume has besides its first key slot, and what becomes of it. The driver does not die in the last round. */
const runs = fc.record({
  more: fc.constantFrom<string[]>([], ["A"], [OTHER], [OTHER, "A"]),
  rounds: fc.array(round, { minLength: 2, maxLength: 6 }).map((rounds) =>
    rounds.map((each, index) => index < rounds.length - 1 ? each : { ...each, crash: undefined })
  ),
});

class Kill extends Error {}

/** Lets the driver die before a command, and run none afterwards. */
function killAt({ machine }: PassphraseHarness, { crash = Infinity, isHalfway }: Round): void {
  let left = crash;
  machine.fault = (command) => {
    if (left-- > 0) return;
    if (left === -1 && isHalfway) damageHeader(machine, command);
    left = -1;
    throw new Kill(`before ${command.program} ${command.args[0]}`);
  };
}

/** Lets neither copy of the header be readable that a command writes. */
function damageHeader(machine: PassphraseHarness["machine"], { program, args }: Command): void {
  if (program !== "dd" && args[0] !== "luksAddKey" && args[0] !== "luksKillSlot") return;
  const path = args.find((arg) => arg.startsWith("of="))?.slice("of=".length) ??
    args.find((arg) => arg.startsWith("/"))!;
  const { content } = machine.lvAt(path)!;
  // cryptsetup writes nothing where there is no such key slot
  if (args[0] === "luksKillSlot" && content.luks?.passphrases[Number(args.at(-1))] === undefined) return;
  content.signatures = [];
}

/** Makes a call, and returns whether it succeeded. */
async function call(s: PassphraseHarness, { call, secret }: Round): Promise<boolean> {
  const before = s.errors.length;
  try {
    if (call === "publish" && s.lv.mapping !== undefined) await s.publish(...secret);
    else await (call === "use" ? s.use(...secret) : s.stage(...secret));
  } catch {
    return false;
  }
  return s.errors.length === before;
}

/** What opens the data: the key slots of the header, or if that cannot be read, of its backup. */
function readableKeys({ lv, backups }: PassphraseHarness): string[] {
  const readable = [lv, ...backups()].find(({ content }) => content.signatures.length > 0);
  return readable?.content.luks?.passphrases.filter((each) => each !== undefined) ?? [];
}

Deno.test("a driver that dies at any moment while secrets change loses no volume, and a change that succeeds leaves no other passphrase", async () => {
  const counts = { succeeded: 0, changed: 0, died: 0 };
  const property = fc.asyncProperty(runs, async ({ more, rounds }) => {
    const s = await passphraseHarness("A");
    s.luks().passphrases.push(...more);
    for (const each of rounds) {
      const { volumeKey, passphrases: [former] } = s.luks();
      killAt(s, each);
      const isDone = await call(s, each);
      s.machine.fault = undefined;
      const [passphrase, previous] = each.secret;
      const state = await s.state();
      if (each.crash !== undefined) {
        s.restart();
        counts.died++;
      }
      if (each.isNodeRestart && s.lv.mapping !== undefined) await s.close();
      const keys = readableKeys(s);
      assert(keys.some((key) => key !== OTHER), `nothing is left that opens it: ${keys}`);
      if (s.lv.content.signatures.length > 0) assert(s.luks().volumeKey >= volumeKey, "the volume key is lost");
      if (!isDone || state === undefined || typeof state === "object") continue;
      // a publish without a request looks at nothing
      if (each.call === "publish" && state === "NotRequested") continue;
      counts.succeeded++;
      if (former !== passphrase) counts.changed++;
      assertEquals(new Set(s.keys().filter((key) => key !== OTHER)), new Set([passphrase]), `after ${previous}`);
      assertEquals(s.backups(), [], "a backup is left");
      // an encryption by another volume key keeps one key slot
      const isKept = s.luks().volumeKey === 0 && !s.luks().isReencrypting;
      if (isKept) assertEquals(s.keys().includes(OTHER), more.includes(OTHER), "the key slot of an administrator");
    }
    if (s.lv.mapping !== undefined) await s.close();
    await s.use("last", readableKeys(s).find((key) => key !== OTHER)!);
    assertEquals(
      [s.keys().filter((key) => key !== OTHER), s.backups()],
      [["last"], []],
      "what opens it can be replaced",
    );
  });
  await fc.assert(property, { numRuns: RUNS, endOnFailure: false });
  assert(counts.succeeded > RUNS / 2 && counts.changed > RUNS / 10 && counts.died > RUNS, JSON.stringify(counts));
});
