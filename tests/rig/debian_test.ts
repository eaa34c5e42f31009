import { assertEquals } from "@std/assert";
import { mirrorFrom } from "./debian.ts";

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
