import { assertEquals } from "@std/assert";
import { quote, StorageError, truncate } from "./error.ts";

Deno.test("truncate() returns the start of a text, and never half of a character", () => {
  assertEquals([truncate("abc", 3), truncate("abcd", 3), truncate("", 3)], ["abc", "ab…", ""]);
  assertEquals(truncate("a💾💾", 3), "a…");
  assertEquals(truncate("a💾💾", 4), "a💾…");
});

Deno.test("quote() escapes a text, and truncates it to 80 characters", () => {
  assertEquals([quote('a"\n'), quote("b".repeat(80))], ['"a\\"\\n"', `"${"b".repeat(80)}"`]);
  assertEquals(quote("b".repeat(81)), `"${"b".repeat(79)}…"`);
});

Deno.test("StorageError has no cause and no completion that nobody gave, and is not repeated on a change by default", () => {
  const plain = new StorageError("InUse", "deleting it: it is mounted");
  assertEquals([plain.kind, plain.retryOnChange, "cause" in plain, plain.completion], [
    "InUse",
    false,
    false,
    undefined,
  ]);
  const [cause, completion] = [new Error("why"), Promise.resolve()];
  const full = new StorageError("StillRunning", "lvcreate: still running", { cause, completion, retryOnChange: true });
  assertEquals([full.cause, full.completion, full.retryOnChange], [cause, completion, true]);
});
