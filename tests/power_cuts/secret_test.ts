import { assertEquals } from "@std/assert";
import { contentOf, findSecrets } from "./secret.ts";

Deno.test("findSecrets() finds what is left of a file, by sectors", () => {
  const disk = new Uint8Array(8192);
  disk.set(contentOf("first").subarray(1024, 1536), 4096);
  disk.set(contentOf("second").subarray(0, 512), 7680);
  assertEquals([findSecrets(disk), findSecrets(new Uint8Array(8192))], [[4096, 7680], []]);
});

Deno.test("findSecrets() finds both copies of a LUKS2 header", () => {
  const disk = new Uint8Array(32768);
  const encoder = (text: string) => Uint8Array.from(text, (character) => character.charCodeAt(0));
  disk.set(encoder("LUKS\xba\xbe\0\x02"), 4096);
  disk.set(encoder("SKUL\xba\xbe\0\x02"), 4096 + 16384);
  assertEquals(findSecrets(disk), [4096, 20480]);
});
