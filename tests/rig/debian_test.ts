import { assertEquals } from "@std/assert";
import { join } from "@std/path";
import { mirrorFrom, refreshPackageLists } from "./debian.ts";

Deno.test("mirrorFrom() takes the first address with the main part of a Debian release", () => {
  const targets = [
    "https://packages.example/apt stable-tools main",
    "cdrom://disk/ bookworm main",
    "http://mirror.example/debian-security/ bookworm-security main",
    "http://mirror.example/debian/ bookworm contrib",
    "http://mirror.example/debian/ bookworm main",
    "http://other.example/debian/ trixie main",
  ];
  assertEquals(mirrorFrom(targets.join("\n")), "http://mirror.example/debian/");
});

Deno.test("mirrorFrom() finds none where apt serves another distribution or nothing", () => {
  assertEquals(mirrorFrom("http://archive.example/ubuntu/ noble main"), undefined);
  assertEquals(mirrorFrom(""), undefined);
});

Deno.test("refreshPackageLists() waits for another one", async () => {
  const folder = await Deno.makeTempDir();
  const path = Deno.env.get("PATH")!;
  // as apt-get, it fails while another one has the lock of the lists
  const script = `#!/bin/sh\nmkdir ${folder}/lists || exit 100\nsleep 0.2\nrmdir ${folder}/lists\n`;
  await Deno.writeTextFile(join(folder, "apt-get"), script, { mode: 0o755 });
  Deno.env.set("PATH", `${folder}:${path}`);
  try {
    await Promise.all([refreshPackageLists(), refreshPackageLists()]);
  } finally {
    Deno.env.set("PATH", path);
    await Deno.remove(folder, { recursive: true });
  }
});
