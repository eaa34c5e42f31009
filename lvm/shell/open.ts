/**
 * Opens the exec of a driver.
 *
 * @module
 */

import { type Exec, HostExec, type HostExecOptions } from "../exec.ts";
import type { ShellExecOptions } from "./shell_exec.ts";

/** Options of {@linkcode openExec}. */
export interface OpenExecOptions
  extends HostExecOptions, Pick<ShellExecOptions, "clock" | "maxCommands" | "onShellLost"> {
  /** Whether commands of lvm run in a shell. */
  readonly shell: boolean;
}

/** Creates what runs commands; {@linkcode openExec}, or a fake. */
export type CreateExec = (options: OpenExecOptions) => Exec | Promise<Exec>;

/**
 * Opens an exec on this host. What a shell needs is loaded only for one. The shells end with this process, by the end of
 * their input.
 */
export async function openExec({ shell, ...options }: OpenExecOptions): Promise<Exec> {
  const processes = new HostExec(options);
  if (!shell) return processes;
  const { ShellExec } = await import("./shell_exec.ts");
  const { startShellProcess } = await import("./shell_process.ts");
  return new ShellExec({
    ...{ ...options, processes },
    // the profile was read by a process before, so that the path is known
    start: (listener) => startShellProcess(processes.pathOf("lvm") ?? "lvm", listener),
  });
}
