/**
 * Moves of a claim between two real nodes, by `kubectl denolith move`, with a workload that writes a log. The suite runs in
 * a cluster of its own, with transfers on.
 *
 * @module
 */

import { assertMatch } from "@std/assert";
import { addWriter, moveAndCheck, removeWriter } from "./helpers/move_helpers.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { createClasses } from "./helpers/transfer_helpers.ts";

for (const layout of ["thick", "thin"] as const) {
  Deno.test(`a ${layout} claim in use is moved to the other node and back, and nothing is lost`, async () => {
    await using ns = await TestNamespace.open(`move-${layout}`);
    const classes = await createClasses(ns);
    const digest = await addWriter(ns, classes[layout]);
    for (let move = 0; move < 2; move++) {
      const text = await moveAndCheck(ns, digest);
      console.error(`${layout}: ${text}`);
      assertMatch(text, /^Online, .* as difference [1-9]/);
    }
    const text = await moveAndCheck(ns, digest, undefined, ["--offline"]);
    console.error(`${layout}: ${text}`);
    assertMatch(text, /^Offline, .* as difference 0/);
    await removeWriter(ns);
  });
}
