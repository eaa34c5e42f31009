import { status } from "@grpc/grpc-js";
import { formatBytes } from "../../lvm/size.ts";
import { run } from "./command.ts";
import { checksum, goodLines, pause, writeRandom } from "./data.ts";
import type { DriverProcess } from "./driver_process.ts";
import {
  BLOCK,
  contentTag,
  DATA_BYTES,
  MIB,
  paths,
  publishToPods,
  type Scene,
  SIZES,
  stage,
  takeFromPods,
} from "./scene.ts";

/** How long a deleted volume may take to be erased, in milliseconds. */
const ERASED_MS = 60_000;

/** A snapshot, and what the volume holds since then. */
export interface Cut {
  /** The snapshot's id. */
  readonly snapshotId: string;
  /** The checksum of the data that replaced what the snapshot holds. */
  readonly sum: string;
}

/** Takes a snapshot, overwrites the data, and looks into the snapshot. */
export async function snapshotVolume(scene: Scene, id: string, sum: string): Promise<Cut> {
  const { story, client, group } = scene;
  const { data, look } = paths(scene);
  const { snapshot } = await story.call(
    "CreateSnapshot",
    '"snap-demo", room for half to change',
    () =>
      client.controller.createSnapshot({
        name: "snap-demo",
        sourceVolumeId: id,
        parameters: { snapSize: "50%" },
      }),
  );
  story.proved("taken while mounted, and ready to use", snapshot?.readyToUse === true, String(snapshot?.readyToUse));
  const newSum = await story.work("overwriting the data", () => writeRandom(data, DATA_BYTES));
  story.proved(`pod A overwrote its data: sha256 ${newSum.slice(0, 16)}…`, newSum !== sum, "the same data");
  const lv = (await group.volumes(["lv_path", "origin", "data_percent"])).find(({ origin }) => origin !== "");
  if (lv?.lv_path === undefined) throw new Error("no logical volume is a snapshot");
  await Deno.mkdir(look);
  await run("mount the snapshot", "mount", ["-t", "ext4", "-o", "ro,noload", lv.lv_path, look]);
  story.show(`mount -o ro,noload ${lv.lv_path}`);
  try {
    story.sameChecksum("the snapshot still has the old data", await checksum(`${look}/data`), sum);
  } finally {
    await run("unmount the snapshot", "umount", [look]);
  }
  story.say(`the changes fill ${lv.data_percent} % of the snapshot's room`);
  return { snapshotId: snapshot?.snapshotId ?? "", sum: newSum };
}

/** Lists what there is. */
export async function listAll({ story, client }: Scene, id: string, { snapshotId }: Cut): Promise<void> {
  const volumes = await story.call("ListVolumes", "all of them", () => client.controller.listVolumes());
  const [volume] = volumes.entries;
  story.proved(
    `one volume: ${volume?.volume?.volumeId}, ${formatBytes(volume?.volume?.capacityBytes ?? 0n)}`,
    volumes.entries.length === 1 && volume?.volume?.volumeId === id && volume.volume.capacityBytes === SIZES.grown,
    `${volumes.entries.length} volumes`,
  );
  const snapshots = await story.call(
    "ListSnapshots",
    "of this volume",
    () => client.controller.listSnapshots({ sourceVolumeId: id }),
  );
  const [snapshot] = snapshots.entries;
  story.proved(
    `one snapshot: ${snapshot?.snapshot?.snapshotId}`,
    snapshots.entries.length === 1 && snapshot?.snapshot?.snapshotId === snapshotId,
    `${snapshots.entries.length} snapshots`,
  );
}

/** Tries to delete the volume when that would lose data, and deletes the snapshot. */
export async function tryToLoseData({ story, client: { controller } }: Scene, id: string, cut: Cut): Promise<void> {
  const deleteVolume = () => controller.deleteVolume({ volumeId: id });
  await story.refused("DeleteVolume", "it has a snapshot", status.FAILED_PRECONDITION, deleteVolume);
  const { snapshotId } = cut;
  await story.call("DeleteSnapshot", "now without it", () => controller.deleteSnapshot({ snapshotId }));
  await story.refused("DeleteVolume", "two pods use it", status.FAILED_PRECONDITION, deleteVolume);
}

/** Takes the volume from the pods and gives it to them again. */
export async function moveOutAndIn(scene: Scene, id: string, filesystem: string, sum: string): Promise<void> {
  const { story } = scene;
  const { data, log, pods } = paths(scene);
  const lines = await goodLines(log);
  await takeFromPods(scene, id);
  await stage(scene, id, "the next pods come");
  story.proved("it is the same filesystem", await contentTag(scene) === filesystem, await contentTag(scene));
  await publishToPods(scene, id);
  story.sameChecksum("the data survived", await checksum(data), sum);
  story.sameChecksum("pod B reads the same", await checksum(`${pods.b}/data`), sum);
  const found = await goodLines(log);
  story.proved(`so did all ${lines} lines of the writer`, found === lines && lines > 0, `${found} good lines`);
}

/** Deletes the volume, twice, and shows that nothing is left of it; `room` is what there was before, in bytes. */
export async function deleteVolume(scene: Scene, id: string, room: bigint): Promise<void> {
  const { story, client: { controller }, group } = scene;
  await takeFromPods(scene, id);
  const deleteIt = () => controller.deleteVolume({ volumeId: id });
  await story.call("DeleteVolume", "nobody uses it", deleteIt);
  await story.call("DeleteVolume", "the same once more: gone is gone", deleteIt);
  const { entries } = await story.call("ListVolumes", "all of them", () => controller.listVolumes());
  story.proved("no volume is left", entries.length === 0, `${entries.length} volumes`);
  const { availableCapacity } = await story.call("GetCapacity", "once its data is overwritten with zeros", async () => {
    for (const start = performance.now();;) {
      const answer = await controller.getCapacity();
      if (answer.availableCapacity === room || performance.now() - start > ERASED_MS) return answer;
      await pause(200);
    }
  });
  story.proved(`all ${formatBytes(room)} are free again`, availableCapacity === room, formatBytes(availableCapacity));
  const lvs = await group.volumes(["lv_name"]);
  story.proved("the volume group is empty", lvs.length === 0, lvs.map(({ lv_name }) => lv_name).join(", "));
}

/** Asks the driver to end while it deletes a volume, and shows that it does both. */
export async function stopDriver(scene: Scene, driver: DriverProcess, socket: string): Promise<void> {
  const { story, client: { controller }, group } = scene;
  const { volume } = await story.call(
    "CreateVolume",
    "another one, a block device",
    () =>
      controller.createVolume({
        name: "block-demo",
        volumeCapabilities: [BLOCK],
        capacityRange: { requiredBytes: MIB },
      }),
  );
  let answered = false;
  const { midway, end } = await story.call("DeleteVolume", "and SIGTERM for the driver meanwhile", async () => {
    const deletion = controller.deleteVolume({ volumeId: volume?.volumeId ?? "" }).then(() => answered = true);
    // after some milliseconds the driver has the request
    const stopping = pause(20).then(() => ({ midway: !answered, end: driver.stop() }));
    return (await Promise.all([stopping, deletion]))[0];
  });
  const code = await story.work("the driver ends", () => end);
  story.proved(
    `${midway ? "the call was answered, and " : ""}the driver left with status 0`,
    code === 0,
    `status ${code}`,
  );
  const gone = await Deno.stat(socket).then(() => false, () => true);
  story.proved("its socket is gone", gone, "it is still there");
  const left = [
    ...await group.volumes(["lv_name"]).then((lvs) => lvs.map(({ lv_name }) => lv_name)),
    ...await group.tags(),
  ];
  story.proved("no logical volume and no record is left in the group", left.length === 0, left.join(", "));
}
