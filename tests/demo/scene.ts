import { join } from "@std/path";
import type { CsiClient } from "../../csi/client.ts";
import { VolumeCapability_AccessMode_Mode as Mode, VolumeUsage_Unit as Unit } from "../../csi/proto/csi_pb.ts";
import { formatBytes } from "../../lvm/size.ts";
import type { LoopGroup } from "./loop_group.ts";
import type { Story } from "./story.ts";

/** Where the story takes place. */
export interface Scene {
  /** Who tells it. */
  readonly story: Story;
  /** The connection to the driver. */
  readonly client: CsiClient;
  /** The volume group in which the driver makes volumes. */
  readonly group: LoopGroup;
  /** The folder with everything else. */
  readonly folder: string;
}

/** The demo's driver has a name of its own, so that it and another on this machine do not see each other's volumes. */
export const DRIVER_NAME = "demo.denolith.dev";

/** 2^20 bytes. */
export const MIB = 1n << 20n;

/** The volume's first size, and that to which it grows, in bytes. */
export const SIZES = { first: 128n * MIB, grown: 256n * MIB } as const;

/** How much data is written, in bytes. */
export const DATA_BYTES = Number(16n * MIB);

/** Under which name the orchestrator knows the volume. */
export const VOLUME_NAME = "pvc-demo";

/** What the volume is used as: an ext4 filesystem, for several pods of a node at a time. */
export const CAPABILITY = {
  accessType: { case: "mount", value: { fsType: "ext4" } },
  accessMode: { mode: Mode.SINGLE_NODE_MULTI_WRITER },
} as const;

/** What the second volume is used as: a block device. */
export const BLOCK = {
  accessType: { case: "block", value: {} },
  accessMode: { mode: Mode.SINGLE_NODE_WRITER },
} as const;

/** The paths that an orchestrator would choose, and one of the demo's own. */
export interface Paths {
  /** Where the volume is staged. */
  readonly staging: string;
  /** Where the pods have it. */
  readonly pods: { readonly a: string; readonly b: string };
  /** The file with random data, in pod A. */
  readonly data: string;
  /** The file of the writer, in pod A. */
  readonly log: string;
  /** Where the demo looks into a snapshot. */
  readonly look: string;
}

/** The paths in the scene's folder. */
export function paths({ folder }: Scene): Paths {
  const pods = { a: join(folder, "pod-a"), b: join(folder, "pod-b") };
  return {
    staging: join(folder, "staged"),
    pods,
    data: join(pods.a, "data"),
    log: join(pods.a, "log"),
    look: join(folder, "look"),
  };
}

/** NodeStageVolume. */
export async function stage(scene: Scene, volumeId: string, about: string): Promise<void> {
  const request = { volumeId, stagingTargetPath: paths(scene).staging, volumeCapability: CAPABILITY };
  await scene.story.call("NodeStageVolume", about, () => scene.client.node.nodeStageVolume(request));
}

/** NodePublishVolume to both pods: the first may write, the second may only read. */
export async function publishToPods(scene: Scene, volumeId: string): Promise<void> {
  const { staging, pods } = paths(scene);
  const request = { volumeId, stagingTargetPath: staging, volumeCapability: CAPABILITY };
  const publish = scene.client.node.nodePublishVolume;
  await scene.story.call("NodePublishVolume", "pod A, may write", () => publish({ ...request, targetPath: pods.a }));
  await scene.story.call(
    "NodePublishVolume",
    "pod B, may only read",
    () => publish({ ...request, targetPath: pods.b, readonly: true }),
  );
}

/** NodeUnpublishVolume from both pods, and NodeUnstageVolume. */
export async function takeFromPods(scene: Scene, volumeId: string): Promise<void> {
  const { staging, pods } = paths(scene);
  const { story, client: { node } } = scene;
  const unpublish = (targetPath: string) => () => node.nodeUnpublishVolume({ volumeId, targetPath });
  await story.call("NodeUnpublishVolume", "pod A", unpublish(pods.a));
  await story.call("NodeUnpublishVolume", "pod B", unpublish(pods.b));
  await story.call(
    "NodeUnstageVolume",
    "off this node",
    () => node.nodeUnstageVolume({ volumeId, stagingTargetPath: staging }),
  );
}

/** NodeGetVolumeStats of pod A, told in a line; answers the filesystem's size in bytes. */
export async function tellStats(scene: Scene, volumeId: string): Promise<bigint> {
  const { usage } = await scene.story.call(
    "NodeGetVolumeStats",
    "how full is it?",
    () => scene.client.node.nodeGetVolumeStats({ volumeId, volumePath: paths(scene).pods.a }),
  );
  const bytes = usage.find(({ unit }) => unit === Unit.BYTES);
  if (bytes === undefined) throw new Error("the answer has no bytes");
  scene.story.say(`the filesystem has ${formatBytes(bytes.total)}, ${formatBytes(bytes.available)} of them free`);
  return bytes.total;
}

/** The tag that starts so among those of a logical volume or group. @throws {Error} when there is none. */
export function tagOf(tags: readonly string[], prefix: string): string {
  const tag = tags.find((tag) => tag.startsWith(prefix));
  if (tag === undefined) throw new Error(`no tag ${prefix}… among ${tags.join(", ") || "none"}`);
  return tag;
}

/** The tag of the volume's LV that records what is on it. */
export async function contentTag(scene: Scene): Promise<string> {
  const [volume] = await scene.group.volumes(["lv_tags"]);
  return tagOf(volume?.lv_tags?.split(",") ?? [], "denolith.fs=");
}
