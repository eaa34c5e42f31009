import type { GuestImage } from "./guest_image.ts";

/** A port of this machine that leads to one of the guest's. */
export interface PortForward {
  /** The address to listen on, such as 127.0.0.1. */
  host: string;
  hostPort: number;
  guestPort: number;
}

/** The guest's machine. Paths are absolute. */
export interface Machine {
  image: GuestImage;
  /** The image that is mounted at /work. */
  payload: string;
  /** Images of the data disks, in order. */
  dataDisks: readonly string[];
  memMiB: number;
  /** Parameters for the kernel, beside those of the machine. */
  kernelParameters?: readonly string[];
  forward: readonly PortForward[];
  hostAccess: boolean;
  /**
   * The network of user-mode Linux, if it has one: a file that it makes when its namespace is there, and whether it has an
   * interface on the network that guests share, too.
   */
  network?: { readonly ready: string; readonly isShared: boolean };
  /** Whether the script has a terminal. */
  terminal: boolean;
  /** A file for what the script prints, instead of the machine's standard output. */
  output?: string;
  /** Whether the root disk's file keeps what is written to the disk. */
  persistsRoot?: boolean;
  /** A file for what is written to the root disk, where it does not keep that. */
  rootChanges: string;
  /** Files to write: the kernel's console, the init's reports, a tar archive of /work/out. */
  console: string;
  readReport: string;
  out: string;
}

/** A command that becomes a machine. */
export interface MachineCommand {
  readonly program: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

/**
 * The kinds of machines.
 *
 * - `uml`: user-mode Linux, a kernel that runs as a process, on one processor and at the machine's own speed
 * - `qemu`: a whole computer that is emulated in software, with two processors, some ten times slower
 */
export type MachineKind = "uml" | "qemu";
