/**
 * `deno task test:lvm [--full]`: runs the contract tests in a guest with real LVM, then csi-sanity in mount and block mode.
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
import { SKIPPED_PREFIXES } from "./skipped_tests.ts";

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
    console.log([`csi-sanity, ${mode} mode, skipped:`, ...topics].join("\n"));
    for (const name of unlisted) console.log(`FAILED: skipped for no listed reason: ${name}`);
    if (unlisted.length > 0) Deno.exitCode = 1;
  }
  if (!args.full) {
    console.log(["skipped without --full: tests whose names begin with:", ...SKIPPED_PREFIXES].join("\n  "));
  }
  if (/^(?:ok|FAILED) \| 0 passed/m.test(output)) {
    console.log("FAILED: a suite passed no test at all");
    Deno.exitCode = 1;
  }
  if (status !== 0) Deno.exitCode = status;
} finally {
  await Deno.remove(folder, { recursive: true });
}
