import { status } from "@grpc/grpc-js";
import {
  ControllerServiceCapability_RPC_Type as ControllerRpc,
  NodeServiceCapability_RPC_Type as NodeRpc,
} from "../../csi/proto/csi_pb.ts";
import { formatBytes } from "../../lvm/size.ts";
import { checksum, goodLines, Writer, writeRandom } from "./data.ts";
import {
  CAPABILITY,
  contentTag,
  DATA_BYTES,
  DRIVER_NAME,
  paths,
  publishToPods,
  type Scene,
  SIZES,
  stage,
  tagOf,
  tellStats,
  VOLUME_NAME,
} from "./scene.ts";

/** Asks the driver who it is, what it can do and how much room there is; answers the room in bytes. */
export async function meetDriver({ story, client, group }: Scene): Promise<bigint> {
  const info = await story.call("GetPluginInfo", "who are you?", () => client.identity.getPluginInfo());
  story.say(`${info.name}, version ${info.vendorVersion}`);
  const { ready } = await story.call("Probe", "are you ready?", () => client.identity.probe());
  story.proved("LVM answers, it is ready", ready === true, String(ready));
  const controller = await story.call(
    "ControllerGetCapabilities",
    "what can you do?",
    () => client.controller.controllerGetCapabilities(),
  );
  story.say(names(controller.capabilities, ControllerRpc));
  const node = await story.call(
    "NodeGetCapabilities",
    "and on the node?",
    () => client.node.nodeGetCapabilities(),
  );
  story.say(names(node.capabilities, NodeRpc));
  const { availableCapacity } = await story.call(
    "GetCapacity",
    "how much room is there?",
    () => client.controller.getCapacity({ volumeCapabilities: [CAPABILITY] }),
  );
  story.say(`${formatBytes(availableCapacity)} in the volume group ${group.name}`);
  return availableCapacity;
}

function names(
  capabilities: readonly { type: { case: "rpc"; value: { type: number } } | { case?: string | undefined } }[],
  known: Record<number, string>,
): string {
  return capabilities.flatMap(({ type }) => "value" in type ? [known[type.value.type]] : []).join(", ");
}

/** Makes the volume, twice, and answers its id. */
export async function createVolume(scene: Scene): Promise<string> {
  const { story, client, group } = scene;
  const create = (bytes: bigint) => () =>
    client.controller.createVolume({
      name: VOLUME_NAME,
      capacityRange: { requiredBytes: bytes },
      volumeCapabilities: [CAPABILITY],
      parameters: { volumeGroup: group.name },
    });
  const about = `"${VOLUME_NAME}", ${formatBytes(SIZES.first)}, for ext4`;
  const { volume } = await story.call("CreateVolume", about, create(SIZES.first));
  const id = volume?.volumeId ?? "";
  story.say(`its id is ${id}`);
  const again = await story.call("CreateVolume", "the same once more", create(SIZES.first));
  story.proved(
    "the same volume, made once: calls may be repeated",
    again.volume?.volumeId === id,
    `${again.volume?.volumeId}`,
  );
  await story.refused(
    "CreateVolume",
    `the same name, but ${formatBytes(SIZES.grown)}`,
    status.ALREADY_EXISTS,
    create(SIZES.grown),
  );
  const lvs = await group.volumes(["lv_name", "lv_size", "lv_tags"]);
  story.proved(
    "it is a plain logical volume, and its tags say whose",
    lvs.length === 1,
    `${lvs.length} logical volumes`,
  );
  for (const { lv_name, lv_tags } of lvs) {
    story.show(`lvs ${group.name}/${lv_name}`);
    for (const tag of lv_tags?.split(",") ?? []) story.show(`  ${tag}`);
  }
  return id;
}

/** Formats and mounts the volume; answers the record of its filesystem. */
export async function stageVolume(scene: Scene, id: string): Promise<string> {
  const { story, group } = scene;
  await stage(scene, id, "format, check and mount it");
  const filesystem = await contentTag(scene);
  story.proved("formatted, and the logical volume's tag records it", /=formatted:ext4:/.test(filesystem), filesystem);
  story.show(filesystem);
  const used = tagOf(await group.tags(), `denolith.used=${DRIVER_NAME}:${id}`);
  story.say(
    "The group records that the volume was handed out: were its logical volume to vanish, it would count as lost, " +
      "and nothing would be made or formatted in its place.",
  );
  story.show(used);
  await stage(scene, id, "the same once more");
  story.proved("nothing was formatted again", await contentTag(scene) === filesystem, await contentTag(scene));
  return filesystem;
}

/** Publishes the volume to two pods, writes to it and answers the checksum of the data. */
export async function publishAndWrite(scene: Scene, id: string): Promise<string> {
  const { story } = scene;
  const { pods, data } = paths(scene);
  await publishToPods(scene, id);
  const sum = await story.work("writing random data", () => writeRandom(data, DATA_BYTES));
  story.say(`pod A wrote ${formatBytes(BigInt(DATA_BYTES))} of random data: sha256 ${sum.slice(0, 16)}…`);
  story.sameChecksum("pod B reads the same", await checksum(`${pods.b}/data`), sum);
  const refusal = await Deno.writeTextFile(`${pods.b}/data`, "").then(() => undefined, (error: Error) => error);
  story.proved("pod B cannot write", /read-only/i.test(refusal?.message ?? ""), refusal?.message ?? "it could");
  return sum;
}

/** Grows the volume while a program writes to it. */
export async function growUnderWriter(scene: Scene, id: string, sum: string): Promise<void> {
  const { story, client } = scene;
  const { pods, data, log } = paths(scene);
  const before = await tellStats(scene, id);
  story.say("a writer starts in pod A: line after line, each with a checksum, each down to the disk");
  const writer = new Writer(log);
  const capacityRange = { requiredBytes: SIZES.grown };
  try {
    await story.work("the writer writes", () => writer.more(20));
    await story.call(
      "ControllerExpandVolume",
      `the logical volume, to ${formatBytes(SIZES.grown)}`,
      () => client.controller.controllerExpandVolume({ volumeId: id, capacityRange, volumeCapability: CAPABILITY }),
    );
    await story.call(
      "NodeExpandVolume",
      "the filesystem, while it is mounted",
      () => client.node.nodeExpandVolume({ volumeId: id, volumePath: pods.a, capacityRange }),
    );
    await story.work("the writer goes on", () => writer.more(20));
  } catch (error) {
    await writer.stop().catch(() => {}); // the first error is the one to tell
    throw error;
  }
  const { lines, longestMs } = await writer.stop();
  const good = await goodLines(log);
  story.proved(
    `the writer saw no error: ${lines} lines, all whole and in order, the slowest took ${Math.ceil(longestMs)} ms`,
    good === lines,
    `${good} good lines`,
  );
  const after = await tellStats(scene, id);
  story.proved("the filesystem has grown", after > before + before / 2n, `${before} bytes before, ${after} after`);
  story.sameChecksum("the data is as it was", await checksum(data), sum);
}
