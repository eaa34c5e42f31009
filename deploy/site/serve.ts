/**
 * `deno task docs:serve`: serves the site of the documents on this machine, and shows each change of docs/ at once.
 *
 * @module
 */

import { join } from "@std/path";
import manifest from "../../deno.json" with { type: "json" };
import { ROOT, WORK } from "./repository.ts";
import { copyDocuments, installVitePress, removeDocuments, vitePressArgs } from "./vitepress.ts";

/** The time after a change until the documents are copied, in milliseconds: editors change a file in steps. */
const DELAY_MS = 200;

await installVitePress({ base: "/", version: manifest.version, hasVersions: false });
await removeDocuments();
await copyDocuments();
const server = new Deno.Command(Deno.execPath(), {
  args: vitePressArgs("dev", "--host", "127.0.0.1"),
  cwd: WORK,
  stdin: "null",
}).spawn();
const watcher = Deno.watchFs([
  join(ROOT, "docs"),
  join(ROOT, "deploy/examples"),
  join(ROOT, "CHANGELOG.md"),
]);
let timer: ReturnType<typeof setTimeout> | undefined;
(async () => {
  for await (const _ of watcher) {
    clearTimeout(timer);
    timer = setTimeout(copyDocuments, DELAY_MS);
  }
})();
const { code } = await server.status;
clearTimeout(timer);
watcher.close();
Deno.exit(code);
