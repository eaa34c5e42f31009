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
  forward: readonly PortForward[];
  hostAccess: boolean;
  /** True if the script has a terminal. */
  terminal: boolean;
  /** A file for what the script prints, instead of qemu's standard output. */
  output?: string;
  /** True if the root disk's file keeps what is written to the disk. */
  persistsRoot?: boolean;
  /** Files to write: the kernel's console, the init's reports, a tar archive of /work/out. */
  console: string;
  readReport: string;
  out: string;
}

/** Only the requested devices, and an end instead of a second boot. */
const BASE_ARGUMENTS = ["-no-user-config", "-nodefaults", "-display", "none", "-no-reboot"];

const KERNEL_COMMAND_LINE = "console=ttyS0 panic=-1 net.ifnames=0 mitigations=off";

/**
 * Returns the arguments with which qemu becomes the machine. Its standard input and output become the script's line.
 */
export function qemuArguments(machine: Machine): string[] {
  return [
    ...BASE_ARGUMENTS,
    // Never hardware virtualization: where its device exists it may still hang. What is off costs a tenth of the speed:
    // a fifth level of page tables, and protections that are checked in software.
    ...[
      "-accel",
      "tcg,thread=multi",
      "-cpu",
      "max,la57=off,smap=off,smep=off,pku=off",
      "-smp",
      "2",
      "-m",
      String(machine.memMiB),
    ],
    ...["-kernel", machine.image.kernel, "-initrd", machine.image.initrd, "-append", KERNEL_COMMAND_LINE],
    ...["-chardev", `file,id=console,path=${escapeCommas(machine.console)}`, "-serial", "chardev:console"],
    ...serialPorts(machine),
    ...["-nic", network(machine)],
    ...disk("root", machine.image.root, ...(machine.persistsRoot ? [] : ["snapshot=on"])),
    ...disk("payload", machine.payload),
    ...machine.dataDisks.flatMap((file, i) => disk(`data${i}`, file, "discard=unmap")),
  ];
}

/** Returns the lines between the guest's init and this process; their names are known to both. */
function serialPorts(machine: Machine): string[] {
  const scriptLine = machine.terminal ? "virtconsole" : "virtserialport";
  const line = machine.output === undefined
    ? "stdio,id=script,signal=off"
    : `file,id=script,path=${escapeCommas(machine.output)}`;
  return [
    ...["-device", "virtio-serial-pci"],
    ...[
      "-chardev",
      `file,id=report,path=${escapeCommas(machine.readReport)}`,
      "-device",
      "virtserialport,name=report,chardev=report",
    ],
    ...["-chardev", line, "-device", `${scriptLine},name=script,chardev=script`],
    ...["-chardev", `file,id=out,path=${escapeCommas(machine.out)}`, "-device", "virtserialport,name=out,chardev=out"],
  ];
}

function network(machine: Machine): string {
  const forwards = machine.forward.map(({ host, hostPort, guestPort }) =>
    `,hostfwd=tcp:${host}:${hostPort}-:${guestPort}`
  );
  return `user,model=virtio-net-pci,restrict=${machine.hostAccess ? "off" : "on"}${forwards.join("")}`;
}

function disk(serial: string, file: string, ...settings: string[]): string[] {
  const drive = [`file=${escapeCommas(file)}`, `id=${serial}`, "if=none,format=raw,cache=unsafe", ...settings];
  return ["-drive", drive.join(","), "-device", `virtio-blk-pci,drive=${serial},serial=${serial}`];
}

/** Returns a value in a list of qemu's options, where a comma is written twice. */
function escapeCommas(value: string): string {
  return value.replaceAll(",", ",,");
}
