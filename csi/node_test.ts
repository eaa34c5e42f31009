import { create } from "@bufbuild/protobuf";
import { assertEquals } from "@std/assert";
import { volumeIdOf } from "../base/ids.ts";
import { Locks, volumeLock } from "../base/locks.ts";
import type { Staging } from "../lvm/staging/staging.ts";
import { nodeHandlers } from "./node.ts";
import { NodeUnpublishVolumeRequestSchema, NodeUnstageVolumeRequestSchema } from "./proto/csi_pb.ts";

const ID = await volumeIdOf("claim");

Deno.test("nodeHandlers(): what waits for an unmount is woken after it, when the lock is free", async () => {
  const [steps, locks] = [[] as string[], new Locks()];
  const staging = {
    unstage: () => Promise.resolve(void steps.push("unstaged")),
    unpublish: () => Promise.resolve(void steps.push("unpublished")),
  } as unknown as Staging;
  const woken: Promise<void>[] = [];
  const handlers = nodeHandlers({
    ...{ staging, health: undefined as never, nodeId: "n1", mountRoots: ["/mounts"], locks },
    onUnmounted: (id) =>
      woken.push(locks.run("deletion", [volumeLock(id)], () => Promise.resolve(void steps.push("woken")))),
  });
  const [unpublish, unstage] = [handlers.nodeUnpublishVolume!, handlers.nodeUnstageVolume!];
  await unpublish(
    create(NodeUnpublishVolumeRequestSchema, { volumeId: ID, targetPath: "/mounts/t" }),
  );
  await unstage(
    create(NodeUnstageVolumeRequestSchema, { volumeId: ID, stagingTargetPath: "/mounts/s" }),
  );
  await Promise.all(woken);
  assertEquals(steps, ["unpublished", "woken", "unstaged", "woken"]);
});
