/**
 * Compares the fake machine with real LVM: the same random commands on both. `deno test` runs this in the guest, as one
 * bundle. DATA_DISKS names the disks of the group. SEED repeats a run, FULL or PLAY_SECONDS makes it
 * long.
 *
 * @module
 */

import fc from "fast-check";
import { HostExec } from "../../lvm/exec.ts";
import { Lvm } from "../../lvm/client/client.ts";
import { readMounts } from "../../lvm/host/mounts.ts";
import { run } from "../demo/command.ts";
import { type Action, GROUP, plays } from "../differential/actions.ts";
import { type Counts, play } from "../differential/play.ts";
import { DEBIAN_13 } from "../fake/machine/machine_host.ts";

/** The number of actions in a play: enough for volumes with a history, few enough to read. */
const ACTIONS = 16;

/** The time for plays, in milliseconds. */
const PLAY_MS = 1_000 * Number(Deno.env.get("PLAY_SECONDS") || (Deno.env.get("FULL") === "1" ? 1_200 : 30));

const exec = new HostExec();
const host = (await Deno.readTextFile("/etc/debian_version")).startsWith("13.") ? DEBIAN_13 : {};
const root = await Deno.makeTempDir({ prefix: "denolith-differential-" });
const targets = { folders: ["one", "two", "three"].map((name) => `${root}/${name}`), file: `${root}/device` };
for (const folder of targets.folders) await Deno.mkdir(folder);
await Deno.writeTextFile(targets.file, "");
await run("load modules", "modprobe", ["-a", "dm-raid", "xfs", "btrfs"]);
await run("make a group", "vgcreate", ["-qq", "--yes", GROUP, ...(Deno.env.get("DATA_DISKS") ?? "").split(" ")]);

/** Empties the group, and overwrites what plays left at the start of its disks. */
async function reset(): Promise<void> {
  const mounts = (await readMounts(exec)).filter(({ target }) => target.startsWith(root));
  for (const { target } of mounts.reverse()) await run("clean up", "umount", [target]);
  const { lvs, tags } = (await new Lvm(exec).report()).find(({ name }) => name === GROUP)!;
  if (lvs.length > 0) await run("clean up", "lvremove", ["-qq", "--yes", GROUP]);
  if (tags.length > 0) await run("clean up", "vgchange", ["-qq", ...tags.flatMap((tag) => ["--deltag", tag]), GROUP]);
}

const firstSeed = Number(Deno.env.get("SEED") || Date.now() % 1_000_000);

/** The number of plays that may fail before the test ends. */
const MAX_FAILURES = 5;

const title = "random commands have the same outcome on the fake machine and on real LVM";

Deno.test(`${title}, seed ${firstSeed} [lvm]`, async () => {
  const counts: Counts = { commands: 0, succeeded: 0, refused: new Map() };
  const failures: string[] = [];
  const machine = { exec, host, reset, settleMs: 3_000, tickMs: 1_100 };
  let seed = firstSeed;
  for (const start = Date.now(); Date.now() - start < PLAY_MS && failures.length < MAX_FAILURES; seed++) {
    const [actions] = fc.sample(plays(ACTIONS), { seed, numRuns: 1 }) as [Action[]];
    await play(actions, machine, targets, counts).catch((error) => failures.push(`SEED=${seed}: ${error.message}`));
  }
  await reset();
  console.log(`${seed - firstSeed} plays, ${counts.commands} commands, ${counts.succeeded} of which succeeded`);
  for (const [reason, count] of counts.refused) console.log(`${count} not tried: ${reason}`);
  if (failures.length > 0) throw new Error(failures.join("\n\n"));
});
