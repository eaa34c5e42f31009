/**
 * Hostile tenants, over real LVM: pods that write what they like on their block volumes and filesystems. No volume, report or
 * capacity of anybody else changes, and the tenant's own volume can be deleted. The host has what the guide to the installation
 * says of hosts: rules of udev, and a filter of its LVM. `deno test` runs this in the guest, as one bundle.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { readMounts } from "../../lvm/host/mounts.ts";
import { HOST_PATTERN, HOST_UDEV_FILE, HOST_UDEV_RULES } from "../../lvm/host/stacked_devices.ts";
import { Lvm } from "../../lvm/client/client.ts";
import type { LogicalVolume } from "../../lvm/model/report.ts";
import { ANY_GROUP } from "../../lvm/model/groups.ts";
import {
  assertFails,
  blockCapability,
  type Capability,
  contractTest,
  type CreateRequest,
  failureStatus,
  Harness,
  type Host,
  mountCapability,
  type Serve,
} from "../contract/helpers/host.ts";
import { contentSourceOf, createCopy } from "../contract/copies_suite.ts";
import { FOREIGN_SIGNATURES } from "../fake/machine/foreign_signatures.ts";
import { run } from "../demo/command.ts";
import { btrfsMember, ddfTail, mdMember, SPOOFED } from "./helpers/hostile_content.ts";
import { realHost } from "./helpers/real_host.ts";

const MiB = 1n << 20n;

/** The longest time that a call about a broken volume may take, in milliseconds. */
const LIMIT_MS = 30_000;

/** Any group: also one that a tenant makes would be used, if the driver saw it. */
const serve: Serve = (exec, groups, folder) => Harness.serve(exec, groups, folder, { groups: ANY_GROUP });

const host: Host = { ...await realHost("hostile"), serve };
const disks = Deno.env.get("DATA_DISKS")!.split(" ");

async function addRules(): Promise<void> {
  await Deno.writeTextFile(HOST_UDEV_FILE, HOST_UDEV_RULES.join("\n") + "\n");
  await run("read the rules", "udevadm", ["control", "--reload"]);
}

await addRules();

/** The filter of the host's own LVM; the driver's has what is in the host's files, which is none. */
const HOST_FILTER = ["--config", `devices/global_filter=["${HOST_PATTERN}"]`];

/** A volume of somebody. */
interface Owned {
  readonly id: string;
  /** The part of its paths. */
  readonly name: string;
  readonly capability: Capability;
}

/** Returns where a volume is staged, and the directory or node that its pod has. kubelet's path has the name of a directory, too. */
function pathsOf({ folder }: Harness, { name }: Owned) {
  return {
    stagingTargetPath: `${folder}/volumeDevices/staging-${name}`,
    targetPath: `${folder}/volumeDevices/${name}`,
  };
}

async function create(
  harness: Harness,
  name: string,
  { capability = blockCapability(), mib = 32n, ...request }: CreateRequest & { capability?: Capability; mib?: bigint } =
    {},
): Promise<Owned> {
  const parameters = { volumeGroup: harness.groups[1] };
  const sized = { capacityRange: { requiredBytes: mib * MiB }, volumeCapabilities: [capability] };
  return { id: await harness.create({ name, parameters, ...sized, ...request }), name, capability };
}

async function start(harness: Harness, owned: Owned): Promise<void> {
  const { id: volumeId, capability: volumeCapability } = owned;
  const paths = pathsOf(harness, owned);
  await Deno.mkdir(paths.stagingTargetPath, { recursive: true });
  await harness.csi.node.nodeStageVolume({ volumeId, volumeCapability, ...paths });
  await harness.csi.node.nodePublishVolume({ volumeId, volumeCapability, ...paths });
}

async function createAndStart(...args: Parameters<typeof create>): Promise<Owned> {
  const owned = await create(...args);
  await start(args[0], owned);
  return owned;
}

async function stop(harness: Harness, owned: Owned): Promise<void> {
  await harness.csi.node.nodeUnpublishVolume({ volumeId: owned.id, ...pathsOf(harness, owned) });
  await harness.csi.node.nodeUnstageVolume({ volumeId: owned.id, ...pathsOf(harness, owned) });
}

/** Deletes volumes that no pod uses. */
async function deleteAll(harness: Harness, all: readonly Owned[]): Promise<void> {
  for (const { id } of all) await harness.csi.controller.deleteVolume({ volumeId: id });
  await harness.waitUntilIdle();
}

async function lvOf(harness: Harness, { id }: Owned): Promise<LogicalVolume> {
  const lvs = (await new Lvm(harness.exec).report()).flatMap(({ lvs }) => lvs);
  return lvs.find(({ name }) => name === `vol-${id.slice("v1-".length)}`)!;
}

/** Returns the UUID that the driver has recorded for a filesystem. */
async function uuidOf(harness: Harness, owned: Owned): Promise<string> {
  const { tags } = await lvOf(harness, owned);
  return tags.flatMap((tag) => /^denolith\.fs=formatted:\w+:(.*)$/.exec(tag)?.[1] ?? [])[0]!;
}

/** Makes the loop device over a block volume that kubelet keeps while its pod runs. */
async function addLoop(node: string): Promise<AsyncDisposable & { readonly path: string }> {
  const path = (await run("make a loop device", "losetup", ["--find", "--show", node])).trim();
  await settle();
  return { path, [Symbol.asyncDispose]: async () => void await run("remove it", "losetup", ["--detach", path]) };
}

const settle = () => run("wait for udev", "udevadm", ["settle"]);

/** Writes bytes to a device, at an offset from its start, or if negative from its end. */
async function write(path: string, bytes: Uint8Array<ArrayBuffer>, offset = 0): Promise<void> {
  using device = await Deno.open(path, { write: true });
  await device.seek(offset, offset < 0 ? Deno.SeekMode.End : Deno.SeekMode.Start);
  for (let at = 0; at < bytes.length;) at += await device.write(bytes.subarray(at));
  await device.sync();
}

async function read(path: string, bytes: number): Promise<Uint8Array<ArrayBuffer>> {
  using device = await Deno.open(path);
  const content = new Uint8Array(bytes);
  for (let at = 0, count: number | null = 0; at < bytes && count !== null; at += count ?? 0) {
    count = await device.read(content.subarray(at));
  }
  return content;
}

/** Writes what a program makes of a file to a device. */
async function writeImage(path: string, mib: number, make: (file: string) => Promise<unknown>): Promise<void> {
  const file = await Deno.makeTempFile({ prefix: "denolith-image-" });
  await Deno.truncate(file, mib << 20);
  await make(file);
  await run("write it", "dd", [`if=${file}`, `of=${path}`, "bs=1M", "conv=notrunc,fsync", "status=none"]);
  await Deno.remove(file);
}

/** The volumes of others: a filesystem in use, one that is not in use, and a device. */
interface Neighbours {
  readonly ext4: Owned;
  readonly btrfs: Owned;
  readonly raw: Owned;
  readonly random: Uint8Array;
}

async function addNeighbours(harness: Harness): Promise<Neighbours> {
  const parameters = { volumeGroup: harness.groups[1], mkfsOptions: "-L neighbour" };
  const ext4 = await createAndStart(harness, "ext4", { capability: mountCapability("ext4"), parameters });
  const btrfs = await createAndStart(harness, "btrfs", { capability: mountCapability("btrfs"), mib: 256n, parameters });
  const raw = await createAndStart(harness, "raw", { mib: 8n });
  const random = crypto.getRandomValues(new Uint8Array(65_536));
  await write(pathsOf(harness, raw).targetPath, random, 4 << 20);
  for (const each of [ext4, btrfs]) await Deno.writeTextFile(`${pathsOf(harness, each).targetPath}/file`, each.name);
  await run("write all", "sync", []);
  await stop(harness, btrfs);
  return { ext4, btrfs, raw, random };
}

/** Makes sure that the pods of others have their data, and can write. */
async function checkNeighbours(harness: Harness, { ext4, btrfs, raw, random }: Neighbours): Promise<void> {
  const content = await read(pathsOf(harness, raw).targetPath, 8 << 20);
  assertEquals(content.subarray(4 << 20, (4 << 20) + random.length), random);
  await start(harness, btrfs);
  for (const each of [ext4, btrfs]) {
    const { targetPath } = pathsOf(harness, each);
    assertEquals(await Deno.readTextFile(`${targetPath}/file`), each.name);
    await Deno.writeTextFile(`${targetPath}/more`, each.name);
  }
  await stop(harness, btrfs);
}

/** Returns all that the driver and the host know of the node. What a pod writes on its volume changes none of it. */
async function factsOf({ exec, csi: { controller } }: Harness): Promise<Record<string, unknown>> {
  await settle();
  const linesOf = (text: string) => text.trim().split("\n").map((line) => line.trim()).sort();
  const links = (folder: string) =>
    Array.fromAsync(Deno.readDir(`/dev/disk/${folder}`)).then((all) => all.map(({ name }) => name).sort(), () => []);
  return {
    groups: (await new Lvm(exec).report()).map(({ name, uuid, free, pvPaths, tags, lvs }) => ({
      ...{ name, uuid, free, pvPaths, tags },
      lvs: lvs.map(({ name, uuid, size, tags }) => ({ name, uuid, size, tags })),
    })),
    capacity: (await controller.getCapacity({})).availableCapacity,
    volumes: (await controller.listVolumes({})).entries.map(({ volume }) => [volume!.volumeId, volume!.capacityBytes]),
    host: linesOf(
      await run("ask the host's LVM", "lvm", ["pvs", ...HOST_FILTER, "-o", "pv_name,pv_uuid,vg_uuid,vg_free"]),
    ),
    devices: linesOf(await run("list devices", "dmsetup", ["ls"])).map((line) => line.split("\t")[0]),
    kernel: [await Deno.readTextFile("/proc/swaps"), await Deno.readTextFile("/proc/mdstat").catch(() => "")],
    links: [await links("by-uuid"), await links("by-label")],
  };
}

/** Returns what udev has found on a device, by which it starts other programs. */
async function foundByUdev(path: string): Promise<string[]> {
  const name = (await run("find the device", "lsblk", ["--noheadings", "--nodeps", "--output", "KNAME", path])).trim();
  const text = await run("ask udev", "udevadm", ["info", "--query=property", `--path=/sys/block/${name}`]);
  return text.split("\n").filter((line) => /^ID_(?:FS|PART|BTRFS)_/.test(line));
}

/** What tenants write on a block volume of 32 MiB, by what it is. */
const CONTENTS: Readonly<Record<string, (path: string, neighbours: Neighbours, harness: Harness) => Promise<unknown>>> =
  {
    "a volume group, with a volume of somebody else": async (path, { raw }, harness) => {
      await using loop = await addLoop(path);
      const { tags, name } = await lvOf(harness, raw);
      // LVM refuses the name of a group that has nodes in the directory of devices
      const config = ["--yes", "--config", `devices/dir="${harness.folder}"`, "--devices", loop.path];
      await run("make a group", "lvm", ["vgcreate", ...config, "aaa-tenant", loop.path]);
      const inactive = ["--activate", "n", "--zero", "n", "--wipesignatures", "n", "--size", "8m"];
      const addTags = tags.flatMap((tag) => ["--addtag", tag]);
      await run("make an LV", "lvm", ["lvcreate", ...config, ...inactive, ...addTags, "--name", name, "aaa-tenant"]);
    },
    "a copy of the node's physical volume": async (path) => await write(path, await read(disks[1]!, 2 << 20)),
    "a btrfs of several devices, with the UUID of somebody else's": async (path, { btrfs }, harness) =>
      await write(path, btrfsMember(await read((await lvOf(harness, btrfs)).devicePath, 1 << 20))),
    "a filesystem with the label and UUID of somebody else's": async (path, { ext4 }, harness) => {
      const uuid = await uuidOf(harness, ext4);
      const make = (file: string) =>
        run("make it", "mke2fs", ["-q", "-L", "neighbour", "-U", uuid, "-t", "ext4", file]);
      await writeImage(path, 16, make);
    },
    "swap space with the label and UUID of somebody else's filesystem": async (path, { ext4 }, harness) => {
      const uuid = await uuidOf(harness, ext4);
      await writeImage(path, 16, (file) => run("make it", "mkswap", ["-L", "neighbour", "-U", uuid, file]));
    },
    "members of an array whose name breaks terminals": async (path) => {
      for (const offset of [0, 4096]) await write(path, mdMember(offset), offset);
    },
    "a LUKS header with the largest areas": (path) => {
      const sizes = ["--luks2-metadata-size", "4m", "--luks2-keyslots-size", "16m"];
      const key = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--key-file", "/proc/version"];
      const format = ["luksFormat", "--batch-mode", "--type", "luks2", "--label", "neighbour"];
      return writeImage(path, 28, (file) => run("make it", "cryptsetup", [...format, ...sizes, ...key, file]));
    },
    "a table of partitions, and signatures of many other programs": async (path) => {
      for (const { bytes, offset } of FOREIGN_SIGNATURES) await write(path, bytes, offset);
      await write(path, Uint8Array.of(0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 64, 0, 0), 446);
    },
  };

contractTest(host, "whatever a pod writes on its block volume, nothing else on the node changes", async (harness) => {
  const neighbours = await addNeighbours(harness);
  const { capacity } = await factsOf(harness);
  const tenant = await createAndStart(harness, "tenant");
  const { targetPath } = pathsOf(harness, tenant);
  const before = await factsOf(harness);
  for (const [content, writeTo] of Object.entries(CONTENTS)) {
    await write(targetPath, new Uint8Array(5 << 20));
    await writeTo(targetPath, neighbours, harness);
    await using loop = await addLoop(targetPath);
    assertEquals(await factsOf(harness), before, content);
    assertEquals([await foundByUdev(loop.path), await foundByUdev(targetPath)], [[], []], content);
  }
  await checkNeighbours(harness, neighbours);
  await stop(harness, tenant);
  await start(harness, tenant);
  assertEquals(await factsOf(harness), before);

  const source = { name: "snapshot", sourceVolumeId: tenant.id };
  const { snapshot } = await harness.csi.controller.createSnapshot(source);
  await harness.csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
  await stop(harness, tenant);
  await deleteAll(harness, [tenant]);
  assertEquals((await factsOf(harness)).capacity, capacity);
  const next = await createAndStart(harness, "next");
  const isZero = (bytes: Uint8Array) => !new Uint32Array(bytes.buffer).some((word) => word !== 0);
  assert(isZero(await read(pathsOf(harness, next).targetPath, 32 << 20)), "the next tenant reads what was there");
  for (const each of [next, neighbours.ext4, neighbours.raw]) await stop(harness, each);
  await deleteAll(harness, [next, neighbours.ext4, neighbours.btrfs, neighbours.raw]);
});

/** Ends all that uses volumes, as the loss of power does, and lets the host do what it does when it starts. */
async function restartNode(harness: Harness): Promise<Harness> {
  await harness.stop();
  const mounts = (await readMounts(harness.exec)).filter(({ target }) => target.startsWith(harness.folder));
  for (const { target } of mounts.reverse()) await run("unmount", "umount", [target]);
  await run("deactivate all", "lvm", ["vgchange", ...HOST_FILTER, "--activate", "n", ...harness.groups]);
  await run("find all devices", "udevadm", ["trigger", "--action=add", "--subsystem-match=block", "--settle"]);
  await run("activate all", "lvm", ["vgchange", ...HOST_FILTER, "--activate", "ay"]);
  return await Harness.start(harness.exec, harness.groups, serve);
}

contractTest(host, "a node starts with what pods have written on their block volumes", async (harness) => {
  const neighbours = await addNeighbours(harness);
  const tenants: Owned[] = [];
  for (const [index, writeTo] of Object.values(CONTENTS).slice(0, 4).entries()) {
    const tenant = await createAndStart(harness, `tenant-${index}`);
    await writeTo(pathsOf(harness, tenant).targetPath, neighbours, harness);
    tenants.push(tenant);
  }
  const before = await factsOf(harness);
  await using next = await restartNode(harness);
  assertEquals(await factsOf(next), before);
  for (const tenant of tenants) assertEquals(await foundByUdev((await lvOf(next, tenant)).devicePath), []);
  for (const each of [neighbours.ext4, neighbours.raw, ...tenants]) await start(next, each);
  await checkNeighbours(next, neighbours);
  for (const each of [neighbours.ext4, neighbours.raw, ...tenants]) await stop(next, each);
  await deleteAll(next, [neighbours.ext4, neighbours.btrfs, neighbours.raw, ...tenants]);
});

contractTest(host, "a btrfs of the same UUID that udev has found takes the place of none", async (harness) => {
  const neighbours = await addNeighbours(harness);
  const tenant = await createAndStart(harness, "tenant");
  const { targetPath } = pathsOf(harness, tenant);
  await CONTENTS["a btrfs of several devices, with the UUID of somebody else's"]!(targetPath, neighbours, harness);
  {
    await using _ = await withoutRules();
    await using loop = await addLoop(targetPath);
    assertMatch((await foundByUdev(loop.path)).join(), /ID_FS_TYPE=btrfs.*ID_BTRFS_READY/);
    await checkNeighbours(harness, neighbours);
  }
  for (const each of [tenant, neighbours.ext4, neighbours.raw]) await stop(harness, each);
  await deleteAll(harness, [tenant, neighbours.ext4, neighbours.btrfs, neighbours.raw]);
});

/** Takes the rules of udev from the host for a while. */
async function withoutRules(): Promise<AsyncDisposable> {
  await Deno.remove(HOST_UDEV_FILE);
  await run("forget the rules", "udevadm", ["control", "--reload"]);
  return { [Symbol.asyncDispose]: addRules };
}

contractTest(
  host,
  "a block volume that a program of the host has taken is deleted after it has left it",
  async (harness) => {
    const tenant = await createAndStart(harness, "tenant");
    const { devicePath, size } = await lvOf(harness, tenant);
    await stop(harness, tenant);
    await run("take it", "dmsetup", ["create", "taken", "--table", `0 ${size / 512n} linear ${devicePath} 0`]);
    try {
      const deletion = harness.csi.controller.deleteVolume({ volumeId: tenant.id });
      await assertFails("FAILED_PRECONDITION", deletion, "is in use");
    } finally {
      await run("leave it", "dmsetup", ["remove", "--retry", "taken"]);
    }
    await deleteAll(harness, [tenant]);
  },
);

/** Makes sure that a call fails soon, says why, and writes nothing on the terminal of who reads it. */
async function assertRefused(harness: Harness, call: () => Promise<unknown>, words: RegExp): Promise<void> {
  const startedAt = performance.now();
  const commands = await harness.exec.recordCommands(async () => {
    const { code, details } = await failureStatus(call());
    assert(["FAILED_PRECONDITION", "INTERNAL"].includes(code), `${code}: ${details}`);
    assertMatch(details, words);
    assertMatch(details, /^\P{C}+$/u, JSON.stringify(details));
  });
  assert(performance.now() - startedAt < LIMIT_MS, `${words}: it takes too long`);
  assertEquals(commands.filter((command) => /^mk|^wipefs --all/.test(command)), []);
}

const random = (bytes: number) => crypto.getRandomValues(new Uint8Array(bytes)); // at most 64 KiB
const debugfs = (path: string, request: string) => run("damage it", "debugfs", ["-w", "-R", request, path]);

/** What tenants do to the filesystems of their volumes, by the type; with words of the error. */
const DAMAGES: Readonly<Record<string, readonly (readonly [RegExp, (path: string) => Promise<unknown>])[]>> = {
  ext4: [
    [/holds nothing/, (path) => write(path, new Uint8Array(8 << 20))],
    [/holds nothing/, (path) => write(path, random(65_536))],
    [/holds swap/, (path) => writeImage(path, 8, (file) => run("make it", "mkswap", [file]))],
    [/e2fsck.*unsupported feature/, (path) => debugfs(path, "feature FEATURE_I30")],
    [/e2fsck.*INCONSISTENCY/, async (path) => {
      await run("label it", "tune2fs", ["-L", SPOOFED.slice(0, 9), path]);
      await debugfs(path, "set_inode_field <2> mode 0");
      await debugfs(path, "set_super_value state 2");
    }],
  ],
  xfs: [
    [/holds nothing/, (path) => write(path, random(65_536))],
    [/mount/, (path) => write(path, random(64), 200)],
  ],
  btrfs: [
    [/holds nothing/, (path) => write(path, new Uint8Array(4 << 20), 65_536)],
    [/mount/, (path) => write(path, random(64), 65_536 + 300)],
  ],
};

for (const [type, damages] of Object.entries(DAMAGES)) {
  contractTest(
    host,
    `a filesystem (${type}) that its pod broke is refused in words, and never formatted`,
    async (harness) => {
      const owned = await createAndStart(harness, type, {
        capability: mountCapability(type),
        mib: type === "ext4" ? 32n : 320n,
      });
      await stop(harness, owned);
      const { devicePath, size } = await lvOf(harness, owned);
      const healthy = await read(devicePath, 32 << 20);
      for (const [words, damage] of damages) {
        await damage(devicePath);
        await settle();
        await assertRefused(harness, () => start(harness, owned), words);
        await write(devicePath, healthy);
      }
      await start(harness, owned);
      await stop(harness, owned);
      await damages[0]![1](devicePath);
      await deleteAll(harness, [owned]);
      assertEquals((await harness.lvs()).length, 0, `${size}`);
    },
  );
}

contractTest(
  host,
  "a filesystem from a pod's block volume can break neither the node nor a terminal",
  async (harness) => {
    const parameters = { volumeGroup: harness.groups[1] };
    const request = {
      capacityRange: { requiredBytes: 32n * MiB },
      parameters,
      volumeCapabilities: [mountCapability()],
    };
    const source = await createAndStart(harness, "source");
    const { targetPath } = pathsOf(harness, source);
    await writeImage(targetPath, 32, async (file) => {
      await run("make it", "mke2fs", ["-q", "-t", "ext4", "-L", SPOOFED.slice(0, 9), file]);
      await run("let errors stop the node", "tune2fs", ["-e", "panic", file]);
    });
    await stop(harness, source);
    const copy = {
      id: await createCopy(harness, request, { volumeId: source.id }),
      name: "copy",
      capability: mountCapability(),
    };
    await start(harness, copy);
    assertMatch(
      await run("read it", "tune2fs", ["-l", (await lvOf(harness, copy)).devicePath]),
      /^Errors behavior: +Continue$/m,
    );
    await stop(harness, copy);

    await start(harness, source);
    await write(targetPath, new Uint8Array(8 << 20));
    await write(targetPath, ddfTail(), -512);
    await stop(harness, source);
    const spoofed = { ...request, name: "spoofed", ...contentSourceOf({ volumeId: source.id }) };
    await assertRefused(harness, () => harness.csi.controller.createVolume(spoofed), /ddf_raid_member with the UUID/);
    await deleteAll(harness, [copy, source]);
  },
);
