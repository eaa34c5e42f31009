import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { checkFlags, parseCommandLine, UsageError } from "./command_line.ts";
import { SUBCOMMANDS } from "./commands.ts";

/** Flags whose value is any text: paths that are only known when they are read, and words for people. */
const ANY_TEXT = ["kubeconfig", "force"];

/**
 * Values that a flag refuses, each with words of the message about what it accepts, and with the entry that the message
 * shows, if it is a list.
 */
const REFUSED: Readonly<Record<string, readonly (readonly [value: string, allowed: string, shown?: string])[]>> = {
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
  "lvm-config": [["udev_sync", "must be settings of lvm.conf"]],
  "disable-controllers": [["resize", "must be provisioner, resizer, snapshotter or capacity"], [",", "must be"]],
  "log-level": [["loud", "must be debug, info, warning or error"]],
  "log-format": [["xml", "must be text or json"]],
  "http-address": [["banana", "must be HOST:PORT, :PORT or off"]],
  "read-iops-per-gib": [["data", "must be GROUP=RATE"], [",", "must be GROUP=RATE"]],
  "write-iops-per-gib": [["data=fast", "must be a number"]],
  "read-bps-per-gib": [["data=-1", "must be a quantity"]],
  "write-bps-per-gib": [["/(/=1Mi", "must be a pattern"]],
};

/** Returns the flags of a command line of a subcommand, with the argument that it requires, if it does. */
function flagsOf(name: string, given: Readonly<Record<string, string>>) {
  const { argument } = SUBCOMMANDS[name]!;
  const { NODE = "n1", ...flags } = given;
  const args = Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`);
  const request = parseCommandLine(SUBCOMMANDS, [name, ...argument === undefined ? [] : [NODE], ...args]);
  assert(request.kind === "run");
  return request.flags;
}

for (const [name, subcommand] of Object.entries(SUBCOMMANDS)) {
  const flags = Object.entries(subcommand.flags).filter(([, { value }]) => value !== undefined).map(([flag]) => flag);
  const judged = [...flags, ...subcommand.argument === undefined ? [] : [subcommand.argument.name]];
  for (const flag of judged.filter((flag) => !ANY_TEXT.includes(flag))) {
    Deno.test(`denolith ${name}: a wrong value of ${flag} is refused with the flag, the value and what is accepted`, async () => {
      for (const [value, allowed, entry = value] of REFUSED[flag]!) {
        const check = () => checkFlags(name, subcommand, flagsOf(name, { [flag]: value }));
        const { message } = await assertRejects(check, UsageError);
        const shown = JSON.stringify(entry.length > 80 ? entry.slice(0, 79) + "…" : entry);
        const field = flag === "NODE" ? flag : `--${flag}`;
        assertEquals(message.slice(0, `${name}: ${field} ${shown}: `.length), `${name}: ${field} ${shown}: `, message);
        assertStringIncludes(message, allowed);
      }
    });
  }

  Deno.test(`denolith ${name}: the defaults of all flags are accepted`, async () => {
    await checkFlags(name, subcommand, flagsOf(name, {}));
  });
}

Deno.test("checkFlags() names every flag with a wrong value", async () => {
  const flags = flagsOf("node", { "http-address": "banana", "log-level": "loud", "kubelet-dir": "/var/lib/kubelet" });
  const { message } = await assertRejects(() => checkFlags("node", SUBCOMMANDS.node!, flags), UsageError);
  assertEquals(
    message,
    'node: --log-level "loud": must be debug, info, warning or error; ' +
      '--http-address "banana": must be HOST:PORT, :PORT or off',
  );
});
