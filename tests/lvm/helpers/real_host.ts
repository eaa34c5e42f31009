/**
 * This very machine as a host of contract tests: root, real LVM, two volume groups made on empty disks for the purpose.
 *
 * @module
 */

import type { Exec } from "../../../lvm/exec.ts";
import { readMounts } from "../../../lvm/host/mounts.ts";
import { Lvm } from "../../../lvm/client/client.ts";
import { openExec } from "../../../lvm/host/open_exec.ts";
import { run } from "../../demo/command.ts";
import type { Host, HostCgroups } from "../../contract/helpers/host.ts";
import { isSkipped } from "./skipped_tests.ts";

/**
 * Creates a host whose groups are on the two empty disks that DATA_DISKS names. The second group is larger. A prefix of
 * their names separates hosts.
 */
export async function realHost(name: string): Promise<Host> {
  const disks = (Deno.env.get("DATA_DISKS") ?? "").split(" ");
  if (disks.length !== 2) throw new Error("DATA_DISKS: must name two empty disks");
  const exec = await openExec({ mountTableDirectory: "/tmp" });
  const groups: readonly [string, string] = [`${name}-small`, `${name}-large`];
  const lvm = async (...args: string[]) => {
    const { code, stderr } = await exec.run({ program: "lvm", args, mutates: true });
    if (code !== 0) throw new Error(`lvm ${args.join(" ")}: ${stderr}`);
  };
  for (const [index, group] of groups.entries()) await lvm("vgcreate", "--yes", group, disks[index]!);

  /** A test that failed may leave anything; the next one starts with empty groups. */
  const cleanUp = async () => {
    const mounts = (await readMounts(exec)).filter(({ target }) => target.includes(`/denolith-${groups[0]}-`));
    for (const { target } of mounts.reverse()) await exec.run({ program: "umount", args: [target], mutates: true });
    for (const group of (await new Lvm(exec).report()).filter(({ name }) => groups.includes(name))) {
      if (group.lvs.length > 0) await lvm("lvremove", "--yes", ...group.lvs.map(({ name }) => `${group.name}/${name}`));
      if (group.tags.length > 0) await lvm("vgchange", ...group.tags.flatMap((tag) => ["--deltag", tag]), group.name);
    }
  };
  return {
    name: "lvm",
    groups,
    setUp: () =>
      Promise.resolve({
        exec,
        lockGroup,
        openDevice: Deno.open,
        copyMountNamespace,
        makePending,
        keepMessage,
        interruptTransaction,
        [Symbol.asyncDispose]: cleanUp,
      }),
    skips: isSkipped,
    cgroups: (root) => realCgroups(exec, root),
  };
}

/**
 * Locks the file that LVM locks for a group (lvm.conf(5), `locking_dir`); LVM and Deno both use flock(2). A command that ends
 * removes the file, so a lock of a file that is not there any more is none: then it is the turn of the next file.
 */
export async function lockGroup(group: string, mode: "shared" | "exclusive"): Promise<Disposable> {
  const path = `/run/lock/lvm/V_${group}`;
  for (;;) {
    const file = await Deno.open(path, { create: true, read: true, write: true });
    await file.lock(mode === "exclusive");
    const there = await Deno.stat(path).catch(() => undefined);
    if (there?.ino === (await file.stat()).ino) return file;
    file.close();
  }
}

/** Copies the mount namespace to a process that sleeps. */
export async function copyMountNamespace(): Promise<AsyncDisposable> {
  const sleeper = new Deno.Command("unshare", {
    args: ["--mount", "--propagation", "private", "sh", "-c", "echo there; exec sleep 600"],
    stdout: "piped",
  }).spawn();
  const reader = sleeper.stdout.getReader();
  await reader.read(); // it is in its own namespace
  reader.releaseLock();
  return {
    [Symbol.asyncDispose]: async () => {
      sleeper.kill("SIGKILL");
      await sleeper.stdout.cancel();
      await sleeper.status;
    },
  };
}

/** Mounts the machine's own hierarchy once more. The tests' pods have the paths of kubelet's pods; there is no kubelet. */
export async function realCgroups(exec: Exec, root: string): Promise<HostCgroups> {
  await Deno.mkdir(root);
  const runAsAdmin = async (program: "mount" | "umount", ...args: string[]) => {
    const { code, stderr } = await exec.run({ program, args, mutates: true });
    if (code !== 0) throw new Error(`${program} ${args.join(" ")}: ${stderr}`);
  };
  await runAsAdmin("mount", "-t", "cgroup2", "cgroup2", root);
  const pods: string[] = [];
  return {
    addPod: async (uid) => {
      for (const parent of ["", "kubepods", "kubepods/burstable"]) {
        await Deno.mkdir(`${root}/${parent}`, { recursive: true });
        await Deno.writeTextFile(`${root}/${parent}/cgroup.subtree_control`, "+io");
      }
      const pod = `${root}/kubepods/burstable/pod${uid}`;
      await Deno.mkdir(pod);
      pods.push(pod);
      return `${pod}/io.max`;
    },
    [Symbol.asyncDispose]: async () => {
      for (const pod of pods) await Deno.remove(pod);
      await runAsAdmin("umount", root);
    },
  };
}

/** Writes the message about the last LV of a thin pool to LVM's metadata again. @returns the pool and the LV in it */
export async function keepMessage(path: string): Promise<{ pool: string; thinId: string; transaction: number }> {
  const [group, name] = path.split("/") as [string, string];
  const fieldsOf = async (path: string, fields: string) =>
    (await run("read thin LVs", "lvm", ["lvs", "--noheadings", "-o", fields, path])).trim().split(/\s+/) as [
      string,
      string,
    ];
  const [thinId, pool] = await fieldsOf(path, "thin_id,pool_lv");
  const transaction = Number((await fieldsOf(`${group}/${pool}`, "transaction_id"))[0]);
  await run("deactivate", "lvm", ["vgchange", "-qq", "-an", group]);
  const file = await Deno.makeTempFile({ prefix: "denolith-metadata-" });
  await run("save the metadata", "lvm", ["vgcfgbackup", "-qq", "--file", file, group]);
  const saved = await Deno.readTextFile(file);
  const end = `transaction_id = ${transaction}\n`;
  const at = saved.indexOf(end, saved.indexOf('type = "thin-pool"')) + end.length;
  await Deno.writeTextFile(file, `${saved.slice(0, at)}message1 {\ncreate = "${name}"\n}\n${saved.slice(at)}`);
  await run("restore the metadata", "lvm", ["vgcfgrestore", "-qq", "--force", "--yes", "--file", file, group]);
  await Deno.remove(file);
  return { pool: `${group}/${pool}`, thinId, transaction };
}

/** Makes the last LV of a thin pool pending: LVM has a message about it, and the pool neither it nor the transaction. */
export async function makePending(path: string): Promise<void> {
  const { pool, thinId, transaction } = await keepMessage(path);
  await sendToPool(pool, [`delete ${thinId}`, `set_transaction_id ${transaction} ${transaction - 1}`]);
}

/** Takes the number of its last transaction from a thin pool: LVM has a message about its last LV, which it has made. */
export async function interruptTransaction(path: string): Promise<void> {
  const { pool, transaction } = await keepMessage(path);
  await sendToPool(pool, [`set_transaction_id ${transaction} ${transaction - 1}`]);
}

/** Sends messages to an inactive thin pool, which LVM does not know about. */
async function sendToPool(pool: string, messages: readonly string[]): Promise<void> {
  await run("activate the pool", "lvm", ["lvchange", "-qq", "-ay", pool]);
  const devices = (await run("list pools", "dmsetup", ["ls", "--target", "thin-pool"])).split("\n");
  const prefix = pool.split("/")[0]!.replaceAll("-", "--");
  const device = devices.map((line) => line.split("\t")[0]!).find((line) => line.startsWith(prefix))!;
  for (const message of messages) await run("change the pool", "dmsetup", ["message", device, "0", message]);
  await run("deactivate the pool", "lvm", ["lvchange", "-qq", "-an", pool]);
}
