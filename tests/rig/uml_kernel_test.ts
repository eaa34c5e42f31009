import { assertEquals, assertThrows } from "@std/assert";
import { withLoader } from "./uml_kernel.ts";

const bytes = (text: string) => new TextEncoder().encode(text);

Deno.test("withLoader() replaces the loader of a program, in place", () => {
  const changed = withLoader(bytes("head\0/lib64/ld-linux-x86-64.so.2\0tail"), "./ld.so");
  assertEquals(changed, bytes(`head\0./ld.so${"\0".repeat(21)}tail`));
});

Deno.test("withLoader() refuses a program with another loader, and a loader that does not fit", () => {
  assertThrows(() => withLoader(bytes("/lib64/ld-linux-x86-64.so.2.old"), "./ld.so"), Error, "it does not name");
  assertThrows(() => withLoader(bytes("/lib64/ld-linux-x86-64.so.2\0"), "/a/longer/path/than/the/old/ld.so"), Error);
});
