import { assertEquals } from "@std/assert";
import { auditEventsFrom } from "./control_plane.ts";

Deno.test("auditEventsFrom() takes each request once, and no line that is not whole", () => {
  const lines = [
    { auditID: "1", stage: "ResponseStarted", verb: "watch" },
    { auditID: "2", stage: "ResponseComplete", verb: "get" },
    { auditID: "1", stage: "ResponseComplete", verb: "watch" },
  ];
  const log = lines.map((line) => JSON.stringify(line) + "\n").join("") + '{"auditID": "3", "ver';
  assertEquals(auditEventsFrom(log).map(({ auditID, verb }) => [auditID, verb]), [["1", "watch"], ["2", "get"]]);
});
