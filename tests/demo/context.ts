import { join } from "@std/path";
import type { CsiClient } from "../contract/helpers/csi_client.ts";
import { VolumeCapability_AccessMode_Mode as Mode, VolumeUsage_Unit as Unit } from "../../csi/proto/csi_pb.ts";
import { formatBytes } from "../../base/size.ts";
import type { LoopGroup } from "./loop_group.ts";
import type { StepRunner } from "./step_runner.ts";

/** The surroundings of the demo. */
export interface DemoContext {
  /** The runner of the steps. */
  readonly runner: StepRunner;
  /** The connection to the driver. */
  readonly client: CsiClient;
  /** The volume group in which the driver makes volumes. */
  readonly group: LoopGroup;
  /** The folder with everything else. */
  readonly folder: string;
}

/**
 * The name of the demo's driver. It is not the usual one, so that the demo and another driver on this machine do not
 * see each other's volumes.
 */
export const DRIVER_NAME = "demo.denolith.dev";

/** 2^20 bytes. */
export const MIB = 1n << 20n;

/** The volume's first size and its expanded size, in bytes. */
export const SIZES = { first: 128n * MIB, grown: 256n * MIB } as const;

/** The amount of data that is written, in bytes. */
export const DATA_BYTES = Number(16n * MIB);

/** Under which name the orchestrator knows the volume. */
export const VOLUME_NAME = "pvc-demo";

/** The capability of the volume: an ext4 filesystem, for several pods of a node at a time. */
export const FILESYSTEM_CAPABILITY = {
  accessType: { case: "mount", value: { fsType: "ext4" } },
  accessMode: { mode: Mode.SINGLE_NODE_MULTI_WRITER },
} as const;

/** The paths that an orchestrator would choose, and one of the demo's own. */
export interface Paths {
  /** The staging path of the volume. */
  readonly staging: string;
  /** The target paths of the pods. */
  readonly pods: { readonly a: string; readonly b: string };
  /** The file with random data, in pod A. */
  readonly data: string;
  /** The file of the writer, in pod A. */
  readonly log: string;
  /** The mount point of the snapshot. */
  readonly snapshotMount: string;
}

/** Returns the paths in the demo's folder. */
export function paths({ folder }: DemoContext): Paths {
  const pods = { a: join(folder, "pod-a"), b: join(folder, "pod-b") };
  return {
    staging: join(folder, "staged"),
    pods,
    data: join(pods.a, "data"),
    log: join(pods.a, "log"),
    snapshotMount: join(folder, "look"),
  };
}

/** Calls NodeStageVolume. */
export async function stage(context: DemoContext, volumeId: string, description: string): Promise<void> {
  const request = { volumeId, stagingTargetPath: paths(context).staging, volumeCapability: FILESYSTEM_CAPABILITY };
  await context.runner.call("NodeStageVolume", description, () => context.client.node.nodeStageVolume(request));
}

/** Calls NodePublishVolume for both pods: the first may write, the second may only read. */
export async function publishToPods(context: DemoContext, volumeId: string): Promise<void> {
  const { staging, pods } = paths(context);
  const request = { volumeId, stagingTargetPath: staging, volumeCapability: FILESYSTEM_CAPABILITY };
  const publish = context.client.node.nodePublishVolume;
  await context.runner.call("NodePublishVolume", "pod A, may write", () => publish({ ...request, targetPath: pods.a }));
  await context.runner.call(
    "NodePublishVolume",
    "pod B, may only read",
    () => publish({ ...request, targetPath: pods.b, readonly: true }),
  );
}

/** Calls NodeUnpublishVolume for both pods, and NodeUnstageVolume. */
export async function unpublishFromPods(context: DemoContext, volumeId: string): Promise<void> {
  const { staging, pods } = paths(context);
  const { runner, client: { node } } = context;
  const unpublish = (targetPath: string) => () => node.nodeUnpublishVolume({ volumeId, targetPath });
  await runner.call("NodeUnpublishVolume", "pod A", unpublish(pods.a));
  await runner.call("NodeUnpublishVolume", "pod B", unpublish(pods.b));
  await runner.call(
    "NodeUnstageVolume",
    "off this node",
    () => node.nodeUnstageVolume({ volumeId, stagingTargetPath: staging }),
  );
}

/** Calls NodeGetVolumeStats for pod A, and prints a line about it. @returns the filesystem's size in bytes */
export async function showStats(context: DemoContext, volumeId: string): Promise<bigint> {
  const { usage } = await context.runner.call(
    "NodeGetVolumeStats",
    "how full is it?",
    () => context.client.node.nodeGetVolumeStats({ volumeId, volumePath: paths(context).pods.a }),
  );
  const bytes = usage.find(({ unit }) => unit === Unit.BYTES);
  if (bytes === undefined) throw new Error("the answer has no bytes");
  context.runner.say(`the filesystem has ${formatBytes(bytes.total)}, ${formatBytes(bytes.available)} of them free`);
  return bytes.total;
}

/** Returns the tag with this prefix among those of a logical volume or group. @throws {Error} when there is none */
export function findTag(tags: readonly string[], prefix: string): string {
  const tag = tags.find((tag) => tag.startsWith(prefix));
  if (tag === undefined) throw new Error(`no tag ${prefix}… among ${tags.join(", ") || "none"}`);
  return tag;
}

/** Returns the tag of the volume's LV that records its format. */
export async function formatStateTag(context: DemoContext): Promise<string> {
  // a deleted snapshot may be among the LVs until it is erased
  const tags = (await context.group.volumes(["lv_tags"])).flatMap(({ lv_tags }) => lv_tags?.split(",") ?? []);
  return findTag(tags, "denolith.fs=");
}
