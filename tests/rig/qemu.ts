import { ensureTools } from "./debian.ts";
import type { Machine, MachineCommand } from "./machine.ts";

/**
 * Installs qemu where it is missing.
 *
 * @throws {Error} when it cannot be installed
 */
export async function ensureQemu(log: (line: string) => void): Promise<void> {
  await ensureTools([{ program: "qemu-system-x86_64", packages: ["qemu-system-x86", "seabios", "ipxe-qemu"] }], log);
}

/** Only the requested devices, and an end instead of a second boot. */
const BASE_ARGUMENTS = ["-no-user-config", "-nodefaults", "-display", "none", "-no-reboot"];

const KERNEL_COMMAND_LINE = "console=ttyS0 panic=-1 net.ifnames=0 mitigations=off";

/** Returns the command that becomes the machine. Its standard input and output become the script's line. */
export function qemuCommand(machine: Machine): MachineCommand {
  return { program: "qemu-system-x86_64", args: qemuArguments(machine), env: {} };
}

function qemuArguments(machine: Machine): string[] {
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
    ...["-kernel", machine.image.kernel, "-initrd", machine.image.initrd],
    ...["-append", [KERNEL_COMMAND_LINE, ...machine.kernelParameters ?? []].join(" ")],
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
