/**
 * `deno task test:browser`: runs the tests of the page in a real Chromium.
 *
 * @module
 */

import { RecordedRun } from "../record/record.ts";
import { ensureChromium } from "./install.ts";

const SUITE = new URL("suite.ts", import.meta.url).pathname;

await ensureChromium();
const args = ["test", "-A", "--no-check", SUITE, ...Deno.args];
const run = await RecordedRun.begin();
const { code } = await new Deno.Command(Deno.execPath(), { args, stdin: "null" }).spawn().status;
if (code === 0 && Deno.args.length === 0) await run.pass("test:browser");
Deno.exit(code);
