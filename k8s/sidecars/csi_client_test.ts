import { assertEquals, assertThrows } from "@std/assert";
import { accessModeOf } from "./csi_client.ts";
import { ClaimError } from "./class_parameters.ts";

Deno.test("accessModeOf() says with one mode what a list says", () => {
  const cases: [string[], string][] = [
    [["ReadWriteOnce"], "SINGLE_NODE_MULTI_WRITER"],
    [["ReadWriteOncePod"], "SINGLE_NODE_SINGLE_WRITER"],
    [["ReadOnlyMany"], "MULTI_NODE_READER_ONLY"],
    [["ReadWriteOnce", "ReadOnlyMany"], "MULTI_NODE_SINGLE_WRITER"],
    [["ReadWriteOnce", "ReadWriteMany"], "MULTI_NODE_MULTI_WRITER"],
  ];
  for (const [modes, mode] of cases) assertEquals(accessModeOf(modes), mode, modes.join());
  for (const modes of [[], ["ReadSometimes"], ["ReadWriteOncePod", "ReadWriteOnce"]]) {
    assertThrows(() => accessModeOf(modes), ClaimError);
  }
});
