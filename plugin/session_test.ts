import { assertEquals } from "@std/assert";
import { Session, type SessionOptions } from "./session.ts";

Deno.test("sayProgress() prints a line once, and again after another text", async () => {
  const said: string[] = [];
  const session = await Session.open({
    flags: {},
    terminal: { print: (text: string) => said.push(text) },
    kubectl: { run: () => Promise.resolve({ code: 1, stdout: "" }) },
    signal: new AbortController().signal,
  } as unknown as SessionOptions);
  for (const line of ["Pending", "Failed", "Failed"]) session.sayProgress(line);
  session.say("shop/logs to node node-2:"); // another volume, which fails at once, too
  session.sayProgress("Failed");
  assertEquals(said, ["Pending", "Failed", "shop/logs to node node-2:", "Failed"]);
});
