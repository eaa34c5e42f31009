/**
 * Lifecycles of copies: claims that are created from snapshots and from other claims.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertNotEquals } from "@std/assert";
import { addWriter } from "./helpers/copy_helpers.ts";
import { FULL, type TestNamespace } from "./helpers/test_namespace.ts";
import { QUICK, SLEEP } from "./helpers/objects.ts";
import { SnapshotTestNamespace } from "./helpers/snapshot_test_namespace.ts";

/** Returns the tag that records the format of a claim's LV. */
async function formatStateTag(ns: TestNamespace, claim: string): Promise<string> {
  return (await ns.lvOf(claim)).tags.find((tag) => tag.startsWith("denolith.fs="))!;
}

Deno.test("a claim made from a snapshot is larger, has what was there then, and is mounted beside the original", async () => {
  await using snapshots = await SnapshotTestNamespace.open("restore");
  const { ns } = snapshots;
  const className = await addWriter(ns);
  await snapshots.createSnapshot("cut", { claim: "data", class: await snapshots.createSnapshotClass("now") });
  await snapshots.waitUntilReady("cut");
  await ns.exec("writer", "echo after > /data/file && sync");
  await ns.createClaim({ name: "copy", class: className, size: "32Mi", from: { kind: "VolumeSnapshot", name: "cut" } });
  const claims = [{ name: "data", path: "/data" }, { name: "copy", path: "/copy" }];
  await ns.createPod({ name: "both", claims, command: SLEEP });
  await ns.waitForRunning("both");
  assertEquals(await ns.exec("both", "cat /copy/file /data/file"), "before\nafter\n");
  const blocks = Number(await ns.exec("both", "df -kP /copy | awk 'END { print $2 }'"));
  assert(blocks > 20 * 1024, `the filesystem has ${blocks} KiB`);
  assertNotEquals(await formatStateTag(ns, "copy"), await formatStateTag(ns, "data"));
  await ns.deleteAndWait("Pod", "both");
});

for (const fsType of FULL ? ["ext4", "xfs", "btrfs"] : ["xfs"]) {
  Deno.test(`a claim is made from one in use, and mounted beside it: ${fsType}`, async () => {
    await using snapshots = await SnapshotTestNamespace.open(`clone-${fsType}`);
    const { ns } = snapshots;
    const size = fsType === "ext4" ? "16Mi" : "320Mi";
    const className = await addWriter(ns, { size, fsType });
    await ns.createClaim({
      name: "copy",
      class: className,
      size,
      from: { kind: "PersistentVolumeClaim", name: "data" },
    });
    const claims = [{ name: "data", path: "/data" }, { name: "copy", path: "/copy" }];
    await ns.createPod({ name: "both", claims, command: SLEEP });
    await ns.waitForRunning("both");
    await ns.exec("both", "echo mine > /copy/mine && sync");
    assertEquals(
      await ns.exec("both", "cat /copy/file; ls /data/mine 2>&1 | wc -l; cat /data/file"),
      "before\n1\nbefore\n",
    );
    assertEquals((await ns.lvs()).filter(({ name }) => name.startsWith("cut-")), []);
    await ns.deleteAndWait("Pod", "both");
  });
}

Deno.test("a claim whose source is missing, or has another volume mode, has an event that says so, and waits", async () => {
  await using snapshots = await SnapshotTestNamespace.open("sources");
  const { ns } = snapshots;
  await addWriter(ns);
  const className = await ns.createStorageClass("at-once", { parameters: QUICK, volumeBindingMode: "Immediate" });
  const from = { kind: "PersistentVolumeClaim", name: "data" } as const;
  await ns.createClaim({ name: "early", class: className, from: { kind: "VolumeSnapshot", name: "later" } });
  await ns.createClaim({ name: "block", class: className, volumeMode: "Block", from });
  await ns.createClaim({ name: "small", class: className, size: "8Mi", from });
  const failureMessage = async (claim: string) =>
    (await ns.waitForEvent("PersistentVolumeClaim", claim, "ProvisioningFailed")).message!;
  assertMatch(await failureMessage("early"), /does not exist/);
  assertMatch(await failureMessage("block"), /Filesystem volume \(requested: Block\)/);
  assertMatch(await failureMessage("small"), /requested: only 8Mi/);
  await snapshots.createSnapshot("later", { claim: "data", class: await snapshots.createSnapshotClass("now") });
  await snapshots.waitUntilReady("later");
  await ns.waitForBound("early");
});
