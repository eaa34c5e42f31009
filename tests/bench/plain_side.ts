import { type VolumeId, volumeLvName } from "../../base/ids.ts";
import { volumeTags } from "../../lvm/model/tags.ts";
import { run } from "../demo/command.ts";
import { type CreationOperation, type LifecycleOperation, type Side, type Sides, SIZES_MIB } from "./sides.ts";
import { DRIVER_NAME } from "./measured_driver.ts";

/** An administrator who types commands. */
export class Admin {
  readonly #typed: string[] = [];

  /** Types a command, which must succeed. */
  async type(program: string, ...args: string[]): Promise<void> {
    this.#typed.push([program, ...args].join(" "));
    await run("type a command", program, args);
  }

  /** Returns the commands that were typed since the last call of this method. */
  takeTyped(): string[] {
    return this.#typed.splice(0);
  }
}

/** Returns what the administrator types in the lifecycle of a volume in the group, mounted below the directory. */
export function plainLifecycle(admin: Admin, group: string, root: string): Sides<LifecycleOperation> {
  const path = `${group}/plain`;
  const snapshot = `${group}/plain-snapshot`;
  const [staged, pod] = [`${root}/plain-staged`, `${root}/plain-pod`];
  const createOf = (mib: number) => () =>
    admin.type("lvcreate", "--yes", "-W", "y", "-Z", "y", "-n", "plain", "-L", `${mib}m`, group);
  const create = createOf(SIZES_MIB.volume);
  const takeSnapshot = () =>
    admin.type("lvcreate", "--yes", "-s", "-n", "plain-snapshot", "-L", `${SIZES_MIB.snapshot}m`, path);
  const remove = (path: string) => admin.type("lvremove", "--yes", path);
  const zero = (path: string) => admin.type("blkdiscard", "--zeroout", `/dev/${path}`);
  const mount = () => admin.type("mount", `/dev/${path}`, staged);
  const umount = (path: string) => admin.type("umount", path);
  return {
    createVolume: { run: create },
    deleteUnusedVolume: { run: () => remove(path) },
    stageFirst: {
      prepare: async () => {
        await create();
        for (const directory of [staged, pod]) await Deno.mkdir(directory, { recursive: true });
      },
      run: async () => {
        await admin.type("mkfs.ext4", "-q", `/dev/${path}`);
        await mount();
      },
    },
    publish: { run: () => admin.type("mount", "--bind", staged, pod) },
    stats: { run: () => admin.type("df", pod) },
    expandVolume: { run: () => admin.type("lvextend", "-L", `${SIZES_MIB.grown}m`, path) },
    expandFilesystem: { run: () => admin.type("resize2fs", `/dev/${path}`) },
    createSnapshot: { run: takeSnapshot },
    deleteSnapshot: { run: () => remove(snapshot) },
    removeSnapshot: {
      prepare: takeSnapshot,
      run: async () => {
        await admin.type("lvconvert", "--yes", "--splitsnapshot", snapshot);
        await zero(snapshot);
        await remove(snapshot);
      },
    },
    unpublish: { run: () => umount(pod) },
    unstage: { run: () => umount(staged) },
    stageAgain: { run: mount },
    deleteUsedVolume: { prepare: () => umount(staged), run: () => remove(path) },
    removeUsedVolume: {
      prepare: createOf(SIZES_MIB.grown),
      run: async () => {
        await zero(path);
        await remove(path);
      },
    },
  };
}

/** Returns what the administrator types to make volumes in the group with content, or in thin pools. */
export function plainCreation(admin: Admin, group: string): Sides<CreationOperation> & AsyncDisposable {
  const lvcreate = (...args: string[]) => admin.type("lvcreate", "--yes", ...args);
  const removeExisting = async (...names: string[]) => {
    const existing = (await run("look for LVs", "lvs", ["--noheadings", "-o", "lv_name", group])).split("\n").map((
      line,
    ) => line.trim());
    for (const name of names) if (existing.includes(name)) await admin.type("lvremove", "--yes", `${group}/${name}`);
    return (name: string) => existing.includes(name);
  };
  const [size, pool] = [`${SIZES_MIB.volume}m`, `${group}/plain-pool`];
  const prepareThin = async () => {
    const isThere = await removeExisting("plain-thin-copy", "plain-thin");
    if (!isThere("plain-pool")) await lvcreate("-T", "-L", `${SIZES_MIB.pool}m`, pool);
  };
  const createThin = () => lvcreate("-V", size, "-T", pool, "-n", "plain-thin");
  return {
    clone: {
      prepare: async () => {
        await removeExisting("plain-copy", "plain-source");
        await lvcreate("-n", "plain-source", "-L", size, group);
      },
      run: async () => {
        await lvcreate("-s", "-n", "plain-cut", "-L", size, `${group}/plain-source`);
        await lvcreate("-n", "plain-copy", "-L", size, group);
        const options = ["bs=4M", "iflag=direct", "oflag=direct", "conv=fsync", "status=none"];
        await admin.type("dd", `if=/dev/${group}/plain-cut`, `of=/dev/${group}/plain-copy`, ...options);
        await admin.type("lvremove", "--yes", `${group}/plain-cut`);
      },
    },
    createThin: { prepare: prepareThin, run: createThin },
    cloneThin: {
      prepare: async () => {
        await prepareThin();
        await createThin();
      },
      run: () => lvcreate("-s", "-kn", "-n", "plain-thin-copy", `${group}/plain-thin`),
    },
    [Symbol.asyncDispose]: async () =>
      void await removeExisting("plain-copy", "plain-source", "plain-thin-copy", "plain-thin", "plain-pool"),
  };
}

/** Returns what the administrator types to list all volumes of the group. */
export function plainListing(admin: Admin, group: string): Side {
  return { run: () => admin.type("lvs", group) };
}

/** Makes volumes that the driver takes for its own, by one lvm, which reads its commands from a script (lvm(8)). */
export async function makeVolumes(volumes: readonly VolumeId[], group: string): Promise<void> {
  const script = await Deno.makeTempFile();
  const commands = volumes.map((id) => {
    const format = { state: "unformatted", type: "ext4" } as const;
    const tags = volumeTags(DRIVER_NAME, { id, format, mkfsOptions: [], shared: true, erase: "zero" });
    const blank = "--activate n --wipesignatures n --zero n"; // activating them one by one takes long
    return `lvcreate --yes ${blank} -n ${volumeLvName(id)} -L 8m ${
      tags.map((t) => `--addtag ${t}`).join(" ")
    } ${group}`;
  });
  await Deno.writeTextFile(script, ["#!/sbin/lvm", ...commands, ""].join("\n"));
  await run("make the volumes to list", "lvm", [script]);
  await run("activate the volumes to list", "vgchange", ["--activate", "y", group]);
  await run("wait for the devices", "udevadm", ["settle"]);
  await Deno.remove(script);
}
