import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import {
  type Architecture,
  ARCHITECTURES,
  DENO_VERSION,
  denoBinary,
  isProgram,
  requireIntegrity,
  requireMachine,
  type System,
  SYSTEMS,
} from "./runtime.ts";

Deno.test("the tests run on the version of Deno that the driver is packed with, or on a later one", async () => {
  const { deno } = Deno.version;
  assert(deno.localeCompare(DENO_VERSION, "en", { numeric: true }) >= 0, deno);
  assertEquals(await denoBinary(Deno.build.arch, "/nothing-is-fetched", deno), Deno.execPath());
});

Deno.test("all files name the same version of Deno", async () => {
  const places = [
    ...["README.md", "docs/development.md", "docs/testing.md", "docs/guides/install.md", "docs/guides/standalone.md"],
    ...[".ci/run", ".github/workflows/ci.yaml", ".github/workflows/release.yaml"],
  ];
  for (const place of places) {
    const named = (await Deno.readTextFile(new URL(`../${place}`, import.meta.url))).match(/\bdeno@[\d.]+\d/g) ?? [];
    assertEquals([place, ...new Set(named)], [place, `deno@${DENO_VERSION}`]);
  }
});

Deno.test("requireIntegrity() takes the checksum of npm's lock files, and refuses other bytes", async () => {
  const hello = "sha512-m3HSJL1i83hdltRq0+o9czGb+8KJDKra4t/3JRlnPKcjI8PZm6XBHXx6zG4UuMXaDEZjR1wuXDre9G9zvN7AQw==";
  await requireIntegrity(new TextEncoder().encode("hello"), hello, "fetch");
  await assertRejects(
    () => requireIntegrity(new TextEncoder().encode("hellO"), hello, "fetch"),
    Error,
    "fetch: its checksum is sha512-",
  );
});

Deno.test("requireMachine() distinguishes programs for this architecture from others, and from other files", () => {
  const program = (machine: number) => {
    const bytes = new Uint8Array(64);
    bytes.set(new TextEncoder().encode("\x7fELF"));
    bytes[18] = machine;
    return bytes;
  };
  requireMachine(program(62), { arch: "x86_64" }, "fetch");
  requireMachine(program(183), { arch: "aarch64" }, "fetch");
  for (const bytes of [program(62), new Uint8Array(64), new Uint8Array(0)]) {
    assertThrows(
      () => requireMachine(bytes, { arch: "aarch64" }, "fetch"),
      Error,
      "fetch: what came is no program for aarch64",
    );
  }
});

Deno.test("isProgram() knows the programs of each system", () => {
  const header = (...words: [at: number, bytes: number[]][]) => {
    const bytes = new Uint8Array(256);
    for (const [at, part] of words) bytes.set(part, at);
    return bytes;
  };
  const programs: Record<System, Record<Architecture, Uint8Array<ArrayBuffer>>> = {
    linux: {
      x86_64: header([0, [0x7f, 0x45, 0x4c, 0x46]], [18, [62]]),
      aarch64: header([0, [0x7f, 0x45, 0x4c, 0x46]], [18, [183]]),
    },
    darwin: {
      x86_64: header([0, [0xcf, 0xfa, 0xed, 0xfe]], [4, [7, 0, 0, 1]]),
      aarch64: header([0, [0xcf, 0xfa, 0xed, 0xfe]], [4, [12, 0, 0, 1]]),
    },
    windows: {
      x86_64: header([0, [0x4d, 0x5a]], [0x3c, [0x80]], [0x80, [0x50, 0x45, 0, 0, 0x64, 0x86]]),
      aarch64: header([0, [0x4d, 0x5a]], [0x3c, [0x80]], [0x80, [0x50, 0x45, 0, 0, 0x64, 0xaa]]),
    },
  };
  const targets = SYSTEMS.flatMap((system) => ARCHITECTURES.map((arch) => ({ system, arch })));
  for (const program of targets) {
    const bytes = programs[program.system][program.arch];
    assertEquals(targets.filter((target) => isProgram(bytes, target)), [program]);
  }
  const cut = header([0, [0x4d, 0x5a]], [0x3c, [0xfd]]);
  assertEquals(targets.filter((target) => isProgram(cut, target)), []);
});
