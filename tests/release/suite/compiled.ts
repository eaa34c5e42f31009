/**
 * The executables of `deno compile`, on this machine.
 *
 * @module
 */

import { join } from "@std/path";
import { DENO_VERSION } from "../../../deploy/runtime.ts";
import { ensureCsiSanity } from "../../rig/csi_sanity.ts";
import { run } from "../../rig/process.ts";
import { TempFolder } from "../../rig/temp_folder.ts";
import { checkCompiled, compiledFiles, driverHelp, SCRIPT } from "../compiled.ts";

Deno.test("what deno compile makes starts no slower, passes Identity's specs, and refuses what it may not do", async () => {
  await using temp = await TempFolder.create("/var/tmp", "denolith-compiled-");
  const deno = { path: Deno.execPath(), version: DENO_VERSION };
  const files = await compiledFiles(temp, {
    arch: Deno.build.arch,
    deno,
    csiSanity: await ensureCsiSanity(console.error),
  });
  const folder = temp.file("away");
  for (const [path, from] of Object.entries(files)) {
    await Deno.mkdir(join(folder, path, ".."), { recursive: true });
    await Deno.copyFile(from, join(folder, path));
  }
  const options = { env: { FOLDER: folder }, onLine: console.error, guardedBy: temp };
  checkCompiled(await run("start the executables", "sh", ["-c", SCRIPT], options), await driverHelp());
});
