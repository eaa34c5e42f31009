import { status } from "@grpc/grpc-js";
import { formatBytes } from "../../base/size.ts";
import { run } from "./command.ts";
import { checksum, goodLines, pause, writeRandom } from "./data.ts";
import type { DriverProcess } from "./driver_process.ts";
import {
  DATA_BYTES,
  type DemoContext,
  FILESYSTEM_CAPABILITY,
  formatStateTag,
  MIB,
  paths,
  publishToPods,
  SIZES,
  stage,
  unpublishFromPods,
} from "./context.ts";

/** The time limit for erasing a deleted volume, in milliseconds. */
const ERASE_TIMEOUT_MS = 60_000;

/** A snapshot, and what the volume holds since then. */
export interface TakenSnapshot {
  /** The snapshot's id. */
  readonly snapshotId: string;
  /** The checksum of the data before it was replaced, as the snapshot holds it. */
  readonly checksumBefore: string;
}

/** Takes a snapshot, overwrites the data, and looks into the snapshot. */
export async function snapshotVolume(context: DemoContext, id: string, checksumBefore: string): Promise<TakenSnapshot> {
  const { runner, client, group } = context;
  const { data, snapshotMount } = paths(context);
  const { snapshot } = await runner.call(
    "CreateSnapshot",
    '"snap-demo", space for changes of half of it',
    () =>
      client.controller.createSnapshot({
        name: "snap-demo",
        sourceVolumeId: id,
        parameters: { snapSize: "50%" },
      }),
  );
  runner.verify("taken while mounted, and ready to use", snapshot?.readyToUse === true, String(snapshot?.readyToUse));
  const newSum = await runner.during("overwriting the data", () => writeRandom(data, DATA_BYTES));
  runner.verify(`pod A overwrote its data: sha256 ${newSum.slice(0, 16)}…`, newSum !== checksumBefore, "the same data");
  const lv = (await group.volumes(["lv_path", "origin", "data_percent"])).find(({ origin }) => origin !== "");
  if (lv?.lv_path === undefined) throw new Error("no logical volume is a snapshot");
  await Deno.mkdir(snapshotMount);
  await run("mount the snapshot", "mount", ["-t", "ext4", "-o", "ro,noload", lv.lv_path, snapshotMount]);
  runner.show(`mount -o ro,noload ${lv.lv_path}`);
  try {
    runner.sameChecksum("the snapshot still has the old data", await checksum(`${snapshotMount}/data`), checksumBefore);
  } finally {
    await run("unmount the snapshot", "umount", [snapshotMount]);
  }
  runner.say(`the changes fill ${lv.data_percent} % of the snapshot's COW space`);
  return { snapshotId: snapshot?.snapshotId ?? "", checksumBefore: newSum };
}

/** Lists what there is. */
export async function listAll(
  { runner, client }: DemoContext,
  id: string,
  { snapshotId }: TakenSnapshot,
): Promise<void> {
  const volumes = await runner.call("ListVolumes", "all of them", () => client.controller.listVolumes());
  const [volume] = volumes.entries;
  runner.verify(
    `one volume: ${volume?.volume?.volumeId}, ${formatBytes(volume?.volume?.capacityBytes ?? 0n)}`,
    volumes.entries.length === 1 && volume?.volume?.volumeId === id && volume.volume.capacityBytes === SIZES.grown,
    `${volumes.entries.length} volumes`,
  );
  const snapshots = await runner.call(
    "ListSnapshots",
    "of this volume",
    () => client.controller.listSnapshots({ sourceVolumeId: id }),
  );
  const [snapshot] = snapshots.entries;
  runner.verify(
    `one snapshot: ${snapshot?.snapshot?.snapshotId}`,
    snapshots.entries.length === 1 && snapshot?.snapshot?.snapshotId === snapshotId,
    `${snapshots.entries.length} snapshots`,
  );
}

/** Tries to delete the volume when that would lose data, and deletes the snapshot. */
export async function testDeletionGuards(
  { runner, client: { controller } }: DemoContext,
  id: string,
  taken: TakenSnapshot,
): Promise<void> {
  const deleteVolume = () => controller.deleteVolume({ volumeId: id });
  await runner.expectRefused("DeleteVolume", "it has a snapshot", status.FAILED_PRECONDITION, deleteVolume);
  const { snapshotId } = taken;
  await runner.call("DeleteSnapshot", "now without it", () => controller.deleteSnapshot({ snapshotId }));
  await runner.expectRefused("DeleteVolume", "two pods use it", status.FAILED_PRECONDITION, deleteVolume);
}

/** Takes the volume from the pods and gives it to them again. */
export async function unpublishAndRepublish(
  context: DemoContext,
  id: string,
  filesystem: string,
  sum: string,
): Promise<void> {
  const { runner } = context;
  const { data, log, pods } = paths(context);
  const lines = await goodLines(log);
  await unpublishFromPods(context, id);
  await stage(context, id, "the next pods come");
  runner.verify(
    "it is the same filesystem",
    await formatStateTag(context) === filesystem,
    await formatStateTag(context),
  );
  await publishToPods(context, id);
  runner.sameChecksum("the data survived", await checksum(data), sum);
  runner.sameChecksum("pod B reads the same", await checksum(`${pods.b}/data`), sum);
  const found = await goodLines(log);
  runner.verify(`so did all ${lines} lines of the writer`, found === lines && lines > 0, `${found} good lines`);
}

/** Deletes the volume twice, and shows that nothing is left of it. @param freeBytes the free bytes before */
export async function deleteVolume(context: DemoContext, id: string, freeBytes: bigint): Promise<void> {
  const { runner, client: { controller }, group } = context;
  await unpublishFromPods(context, id);
  const deleteIt = () => controller.deleteVolume({ volumeId: id });
  await runner.call("DeleteVolume", "nobody uses it", deleteIt);
  await runner.call("DeleteVolume", "the same once more: gone is gone", deleteIt);
  const { entries } = await runner.call("ListVolumes", "all of them", () => controller.listVolumes());
  runner.verify("no volume is left", entries.length === 0, `${entries.length} volumes`);
  const { availableCapacity } = await runner.call(
    "GetCapacity",
    "once its data is overwritten with zeros",
    async () => {
      for (const start = performance.now();;) {
        const answer = await controller.getCapacity();
        if (answer.availableCapacity === freeBytes || performance.now() - start > ERASE_TIMEOUT_MS) return answer;
        await pause(200);
      }
    },
  );
  runner.verify(
    `all ${formatBytes(freeBytes)} are free again`,
    availableCapacity === freeBytes,
    formatBytes(availableCapacity),
  );
  const lvs = await group.volumes(["lv_name"]);
  runner.verify("the volume group is empty", lvs.length === 0, lvs.map(({ lv_name }) => lv_name).join(", "));
}

/** Asks the driver to end while it deletes a volume, and shows that it does both. */
export async function stopDriver(context: DemoContext, driver: DriverProcess, socket: string): Promise<void> {
  const { runner, client: { controller }, group } = context;
  const { volume } = await runner.call(
    "CreateVolume",
    "another one, which nobody uses",
    () =>
      controller.createVolume({
        name: "unused-demo",
        volumeCapabilities: [FILESYSTEM_CAPABILITY],
        capacityRange: { requiredBytes: 16n * MIB },
      }),
  );
  let answered = false;
  const { isMidCall, end } = await runner.call("DeleteVolume", "and SIGTERM for the driver meanwhile", async () => {
    const deletion = controller.deleteVolume({ volumeId: volume?.volumeId ?? "" }).then(() => answered = true);
    // after some milliseconds the driver has the request
    const stopping = pause(20).then(() => ({ isMidCall: !answered, end: driver.stop() }));
    return (await Promise.all([stopping, deletion]))[0];
  });
  const code = await runner.during("the driver ends", () => end);
  runner.verify(
    `${isMidCall ? "the call was answered, and " : ""}the driver left with status 0`,
    code === 0,
    `status ${code}`,
  );
  const isRemoved = await Deno.stat(socket).then(() => false, () => true);
  runner.verify("its socket is gone", isRemoved, "it is still there");
  const leftovers = [
    ...await group.volumes(["lv_name"]).then((lvs) => lvs.map(({ lv_name }) => lv_name)),
    ...await group.tags(),
  ];
  runner.verify("no logical volume and no record is left in the group", leftovers.length === 0, leftovers.join(", "));
}
