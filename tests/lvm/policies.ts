/**
 * The SELinux policies of suites. They are compiled on this machine, whose kernel needs no SELinux, and loaded in the guest.
 *
 * @module
 */

import { join } from "@std/path";
import { ensureTools } from "../rig/debian.ts";
import type { PayloadFile } from "../rig/guest.ts";
import { run } from "../rig/process.ts";
import type { Suite } from "./suites.ts";

const log = (line: string) => console.log(line);

/**
 * Compiles what a suite has.
 *
 * @param folder a folder for the results
 * @returns the files for the guest: `policy`, if it has one
 * @throws {Error} when the compiler cannot be installed, or refuses the source
 */
export async function compilePolicies(
  { policy }: Suite,
  folder: string,
): Promise<Record<string, PayloadFile>> {
  const files: Record<string, PayloadFile> = {};
  if (policy !== undefined) {
    await ensureTools([{ program: "secilc", packages: ["secilc"] }], log);
    const host = join(folder, `${policy}.bin`);
    // the oldest format that has everything in it; file contexts are of no use
    const args = ["--mls", "true", "--policyvers", "31", "--output", host, "--filecontext", "/dev/null"];
    await run("compile the policy", "secilc", [...args, join(import.meta.dirname!, policy)]);
    files["policy"] = { host };
  }
  return files;
}
