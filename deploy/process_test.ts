import { assertRejects } from "@std/assert";
import { requireProgram } from "./process.ts";

Deno.test("requireProgram() names the package of a program that is not installed", async () => {
  await requireProgram("pack", "tar");
  await assertRejects(
    () => requireProgram("pack", "no-such-program"),
    Error,
    "pack: no-such-program is not installed; run: apt-get install no-such-program",
  );
});
