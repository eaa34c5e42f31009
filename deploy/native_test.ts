import { assert, assertEquals } from "@std/assert";
import { isMissingRuntime } from "./native.ts";

const COMPILE =
  "error: Writing deno compile executable to temporary file '/tmp/x/denolith.tmp-a0d2f01ff7f8cb00'\n\nCaused by:\n";

Deno.test("isMissingRuntime() reports whether deno compile failed to fetch its runtime", () => {
  const causes = [
    "    0: Setting up base binary.\n    1: error sending request for url (https://example.com/denort.zip): client error\n",
    "    0: Setting up base binary.\n    1: Failed downloading 'https://example.com/denort.zip'\n",
  ];
  for (const cause of causes) assert(isMissingRuntime(COMPILE + cause), cause);
});

Deno.test("isMissingRuntime(): every other failure of deno compile is one", () => {
  const failures = [
    "",
    'error: Module not found "file:///main.js".',
    "error: Permission set 'denolith' not found in config file.",
    COMPILE + "    Could not find denort at '/x'\n",
    COMPILE +
    "    0: Setting up base binary.\n    1: Writing /root/.cache/denort.zip\n    2: No space left on device\n",
    COMPILE + "    0: Setting up base binary.\n    1: Creating /root/.cache/dl\n    2: Permission denied\n",
  ];
  assertEquals(failures.filter(isMissingRuntime), []);
});
