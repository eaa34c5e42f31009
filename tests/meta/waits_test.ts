import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";

const ROOT = new URL("../../", import.meta.url).pathname;

/** A loop that ends only when something comes: a fault hangs its test, as a wait of tests/fake/wait_until.ts does not. */
const ENDLESS_WAIT =
  /^\s*while \((?!.*\b(?:Date|performance)\.now\(\)).*\bawait .*\b(?:setTimeout|nextTurn|flushPromises|resolve|advance)\b/;

function* testFiles(folder: string): Generator<string> {
  for (const { name, isDirectory } of Deno.readDirSync(join(ROOT, folder))) {
    const path = join(folder, name);
    if (isDirectory && !/^(?:node_modules|dist|\.git)$/.test(name)) yield* testFiles(path);
    else if (name.endsWith("_test.ts")) yield path;
  }
}

Deno.test("no test waits in a loop that only a success ends", () => {
  const files = [...testFiles(".")];
  const found = files.flatMap((path) => {
    const lines = Deno.readTextFileSync(join(ROOT, path)).split("\n");
    return lines.flatMap((line, index) => ENDLESS_WAIT.test(line) ? [`${path}:${index + 1}`] : []);
  });
  assert(files.length > 300);
  assertEquals(found, [], "use waitUntil()");
});
