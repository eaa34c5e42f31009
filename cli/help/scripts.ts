/**
 * The completion scripts of shells. They ask the program itself, see {@linkcode COMPLETE}.
 *
 * @module
 */

import type { Program } from "../command_line.ts";
import bash from "./completion.bash" with { type: "text" };
import fish from "./completion.fish" with { type: "text" };
import kubectl from "./completion.sh" with { type: "text" };
import zsh from "./completion.zsh" with { type: "text" };
import { COMPLETE } from "./completion.ts";

const SCRIPTS = { bash, zsh, fish, kubectl };

/** A shell that has a script; `kubectl` stands for the completion of a plugin by kubectl. */
export type Shell = keyof typeof SCRIPTS;

/** Returns the completion script of a program for a shell. */
export function completionScript({ executable }: Pick<Program, "executable">, shell: Shell): string {
  return SCRIPTS[shell].replaceAll("@PROGRAM@", executable).replaceAll("@COMPLETE@", COMPLETE)
    .replaceAll("@NAME@", executable.replaceAll("-", "_")).trimEnd();
}
