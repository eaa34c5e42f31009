/**
 * Group snapshots over real LVM, under programs that write to one volume after the other, and with drivers that are killed while
 * volumes are suspended. The suite contract has their contract. `deno test` runs this in the guest, as one bundle. DATA_DISKS
 * names two empty disks, DRIVER the driver.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { basename } from "@std/path";
import { readMappedDevices } from "../../lvm/host/device_mapper.ts";
import { HostExec } from "../../lvm/exec.ts";
import { Lvm } from "../../lvm/client/client.ts";
import type { StorageError } from "../../base/error.ts";
import { whileSuspended } from "../../lvm/group_snapshots/suspension.ts";
import { connect } from "../contract/helpers/csi_client.ts";
import { createVolumes, removePool, take } from "../contract/group_snapshots_suite.ts";
import { contractTest, type Harness } from "../contract/helpers/host.ts";
import { run } from "../demo/command.ts";
import { realHost } from "./helpers/real_host.ts";
import { eventually, retryCall } from "./helpers/retry.ts";

const host = await realHost("test");
const exec = new HostExec();

/** The bytes that a writer writes each time. */
const BLOCK = 4096;

/** Writes numbers, each to the first volume, then to the second one, and so on, and waits each time until it is on the disk. */
class Writer implements AsyncDisposable {
  readonly #files: readonly Deno.FsFile[];
  readonly #ended: Promise<void>;
  #isEnding = false;
  /** The last number that was written to all volumes. */
  count = 0;

  private constructor(files: readonly Deno.FsFile[]) {
    this.#files = files;
    this.#ended = this.#write();
  }

  static async start(paths: readonly string[]): Promise<Writer> {
    return new Writer(await Promise.all(paths.map((path) => Deno.open(path, { write: true, create: true }))));
  }

  async #write(): Promise<void> {
    while (!this.#isEnding) {
      const block = new TextEncoder().encode(`${this.count + 1}\n`.padEnd(BLOCK, " "));
      for (const file of this.#files) {
        await file.seek(0, Deno.SeekMode.Start);
        await file.write(block);
        await file.syncData();
      }
      this.count++;
    }
  }

  async waitUntil(count: number): Promise<void> {
    await eventually(() => this.count >= count ? Promise.resolve() : Promise.reject(new Error(`${this.count} writes`)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isEnding) return;
    this.#isEnding = true;
    await this.#ended;
    for (const file of this.#files) file.close();
  }
}

/** Returns the number at the start of a file or device. */
async function readNumber(path: string): Promise<number> {
  using file = await Deno.open(path);
  const bytes = new Uint8Array(BLOCK);
  await file.read(bytes);
  return Number.parseInt(new TextDecoder().decode(bytes), 10);
}

/** Returns the numbers in the snapshots of the volumes, in the order of the volumes. */
async function readSnapshots(
  harness: Harness,
  volumes: readonly string[],
  ids: ReadonlyMap<string, string>,
): Promise<number[]> {
  const lvs = await harness.lvs();
  const numbers: number[] = [];
  for (const volumeId of volumes) {
    const tag = `denolith.snapshot=${ids.get(volumeId)}`;
    const { devicePath } = lvs.find(({ tags }) => tags.includes(tag))!;
    if (volumeId === volumes[2]) {
      numbers.push(await readNumber(devicePath));
      continue;
    }
    const target = await Deno.makeTempDir({ prefix: "denolith-look-" });
    await run("mount", "mount", ["-t", "ext4", "-o", "ro,noload", devicePath, target]);
    numbers.push(await readNumber(`${target}/number`));
    await run("unmount", "umount", [target]);
  }
  return numbers;
}

contractTest(
  host,
  "a group snapshot has of numbers that are written to its volumes in turn no later one without the earlier",
  async (harness) => {
    const { volumes, staged, unstage } = await createVolumes(harness);
    const raw = (await harness.lvs()).find(({ tags }) => tags.includes(`denolith.volume=${volumes[2]}`))!;
    const paths = [...staged.map((path) => `${path}/number`), raw.devicePath];
    await using writer = await Writer.start(paths);
    for (let round = 0; round < 3; round++) {
      await writer.waitUntil(writer.count + 5);
      const before = writer.count;
      const { groupSnapshotId, snapshots } = await take(harness, volumes);
      await writer.waitUntil(writer.count + 5);
      const ids = new Map(snapshots.map(({ sourceVolumeId, snapshotId }) => [sourceVolumeId, snapshotId]));
      const [first, second, third] = await readSnapshots(harness, volumes, ids) as [number, number, number];
      console.log(`written before: ${before}, in the snapshots: ${first}, ${second}, ${third}, now: ${writer.count}`);
      assert(first >= second && second >= third && first - third <= 1, "a later write without the earlier one");
      assert(before <= third && first < writer.count, "another time");
      await harness.csi.group.deleteVolumeGroupSnapshot({ groupSnapshotId, snapshotIds: [] });
      await harness.waitUntilIdle();
    }
    await writer[Symbol.asyncDispose]();
    await unstage();
    for (const volumeId of volumes) await harness.csi.controller.deleteVolume({ volumeId });
    await removePool(harness);
  },
);

for (const beforeEndMs of [1200, 700, 300]) {
  contractTest(
    host,
    `find(1) may resume a volume while lvcreate takes its snapshot, which begins ${beforeEndMs} ms before the end`,
    async (harness) => {
      const volumeId = await harness.create();
      const lvm = new Lvm(exec);
      const [group, lv] = (await lvm.report()).flatMap((group) => group.lvs.map((lv) => [group, lv] as const))
        .find(([, { tags }]) => tags.includes(`denolith.volume=${volumeId}`))!;
      const end = performance.now() + 10_000;
      const work = whileSuspended(exec, [basename(lv.devicePath)], async () => {
        await new Promise((resolve) => setTimeout(resolve, end - performance.now() - beforeEndMs));
        await run("snapshot", "lvm", [
          "lvcreate",
          "--yes",
          "--snapshot",
          "--name",
          "late",
          "--size",
          "8M",
          `${group.name}/${lv.name}`,
        ]);
      });
      const error = await work.then(() => undefined, (error) => error as StorageError);
      await error?.completion?.catch(() => {});
      console.log(`${beforeEndMs} ms before the end: ${error?.message ?? "in time"}`);
      await waitFor(async () => (await suspendedDevices()).length === 0);
      await run("check", "vgck", [group.name]);
      const seen = (await lvm.report()).flatMap(({ lvs }) => lvs).filter(({ origin }) => origin === lv.name);
      assertEquals(seen.map(({ name, active, suspended }) => [name, active, suspended]), [["late", true, false]]);
      await run("remove", "lvm", ["lvremove", "--yes", `${group.name}/late`]);
      await harness.csi.controller.deleteVolume({ volumeId });
      await harness.waitUntilIdle();
    },
  );
}

/** Starts the driver as a process. */
async function startDriver(folder: string): Promise<{ child: Deno.ChildProcess; csi: ReturnType<typeof connect> }> {
  const socket = `${folder}/csi.sock`;
  const groups = ["--volume-groups", host.groups.join(",")];
  const args = [
    "standalone",
    "--endpoint",
    `unix://${socket}`,
    "--node-id",
    "node-1",
    ...groups,
    "--mount-roots",
    folder,
  ];
  const child = new Deno.Command(Deno.env.get("DRIVER")!, { args, stdout: "null", stderr: "null" }).spawn();
  const csi = connect(socket);
  await retryCall(() => csi.identity.probe());
  return { child, csi };
}

/** Returns the names of the suspended devices. */
async function suspendedDevices(): Promise<string[]> {
  return (await readMappedDevices(exec)).filter(({ suspended }) => suspended).map(({ name }) => name);
}

/** Waits without a pause, which may be too long. @returns how long it took, in milliseconds */
async function waitFor(condition: () => Promise<boolean>): Promise<number> {
  const start = performance.now();
  while (!await condition()) if (performance.now() - start > 60_000) throw new Error("it does not come");
  return performance.now() - start;
}

Deno.test("find(1) resumes the volumes when the driver is killed, and its next start removes the snapshots", async () => {
  const folder = await Deno.makeTempDir({ prefix: "denolith-killed-" });
  let { child, csi } = await startDriver(folder);
  const volumes: string[] = [];
  for (let index = 0; index < 4; index++) {
    const request = { name: `killed ${index}`, capacityRange: { requiredBytes: 32n << 20n } };
    const parameters = { volumeGroup: host.groups[index % 2]! };
    const volumeCapabilities = [{
      accessType: { case: "block" as const, value: {} },
      accessMode: { mode: 1 },
    }];
    const { volume } = await csi.controller.createVolume({ ...request, parameters, volumeCapabilities });
    volumes.push(volume!.volumeId);
  }
  const request = { name: "killed", sourceVolumeIds: volumes, parameters: { snapSize: "8Mi" } };
  const call = csi.group.createVolumeGroupSnapshot(request).then(() => "created", () => "failed");
  await waitFor(async () => (await suspendedDevices()).length > 1);
  child.kill("SIGKILL");
  await child.status;
  assertEquals(await call, "failed");
  csi[Symbol.dispose]();
  assert((await suspendedDevices()).length > 0, "the driver died while volumes were suspended");
  const time = await waitFor(async () => (await suspendedDevices()).length === 0);
  console.log(`resumed ${Math.round(time)} ms after the driver's kill`);
  assert(time < 12_000);

  ({ child, csi } = await startDriver(folder));
  await eventually(async () => assertEquals((await csi.controller.listSnapshots({})).entries, []));
  const { groupSnapshot } = await retryCall(() => csi.group.createVolumeGroupSnapshot(request));
  assertEquals(groupSnapshot!.snapshots.length, 4);
  await csi.group.deleteVolumeGroupSnapshot({ groupSnapshotId: groupSnapshot!.groupSnapshotId, snapshotIds: [] });
  for (const volumeId of volumes) await retryCall(() => csi.controller.deleteVolume({ volumeId }));
  await eventually(async () => {
    const groups = (await new Lvm(exec).report()).filter(({ name }) => host.groups.includes(name));
    assertEquals(groups.flatMap(({ lvs }) => lvs.map(({ name }) => name)), []);
  });
  csi[Symbol.dispose]();
  child.kill("SIGTERM");
  await child.status;
});
