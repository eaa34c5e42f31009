import { status } from "@grpc/grpc-js";
import {
  ControllerServiceCapability_RPC_Type as ControllerRpc,
  NodeServiceCapability_RPC_Type as NodeRpc,
} from "../../csi/proto/csi_pb.ts";
import { formatBytes } from "../../base/size.ts";
import { checksum, goodLines, Writer, writeRandom } from "./data.ts";
import {
  DATA_BYTES,
  type DemoContext,
  DRIVER_NAME,
  FILESYSTEM_CAPABILITY,
  findTag,
  formatStateTag,
  paths,
  publishToPods,
  showStats,
  SIZES,
  stage,
  VOLUME_NAME,
} from "./context.ts";

/** Asks the driver for its identity, its capabilities and its free space. @returns the free space in bytes */
export async function queryDriver({ runner, client, group }: DemoContext): Promise<bigint> {
  const info = await runner.call("GetPluginInfo", "who are you?", () => client.identity.getPluginInfo());
  runner.say(`${info.name}, version ${info.vendorVersion}`);
  const { ready } = await runner.call("Probe", "are you ready?", () => client.identity.probe());
  runner.verify("LVM answers, it is ready", ready === true, String(ready));
  const controller = await runner.call(
    "ControllerGetCapabilities",
    "what can you do?",
    () => client.controller.controllerGetCapabilities(),
  );
  runner.say(capabilityNames(controller.capabilities, ControllerRpc));
  const node = await runner.call(
    "NodeGetCapabilities",
    "and on the node?",
    () => client.node.nodeGetCapabilities(),
  );
  runner.say(capabilityNames(node.capabilities, NodeRpc));
  const { availableCapacity } = await runner.call(
    "GetCapacity",
    "how much free space is there?",
    () => client.controller.getCapacity({ volumeCapabilities: [FILESYSTEM_CAPABILITY] }),
  );
  runner.say(`${formatBytes(availableCapacity)} in the volume group ${group.name}`);
  return availableCapacity;
}

function capabilityNames(
  capabilities: readonly { type: { case: "rpc"; value: { type: number } } | { case?: string | undefined } }[],
  known: Record<number, string>,
): string {
  return capabilities.flatMap(({ type }) => "value" in type ? [known[type.value.type]] : []).join(", ");
}

/** Makes the volume, twice, and answers its id. */
export async function createVolume(context: DemoContext): Promise<string> {
  const { runner, client, group } = context;
  const create = (bytes: bigint) => () =>
    client.controller.createVolume({
      name: VOLUME_NAME,
      capacityRange: { requiredBytes: bytes },
      volumeCapabilities: [FILESYSTEM_CAPABILITY],
      parameters: { volumeGroup: group.name },
    });
  const about = `"${VOLUME_NAME}", ${formatBytes(SIZES.first)}, for ext4`;
  const { volume } = await runner.call("CreateVolume", about, create(SIZES.first));
  const id = volume?.volumeId ?? "";
  runner.say(`its id is ${id}`);
  const again = await runner.call("CreateVolume", "the same once more", create(SIZES.first));
  runner.verify(
    "the same volume, made once: calls may be repeated",
    again.volume?.volumeId === id,
    `${again.volume?.volumeId}`,
  );
  await runner.expectRefused(
    "CreateVolume",
    `the same name, but ${formatBytes(SIZES.grown)}`,
    status.ALREADY_EXISTS,
    create(SIZES.grown),
  );
  const lvs = await group.volumes(["lv_name", "lv_size", "lv_tags"]);
  runner.verify(
    "it is a plain logical volume, and its tags say whose",
    lvs.length === 1,
    `${lvs.length} logical volumes`,
  );
  for (const { lv_name, lv_tags } of lvs) {
    runner.show(`lvs ${group.name}/${lv_name}`);
    for (const tag of lv_tags?.split(",") ?? []) runner.show(`  ${tag}`);
  }
  return id;
}

/** Formats and mounts the volume; answers the record of its filesystem. */
export async function stageVolume(context: DemoContext, id: string): Promise<string> {
  const { runner, group } = context;
  await stage(context, id, "format, check and mount it");
  const filesystem = await formatStateTag(context);
  runner.verify("formatted, and the logical volume's tag records it", /=formatted:ext4:/.test(filesystem), filesystem);
  runner.show(filesystem);
  const used = findTag(await group.tags(), `denolith.used=${DRIVER_NAME}:${id}`);
  runner.say(
    "The group records that the volume was handed out: were its logical volume to vanish, it would count as lost, " +
      "and nothing would be created or formatted in its place.",
  );
  runner.show(used);
  await stage(context, id, "the same once more");
  runner.verify(
    "nothing was formatted again",
    await formatStateTag(context) === filesystem,
    await formatStateTag(context),
  );
  return filesystem;
}

/** Publishes the volume to two pods, writes to it and answers the checksum of the data. */
export async function publishAndWrite(context: DemoContext, id: string): Promise<string> {
  const { runner } = context;
  const { pods, data } = paths(context);
  await publishToPods(context, id);
  const sum = await runner.during("writing random data", () => writeRandom(data, DATA_BYTES));
  runner.say(`pod A wrote ${formatBytes(BigInt(DATA_BYTES))} of random data: sha256 ${sum.slice(0, 16)}…`);
  runner.sameChecksum("pod B reads the same", await checksum(`${pods.b}/data`), sum);
  const refusal = await Deno.writeTextFile(`${pods.b}/data`, "").then(() => undefined, (error: Error) => error);
  runner.verify("pod B cannot write", /read-only/i.test(refusal?.message ?? ""), refusal?.message ?? "it could");
  return sum;
}

/** Grows the volume while a program writes to it. */
export async function expandUnderWriter(context: DemoContext, id: string, sum: string): Promise<void> {
  const { runner, client } = context;
  const { pods, data, log } = paths(context);
  const before = await showStats(context, id);
  runner.say("a writer starts in pod A: line after line, each with a checksum, each down to the disk");
  const writer = new Writer(log);
  const capacityRange = { requiredBytes: SIZES.grown };
  try {
    await runner.during("the writer writes", () => writer.waitForLines(20));
    await runner.call(
      "ControllerExpandVolume",
      `the logical volume, to ${formatBytes(SIZES.grown)}`,
      () =>
        client.controller.controllerExpandVolume({
          volumeId: id,
          capacityRange,
          volumeCapability: FILESYSTEM_CAPABILITY,
        }),
    );
    await runner.call(
      "NodeExpandVolume",
      "the filesystem, while it is mounted",
      () => client.node.nodeExpandVolume({ volumeId: id, volumePath: pods.a, capacityRange }),
    );
    await runner.during("the writer continues", () => writer.waitForLines(20));
  } catch (error) {
    await writer.stop().catch(() => {}); // the first error is thrown
    throw error;
  }
  const { lines, longestMs } = await writer.stop();
  const goodLineCount = await goodLines(log);
  runner.verify(
    `the writer saw no error: ${lines} lines, all whole and in order, the slowest took ${Math.ceil(longestMs)} ms`,
    goodLineCount === lines,
    `${goodLineCount} good lines`,
  );
  const after = await showStats(context, id);
  runner.verify("the filesystem has grown", after > before + before / 2n, `${before} bytes before, ${after} after`);
  runner.sameChecksum("the data is as it was", await checksum(data), sum);
}
