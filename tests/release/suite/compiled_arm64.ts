/**
 * The executables of `deno compile` for arm64, in an emulated machine.
 *
 * @module
 */

import { DENO_VERSION, fetchDeno } from "../../../deploy/runtime.ts";
import { TempFolder } from "../../rig/temp_folder.ts";
import { runArm64Guest } from "../arm64_guest.ts";
import { checkCompiled, compiledFiles, driverHelp, SCRIPT } from "../compiled.ts";
import { ensureCsiSanityArm64 } from "../tools.ts";

Deno.test("what deno compile makes for arm64 passes the same tests in an emulated machine", async () => {
  await using temp = await TempFolder.create("/var/tmp", "denolith-compiled-");
  const arch = "aarch64";
  const deno = { path: await fetchDeno({ arch }, temp.path), version: DENO_VERSION };
  const csiSanity = await ensureCsiSanityArm64(console.error);
  const files = await compiledFiles(temp, { arch, deno, csiSanity });
  const inGuest = Object.fromEntries(Object.entries(files).map(([path, from]) => [`test/${path}`, from]));
  checkCompiled(await runArm64Guest(`export FOLDER=/test\n${SCRIPT}`, inGuest, console.error), await driverHelp());
});
