import { assertEquals } from "@std/assert";
import { parseAnswer } from "./guest_call.ts";
import { isReadyNode } from "./node.ts";

const bytes = (text: string) => new TextEncoder().encode(text);

Deno.test("parseAnswer() separates the outputs of a command", () => {
  assertEquals(parseAnswer(bytes("3 4 2\nout\nno")), { code: 3, stdout: "out\n", stderr: "no" });
  assertEquals(parseAnswer(bytes("0 0 0\n")), { code: 0, stdout: "", stderr: "" });
});

Deno.test("parseAnswer() refuses an incomplete answer", () => {
  for (const cut of ["", "0", "0 4", "0 4 2\n", "0 4 2\nout\nn"]) assertEquals(parseAnswer(bytes(cut)), undefined);
});

Deno.test("isReadyNode() reports a node as ready only for its present boot", () => {
  const node = (bootID: string, status: string) => ({
    status: {
      nodeInfo: { bootID },
      conditions: [{ type: "DiskPressure", status: "False" }, { type: "Ready", status }],
    },
  });
  assertEquals(isReadyNode(node("now", "True"), "now"), true);
  assertEquals(isReadyNode(node("before", "True"), "now"), false);
  assertEquals(isReadyNode(node("now", "False"), "now"), false);
  assertEquals(isReadyNode(node("now", "Unknown"), "now"), false);
});
