/**
 * The files that belong into a system beside a program: its manual page, and the completion scripts of shells.
 *
 * @module
 */

import type { Program } from "../command_line.ts";
import { manPage } from "./man.ts";
import { completionScript } from "./scripts.ts";

/** What the manual pages refer to. */
const SEE_ALSO = ["lvm(8)", "lvmthin(7)", "lvmraid(7)", "kubectl(1)"];

/** Returns the texts of the files of a program, by their paths below a directory such as /usr/local. */
export function installedFiles(program: Program, version: string): ReadonlyMap<string, string> {
  const { executable } = program;
  return new Map([
    [`share/man/man1/${executable}.1`, manPage(program, { version, seeAlso: SEE_ALSO })],
    [`share/bash-completion/completions/${executable}`, `${completionScript(program, "bash")}\n`],
    [`share/zsh/site-functions/_${executable}`, `${completionScript(program, "zsh")}\n`],
    [`share/fish/vendor_completions.d/${executable}.fish`, `${completionScript(program, "fish")}\n`],
  ]);
}
