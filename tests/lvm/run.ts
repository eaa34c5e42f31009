/**
 * `deno task test:lvm [--full]`: in a guest with real LVM, the contract tests, then csi-sanity in mount and block mode.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { join } from "@std/path";
import { bundle } from "../../deploy/bundle.ts";
import { ensureArtifact } from "../rig/artifact.ts";
import { ensureCsiSanity } from "../rig/csi_sanity.ts";
import { runGuest } from "../rig/guest.ts";
import script from "./guest.sh" with { type: "text" };
import { skippedByTopic } from "./sanity_report.ts";

/** Prefixes of the titles of tests that run only with `--full`: other tests show nearly the same on real LVM. */
const SKIPPED_PREFIXES = [
  "hostile: ",
  "ext2: ",
  "ext3: ",
  "ext4: a crash between mkfs",
  "btrfs: a crash between mkfs",
  "killed with all that it started in the midst of each call, a driver goes on: block",
  // what is decided before LVM is asked
  "createVolume() answers the ",
  "createVolume() from something refuses",
  "createVolume() is answered alike",
  "createVolume() refuses a name",
  "createVolume() takes the group",
  "createSnapshot() refuses",
  "listSnapshots() pages",
  "listVolumes() pages",
  "controllerModifyVolume() is offered",
  "nodePublishVolume() allows one target",
  "nodePublishVolume() of a volume that is not staged",
  "a copy for which its pool may not",
  "a copy without a size",
  "a repeated request finds the thin volume",
  "a volume is used only as",
  "a volume that is written into its pod",
  "an LV of the volume's name",
  "the calls for health refuse",
  "the driver says that it tells health",
  "two LVs that claim",
  "what cannot be thin",
  // which commands are run, and how many, is the same over the fake
  "a copy that is made at once takes",
  "controllerExpandVolume() takes one report",
  "createVolume() makes a thin pool when",
  // what others of their kind show
  "a block volume is published only",
  "a clone of a mounted ext4",
  "a clone of a mounted thin ext4",
  "a pool's own tag",
  "a thin snapshot takes no store",
  "a volume grown while it was not in use",
  "a volume whose LV was renamed",
  "btrfs: mounted with discard",
  "controllerExpandVolume() is not hindered",
  "controllerExpandVolume() keeps the layout",
  "controllerExpandVolume() leaves a volume alone",
  "createVolume() from a volume has",
  "without cgroups, limits are recorded",
  "a clone of a mounted ext2",
  "a clone of a mounted thin xfs",
  "a pod is held to the limits of its volume (block)",
  "getCapacity() tells the largest volume of a layout",
  "what is made from a volume or a snapshot may be laid out otherwise",
  "xfs: mounted with discard",
];

const args = parseArgs(Deno.args, { boolean: ["full"] });
if (args._.length > 0 || Object.keys(args).some((flag) => !["_", "full"].includes(flag))) {
  console.error("Usage: deno task test:lvm [--full]");
  Deno.exit(2);
}

let output = "";
const decoder = new TextDecoder();
const folder = await Deno.makeTempDir({ prefix: "denolith-bundles-" });
try {
  const sanity = await ensureCsiSanity((line) => console.log(line));
  const driver = await ensureArtifact((line) => console.log(line));
  const bundleSuite = async (name: string) => ({ host: await bundle(`tests/lvm/${name}.ts`, folder) });
  const status = await runGuest({
    files: {
      deno: { host: Deno.execPath() },
      denolith: { host: driver },
      "contract.js": await bundleSuite("contract"),
      "erasure.js": await bundleSuite("erasure"),
      "permission_set.js": await bundleSuite("permission_set"),
      "sigkill.js": await bundleSuite("sigkill"),
      "faults.js": await bundleSuite("faults"),
      "layouts.js": await bundleSuite("layouts"),
      "bin/csi-sanity": { host: sanity },
    },
    script: "PATH=$PATH:/work/bin\n" + script,
    env: {
      SEED: Deno.env.get("SEED") ?? "",
      LEFT_OUT: args.full ? "" : SKIPPED_PREFIXES.join("|"),
    },
    dataDisksGiB: [1, 3, 4, 4, 1, 3, 2, 1, 1, 1],
    outDir: join(folder, "out"),
    onOutput: (chunk) => {
      output += decoder.decode(chunk, { stream: true });
      Deno.stdout.writeSync(chunk);
    },
    log: (line) => console.log(line),
    timeoutMs: 60 * 60 * 1000,
  });
  for (const mode of ["mount", "block"]) {
    const { topics, unlisted } = skippedByTopic(await Deno.readTextFile(join(folder, "out", `${mode}.json`)));
    console.log([`csi-sanity, ${mode} mode, left out:`, ...topics].join("\n"));
    for (const name of unlisted) console.log(`FAILED: skipped for no listed reason: ${name}`);
    if (unlisted.length > 0) Deno.exitCode = 1;
  }
  if (!args.full) {
    console.log(["left out, and run by --full, tests whose names begin with:", ...SKIPPED_PREFIXES].join("\n  "));
  }
  if (/^(?:ok|FAILED) \| 0 passed/m.test(output)) {
    console.log("FAILED: a suite passed no test at all");
    Deno.exitCode = 1;
  }
  if (status !== 0) Deno.exitCode = status;
} finally {
  await Deno.remove(folder, { recursive: true });
}
