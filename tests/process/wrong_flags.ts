/**
 * Wrong values of the flags and arguments of both programs, and a command line for each.
 *
 * @module
 */

import type { Program } from "../../cli/command_line.ts";

/**
 * Values that a flag refuses, each with words of the message about what it accepts, and with the entry that the message
 * shows, if it is a list.
 */
const WRONG_VALUES: Readonly<Record<string, readonly (readonly [value: string, allowed: string, shown?: string])[]>> = {
  endpoint: [["tcp://x", "must be unix:///PATH.sock"], ["/a.sock", "a directory of its own"], ["/a/b", ".sock"]],
  "node-id": [["_x", "must be 1 to 63 letters"]],
  "node-name": [["a/b", "must be 1 to 63 letters"]],
  NODE: [["a/b", "must be 1 to 63 letters"]],
  namespace: [["Denolith", "must be 1 to 63 lowercase letters"], ["a.b", "lowercase"], ["-a", "lowercase"]],
  identity: [["a b", "must be 1 to 128 letters"], ["x".repeat(129), "must be 1 to 128"]],
  "volume-groups": [[",", "must be names"], ["a,/(/", "must be a pattern", "/(/"], [
    "a b,c",
    "not a name that a volume group",
    "a b",
  ]],
  "volume-group": [["a b", "must be the name of a volume group"]],
  "thin-pool": [["a/b", "must be the name of a thin pool"]],
  erase: [["shred", "must be zero, discard or none"]],
  "disk-rules": [["data", "must be GROUP=/PATTERN/"], ["data=/x/ data=/(/", "must be a pattern", "data=/(/"]],
  "mount-roots": [["/", "must be absolute paths"], ["/mnt,mnt", "must be absolute paths", "mnt"], [
    ",",
    "must be absolute",
  ]],
  "kubelet-dir": [["kubelet", "must be absolute"], ["/a,/b", "must be the absolute path of one"], ["/", "must be abs"]],
  "driver-name": [["_", "must be a domain name"]],
  "cgroup-root": [["/sys/fs/cgroup", "must be an absolute path"]],
  "snapshot-autoextend": [["70", "must be off or a threshold"]],
  "thin-pool-overcommit": [["0.5", "must be a number from 1 to 1000"]],
  "thin-pool-autoextend-threshold": [["20", "must be a whole number from 50 to 100"]],
  "thin-pool-autoextend-percent": [["0", "must be a whole number from 1 to 100"]],
  "topology-labels": [["a b", "must be names of labels"], [",", "must be names of labels"]],
  "lvm-config": [["udev_sync", "must be settings of lvm.conf"], ["a/b=0 c/d=1 a/b=1", "has a/b twice"]],
  "lvm-devices-file": [["../x", "must be auto or the name of a file"]],
  "disable-controllers": [["resize", "must be provisioner, resizer, snapshotter or capacity"], [",", "must be"]],
  "log-level": [["loud", "must be debug, info, warning or error"]],
  "log-format": [["xml", "must be text or json"]],
  "http-address": [["banana", "must be HOST:PORT, :PORT or off"]],
  "transfer-address": [["banana", "must be IPV4:PORT"], [":0", "must be IPV4:PORT"], ["1.2.3.256:1", "must be IPV4:"], [
    "[::::]:1",
    "must be IPV4:",
  ]],
  "transfer-advertise": [["node-1", "must be IP addresses"], ["10.0.0.7,", "must be IP addresses"], [
    "1:2:3",
    "must be IP addresses",
  ]],
  "transfer-domain": [["*.pod", "must be a domain"], ["a..pod", "must be a domain"], ["pod", "must be a domain"], [
    "-a",
    "must be a domain",
  ]],
  "transfer-bandwidth": [["1Ki", "must be a quantity of at least 1 MiB"], ["fast", "must be a quantity"]],
  "transfer-port": [["banana", "must be a port"], ["65536", "must be a port"]],
  "read-iops-per-gib": [["data", "must be GROUP=RATE"], [",", "must be GROUP=RATE"]],
  "write-iops-per-gib": [["data=fast", "must be a number"]],
  "read-bps-per-gib": [["data=-1", "must be a quantity"]],
  "write-bps-per-gib": [["/(/=1Mi", "must be a pattern"]],
  kubeconfig: [["-x", "must be a path"], ["a\nb", "must be a path"], ["x".repeat(5000), "at most 4095"]],
  force: [[" ", "must be 1 to 500 characters"], ["a\nb", "on one line"], ["x".repeat(501), "must be 1 to 500"]],
  output: [["xml", "must be json"], ["JSON", "must be json"]],
  selector: [["app=a b", "must be labels such as"], ["=x", "must be labels"], ["a in b", "must be labels"]],
  context: [["--as=root", "must not begin with a dash"], ["a\nb", "control characters"]],
  as: [["-x", "must not begin with a dash"]],
  "as-group": [["-x", "must not begin with a dash"]],
  "request-timeout": [["-1", "must be a time"], ["soon", "must be a time such as 30s"], ["5x", "must be a time"]],
  node: [["a/b", "must be 1 to 63 letters"]],
  to: [["a/b", "must be 1 to 63 letters"]],
  wait: [["no", "must be true or false"]],
  timeout: [["0", "must be a whole number of seconds"], ["1m", "from 1 to 9999"], ["-1", "from 1 to 9999"]],
  port: [["65536", "must be a port from 0 to 65535"], ["-1", "must be a port"]],
  accept: [["../sda", "must be the name of a disk in /dev/disk/by-id"], ["/dev/sda", "must be the name of a disk"]],
  withdraw: [["a b", "must be the name of a disk in /dev/disk/by-id"]],
  remove: [["data/lv", "must be the UUID of a logical volume"]],
  CLAIM: [["deployment/x", "must be the name of a claim"], ["A", "must be the name"]],
  NAME: [["a/b/c", "must be names of objects"], ["x,", "must be names", ""]],
  GROUP: [["a b", "must be the name of a volume group"], ["a/b", "must be the name"]],
  SHELL: [["tcsh", "must be bash, zsh"]],
};

/** A command line with a wrong value, and what its refusal must say. */
export interface WrongCommandLine {
  readonly args: readonly string[];
  /** The subcommand, the flag and the value, with which the message begins. */
  readonly beginning: string;
  /** What is accepted. */
  readonly allowed: string;
}

/** Right values of what a subcommand requires. */
const REQUIRED: Readonly<Record<string, string>> = {
  ...{ NAME: "n1", NODE: "n1", CLAIM: "c1", GROUP: "data", SHELL: "bash" },
  "volume-groups": "data",
};

/**
 * Returns a command line for each wrong value of each flag and argument of a program.
 *
 * @throws {Error} for a flag without a wrong value
 */
export function wrongCommandLines({ commands }: Program): WrongCommandLine[] {
  return Object.entries(commands).flatMap(([command, { argument, flags }]) => {
    const required = Object.keys(flags).filter((flag) => flags[flag]!.required !== undefined);
    const line = (wrong: string, value: string) => [
      command,
      ...(argument === undefined ? [] : [argument.name === wrong ? value : REQUIRED[argument.name]!]),
      ...[...new Set([...required, ...(argument?.name === wrong ? [] : [wrong])])]
        .map((flag) => `--${flag}=${flag === wrong ? value : REQUIRED[flag]}`),
    ];
    const judged = Object.entries(flags).filter(([, { value }]) => value !== undefined).map(([flag]) => flag);
    return [...judged, ...(argument === undefined ? [] : [argument.name])].flatMap((name) => {
      const values = WRONG_VALUES[name];
      if (values === undefined) throw new Error(`${command}: no wrong value of ${name} is known`);
      return values.map(([value, allowed, entry = value]) => {
        const shown = JSON.stringify(entry.length > 80 ? entry.slice(0, 79) + "…" : entry);
        const field = argument?.name === name ? name : `--${name}`;
        return { args: line(name, value), beginning: `${command}: ${field} ${shown}: `, allowed };
      });
    });
  });
}
