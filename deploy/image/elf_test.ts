import { assert, assertEquals, assertThrows } from "@std/assert";
import { readNeeds } from "./elf.ts";
import { elfFile } from "../../tests/fake/elf_file.ts";

Deno.test("readNeeds() reads loader, libraries and folders of a program", () => {
  const loader = "/lib/ld-linux-aarch64.so.1";
  assertEquals(
    readNeeds(elfFile({ loader, libraries: ["liba.so.1", "libb.so.2"], folders: ["/opt/x", "$ORIGIN/y"] })),
    {
      loader,
      libraries: ["liba.so.1", "libb.so.2"],
      folders: ["/opt/x", "$ORIGIN/y"],
    },
  );
});

Deno.test("readNeeds() reads a library without a loader, and one that needs nothing", () => {
  assertEquals(readNeeds(elfFile({ libraries: ["libc.so.6"] })), { libraries: ["libc.so.6"], folders: [] });
  assertEquals(readNeeds(elfFile({})), { libraries: [], folders: [] });
});

Deno.test("readNeeds() knows other files, and refuses other kinds of ELF files and files that are cut off", () => {
  assertEquals(readNeeds(new TextEncoder().encode("#!/bin/sh\n")), undefined);
  assertEquals(readNeeds(new Uint8Array(0)), undefined);
  for (const index of [4, 5]) {
    const other = elfFile({ libraries: ["libc.so.6"] });
    other[index] = 9;
    assertThrows(() => readNeeds(other), Error, "not one of 64 bits, little endian");
  }
  const whole = elfFile({ loader: "/lib/ld.so", libraries: ["libc.so.6"] });
  for (const length of [6, 0x30, 0x80, whole.length - 1]) {
    assertThrows(() => readNeeds(whole.slice(0, length)), RangeError);
  }
});

Deno.test("readNeeds() reads this machine's deno", async () => {
  const needs = readNeeds(await Deno.readFile(Deno.execPath()));
  assert(needs?.libraries.includes("libc.so.6"));
  assert(needs?.loader?.includes("/ld-linux"));
});
