import { assertEquals } from "@std/assert";
import { isOfService } from "./open.ts";

Deno.test("isOfService(): a service leads a session without a terminal", () => {
  const cases: [stat: string, expected: boolean][] = [
    ["12 (dd) R 1 1 1 0 -1 4194304 ", true],
    ["12 (dd) R 7 7 7 0 -1 4194304 ", true],
    ["12 (dd) R 7 7 7 34816 -1 4194304 ", false], // a container with a terminal
    ["12 (dd) R 7 7 5 34816 -1 4194304 ", false], // a command in a shell
    ["12 (dd) R 7 6 5 0 -1 4194304 ", false], // timeout(1) without a terminal
    ["12 (dd) R 7 6 ", false],
    ["", false],
  ];
  for (const [stat, expected] of cases) assertEquals(isOfService(stat), expected, stat);
});
