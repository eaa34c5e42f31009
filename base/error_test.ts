import { assertEquals } from "@std/assert";
import { causeOf, firstReason, quote, reasonIn, StorageError, truncate, truncateMessage, withReason } from "./error.ts";

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

Deno.test("StorageError has a reason: the given one, otherwise that of its cause, otherwise its kind", () => {
  const inner = new StorageError("NoSpace", "lvcreate: no", { reason: "MetadataAreaFull" });
  const reasonOf = (...args: ConstructorParameters<typeof StorageError>) => new StorageError(...args).reason;
  assertEquals(inner.reason, "MetadataAreaFull");
  assertEquals(reasonOf("OutOfRange", "m", { cause: inner }), "MetadataAreaFull");
  assertEquals(reasonOf("OutOfRange", "m", { cause: inner, reason: "NoSpace" }), "NoSpace");
  assertEquals(reasonOf("FailedPrecondition", "m", { cause: new StorageError("Lost", "m") }), "Lost");
  assertEquals(reasonOf("Busy", "m", { cause: new StorageError("CommandFailed", "m") }), "Busy");
  assertEquals(reasonOf("Busy", "m", { cause: Object.assign(new Error(), { reason: "NotFound" }) }), "Busy");
  assertEquals([causeOf(inner), causeOf("text"), causeOf(undefined)], ["MetadataAreaFull", undefined, undefined]);
});

Deno.test("a message ends with the reason that somebody can act on, where it is found again, also inside others", () => {
  assertEquals(withReason("it is full", "NoSpace"), "it is full [NoSpace]");
  assertEquals([withReason("m", "CommandFailed"), withReason("m", undefined)], ["m", "m"]);
  assertEquals(reasonIn('failed to take snapshot: "rpc error: desc = it is full [NoSpace]"; again'), "NoSpace");
  assertEquals(reasonIn("volume [Lost] of a user: it is full [NoSpace]"), "NoSpace");
  assertEquals([reasonIn("it is full [Other]"), reasonIn("NoSpace"), reasonIn("")], [undefined, undefined, undefined]);
});

Deno.test("truncateMessage() keeps the reason at the end", () => {
  assertEquals(truncateMessage("it is full [NoSpace]", 15), "it i… [NoSpace]");
  assertEquals(truncateMessage("it is full [NoSpace]", 20), "it is full [NoSpace]");
  assertEquals(truncateMessage("it is full", 5), "it i…");
  assertEquals(truncateMessage(`[${"a".repeat(100)}]`, 5), "[aaa…");
});

Deno.test("firstReason(): what keeps a volume group from being used comes before its lack of space", () => {
  assertEquals(firstReason(["NoSpace", "PhysicalVolumesMissing", undefined]), "PhysicalVolumesMissing");
  assertEquals([firstReason(["CommandFailed"]), firstReason([])], [undefined, undefined]);
});

Deno.test("the message of a StorageError has no characters that move a cursor, or reverse what follows", () => {
  const uuid = "\x1b[2J\x9b31m\u202e\r\n\t\x07";
  assertEquals(
    new StorageError("ForeignData", `it holds LVM2_member with the UUID ${uuid}!`).message,
    `it holds LVM2_member with the UUID ${"\ufffd"}[2J${"\ufffd"}31m${"\ufffd".repeat(5)}!`,
  );
});
