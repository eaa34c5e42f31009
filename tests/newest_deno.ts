/**
 * `deno task test:newest`: runs tests on the newest Deno that npm has. See {@linkcode HELP}.
 *
 * @module
 */

import { DENO_VERSION } from "../deploy/runtime.ts";
import { RecordedRun } from "./record/record.ts";
import { run } from "./rig/process.ts";

const HELP = `Usage: deno task test:newest

Runs the unit tests, the tests of processes and of their memory, and csi-sanity on the newest Deno that npm has. They show
that a release can be made with it (deno task release --deno VERSION) if the pinned version has a flaw.`;

const ROOT = new URL("..", import.meta.url).pathname;

/** The tests, as arguments of `deno run`. */
const TESTS: readonly (readonly string[])[] = [
  ["tests/run.ts"],
  ["tests/run.ts", "--tier", "processes"],
  ["tests/lvm/run.ts", "csi-sanity-mount"],
];

if (Deno.args.length > 0) {
  console.log(HELP);
  Deno.exit(["--help", "-h"].includes(Deno.args[0]!) ? 0 : 2);
}
const version = (await run("find the newest Deno", "npm", ["view", "deno", "version"])).trim();
if (version === DENO_VERSION) {
  console.log(`not run: the pinned Deno ${version} is the newest`);
  Deno.exit(0);
}
const recorded = await RecordedRun.begin();
let passed = true;
for (const test of TESTS) {
  console.log(`== Deno ${version}: ${test.join(" ")}`);
  const args = ["--yes", `deno@${version}`, "run", "-A", ...test];
  const { success } = await new Deno.Command("npx", { args, cwd: ROOT, stdin: "null" }).spawn().status;
  console.log(`== ${test.join(" ")}: ${success ? "passed" : "failed"}`);
  passed &&= success;
}
if (passed) await recorded.pass("test:newest");
Deno.exit(passed ? 0 : 1);
