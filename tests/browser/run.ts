/**
 * `deno task test:browser`: runs the tests of the page in a real Chromium.
 *
 * @module
 */

import { ensureChromium } from "./install.ts";

const SUITE = new URL("suite.ts", import.meta.url).pathname;

await ensureChromium();
const args = ["test", "-A", "--no-check", SUITE, ...Deno.args];
const { code } = await new Deno.Command(Deno.execPath(), { args, stdin: "null" }).spawn().status;
Deno.exit(code);
