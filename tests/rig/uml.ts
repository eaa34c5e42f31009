import { ensureTools, type Tool } from "./debian.ts";
import type { Machine, MachineCommand } from "./machine.ts";
import { searchPath } from "./process.ts";
import bootScript from "./uml/boot.sh" with { type: "text" };
import namespaceScript from "./uml/namespace.sh" with { type: "text" };
import { assignments, ensureUmlKernel, type UmlKernel } from "./uml_kernel.ts";
import { SHARED_INTERFACE } from "./shared_network.ts";

const TOOLS: Tool[] = [
  { program: "unshare", packages: ["util-linux"] },
  { program: "slirp4netns", packages: ["slirp4netns"] },
  { program: "ip", packages: ["iproute2"] },
];

/** The disks that the kernel takes, without the root disk and the payload. */
export const MAX_DATA_DISKS = 14;

/** The files in /work that this kind of machine needs. */
export const UML_FILES = { ".rig/boot": { text: bootScript } };

/**
 * Installs what user-mode Linux takes where it is missing.
 *
 * @returns the kernel
 * @throws {Error} when a tool cannot be installed
 */
export async function ensureUml(log: (line: string) => void): Promise<UmlKernel> {
  await ensureTools(TOOLS, log);
  return await ensureUmlKernel(log);
}

/** Opens the files that the kernel's serial lines write to, and becomes the kernel in its folder. */
const OPEN_LINES = `
console=$1 report=$2 out=$3 output=$4 folder=$5
shift 5
exec 3>"$report" 5>"$out"
if [ -n "$output" ]; then exec 4>"$output"; else exec 4>&1; fi
cd "$folder"
exec "$@" >"$console" 2>&1 </dev/null
`;

/** Becomes the guest's init: all that {@linkcode bootScript} cannot do because it is on the payload. */
const INIT = "mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -o noatime /dev/ubdb /work; " +
  "exec /bin/sh /work/.rig/boot";

/**
 * Returns the command that becomes the machine. Its standard output is the script's line.
 *
 * A machine with a network waits until `startUmlNetwork` connects it, and `connectToSharedNetwork` if it shares one.
 *
 * The kernel is the first process of a namespace: when it ends, all processes of the guest end with it.
 *
 * @throws {Error} when the machine has what this kind has not: a terminal, or so many disks
 */
export function umlCommand(machine: Machine, kernel: UmlKernel): MachineCommand {
  const { network } = machine;
  if (network === undefined && (machine.hostAccess || machine.forward.length > 0)) {
    throw new Error("start user-mode Linux: its network needs a file to say that it is ready");
  }
  if (machine.terminal) throw new Error("start user-mode Linux: it has no terminal here");
  if (machine.dataDisks.length > MAX_DATA_DISKS) {
    throw new Error(`start user-mode Linux: ${machine.dataDisks.length} data disks; it takes ${MAX_DATA_DISKS}`);
  }
  const interfaces = network === undefined ? [] : ["tap0", ...(network.isShared ? [SHARED_INTERFACE] : [])];
  const root = machine.persistsRoot ? machine.image.root : `${machine.rootChanges},${machine.image.root}`;
  const parameters = [
    ...kernel.parameters,
    ...machine.kernelParameters ?? [],
    `rig.modules=${kernel.modules}`,
    `mem=${machine.memMiB}M`,
    ...[root, machine.payload, ...machine.dataDisks].map((file, i) => `ubd${i}=${file}`),
    ...["root=/dev/ubda", "rw", "panic=-1"],
    ...["con=null", "con0=null,fd:1", "ssl=null", "ssl0=null,fd:3", "ssl1=null,fd:4", "ssl2=null,fd:5"],
    ...interfaces.map((name, i) => `vec${i}:transport=raw,ifname=${name},depth=128,gro=1`),
    ...["init=/bin/sh", "--", "-c", `"${INIT}"`],
  ];
  const lines = [machine.console, machine.readReport, machine.out, machine.output ?? "", kernel.folder];
  const namespace = network === undefined ? [] : [
    ...["sh", "-c", namespaceScript, "sh", network.ready, interfaces.join(" ")],
  ];
  return {
    program: "unshare",
    args: [
      ...["--pid", "--fork", "--kill-child", ...(network === undefined ? [] : ["--net"])],
      ...[...namespace, "sh", "-c", OPEN_LINES, "sh", ...lines],
      ...["env", ...assignments(kernel.env), kernel.program, ...parameters],
    ],
    env: { PATH: searchPath() },
  };
}
