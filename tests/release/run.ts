/**
 * `deno task test:release`: tests releases with programs of other authors. See {@linkcode HELP}.
 *
 * @module
 */

import { runtimeMissing } from "../../deploy/native.ts";
import type { Architecture } from "../../deploy/runtime.ts";
import { RecordedRun } from "../record/record.ts";
import { runTestProcess } from "../rig/test_process.ts";

const HELP = `Usage: deno task test:release [SUITE...] [--full]

Makes releases of this checkout and tests them.

  SUITE   registry: a release for amd64 and arm64 is made and published on loopback; openssl checks its signatures, helm and krew install
          from it; with --full it is made twice, and cosign verifies all. It runs by default
          cluster: in a cluster, the commands of a release's README are typed: helm installs the driver from a web server and a registry, a
          pod runs with a volume, and krew installs the plugin
          arm64: executable and image for arm64 start in an emulated machine
          compiled, compiled_arm64: what deno compile makes starts no slower than the other form, passes csi-sanity's specs of Identity, and
          is refused what its permissions do not grant; they need the runtime of deno compile, and fail as "not run" without it
  --full  all suites, with all tests

It takes Debian, root the first time, and Go. Building cosign takes ten minutes or more, once.`;

const ROOT = new URL("../..", import.meta.url).pathname;

const SUITES = ["registry", "cluster", "arm64", "compiled", "compiled_arm64"];

/** The suites that need the runtime of `deno compile`, with the architecture. */
const COMPILED: Readonly<Record<string, Architecture>> = { compiled: Deno.build.arch, compiled_arm64: "aarch64" };

/** The time for which a test may print nothing, in milliseconds. */
const SILENCE_MS = 40 * 60_000;

/** Writes what the tests print. */
function print(chunk: Uint8Array): void {
  for (let written = 0; written < chunk.length;) written += Deno.stdout.writeSync(chunk.subarray(written));
}

const args = Deno.args.filter((arg) => arg !== "--");
if (args.includes("--help") || args.includes("-h")) {
  console.log(HELP);
  Deno.exit(0);
}
const unknown = args.find((arg) => arg !== "--full" && !SUITES.includes(arg));
if (unknown !== undefined) {
  console.error(`${unknown} is not understood; see --help`);
  Deno.exit(2);
}
const full = args.includes("--full");
const names = args.filter((arg) => arg !== "--full");
const suites = names.length > 0 ? names : full ? SUITES : ["registry"];
Deno.env.set("FULL_RELEASE", full ? "yes" : "no");
const run = await RecordedRun.begin();
let passed = true;
const runnable: string[] = [];
for (const name of suites) {
  const arch = COMPILED[name];
  const reason = arch && await runtimeMissing({ arch });
  if (reason === undefined) runnable.push(name);
  else {
    console.error(`${name}: not run, because ${reason}`);
    passed = false;
  }
}
if (runnable.length > 0) {
  const files = runnable.map((name) => new URL(`suite/${name}.ts`, import.meta.url).pathname);
  const flags = ["-A", "--quiet", "--no-check", ...files];
  passed = await runTestProcess({ args: flags, cwd: ROOT, silenceMs: SILENCE_MS, onOutput: print }) && passed;
}
if (passed && names.length === 0) await run.pass("test:release", { full });
for (const name of passed ? suites : []) await run.pass(`test:release ${name}`);
Deno.exit(passed ? 0 : 1);
