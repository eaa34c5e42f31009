/**
 * The policies of SELinux and the profiles of AppArmor that suites have. They are compiled on this machine, whose kernel needs
 * neither, and loaded in the guest.
 *
 * @module
 */

import { join } from "@std/path";
import { ensureTools } from "../../rig/debian.ts";
import type { PayloadFile } from "../../rig/guest.ts";
import { run } from "../../rig/process.ts";
import type { Suite } from "../suites.ts";

/** The folder of the policies and profiles. */
const FOLDER = new URL("../", import.meta.url).pathname;

const log = (line: string) => console.log(line);

/**
 * Compiles what a suite has.
 *
 * @param folder a folder for the results
 * @returns the files for the guest: `policy`, and the profiles by their names
 * @throws {Error} when a compiler cannot be installed, or refuses a source
 */
export async function compilePolicies(
  { policy, profiles = [] }: Suite,
  folder: string,
): Promise<Record<string, PayloadFile>> {
  const files: Record<string, PayloadFile> = {};
  if (policy !== undefined) {
    await ensureTools([{ program: "secilc", packages: ["secilc"] }], log);
    const host = join(folder, `${policy}.bin`);
    // the oldest format that has everything in it; file contexts are of no use
    const args = ["--mls", "true", "--policyvers", "31", "--output", host, "--filecontext", "/dev/null"];
    await run("compile the policy", "secilc", [...args, join(FOLDER, policy)]);
    files["policy"] = { host };
  }
  for (const name of profiles) {
    await ensureTools([{ program: "apparmor_parser", packages: ["apparmor"] }], log);
    const host = join(folder, `${name}.bin`);
    const features = ["--policy-features", "/etc/apparmor.d/abi/3.0", "--kernel-features", "/etc/apparmor.d/abi/3.0"];
    const args = ["--skip-kernel-load", "--skip-cache", ...features, "--ofile", host];
    await run("compile profiles", "apparmor_parser", [...args, join(FOLDER, name)]);
    files[name] = { host };
  }
  return files;
}
