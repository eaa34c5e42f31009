/**
 * Claims that are created on another node than their source: agents of two nodes send the data to each other. The suite runs
 * in a cluster of its own, with transfers on.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { grantsOf } from "../../../k8s/api/transfers.ts";
import { SnapshotTestNamespace } from "./helpers/snapshot_test_namespace.ts";
import type { ClaimSpec } from "./helpers/objects.ts";
import {
  addReader,
  addWriter,
  COPY_NODE,
  copyDigest,
  createClasses,
  DATA_BYTES,
  type Layout,
  SOURCE_NODE,
  transferredBytes,
  type VolumeMode,
  waitForNoTemporarySnapshot,
  watchProgress,
} from "./helpers/transfer_helpers.ts";

/** What is copied, and to what. */
interface Case {
  readonly source: Layout;
  readonly copy: Layout;
  readonly volumeMode: VolumeMode;
  readonly from: NonNullable<ClaimSpec["from"]>["kind"];
}

/** Each layout is source and copy of each volume mode, and each kind of source is of each layout. */
const CASES: readonly Case[] = [
  { source: "thick", copy: "thin", volumeMode: "Filesystem", from: "VolumeSnapshot" },
  { source: "thin", copy: "thick", volumeMode: "Block", from: "VolumeSnapshot" },
  { source: "thick", copy: "thin", volumeMode: "Block", from: "PersistentVolumeClaim" },
  { source: "thin", copy: "thick", volumeMode: "Filesystem", from: "PersistentVolumeClaim" },
];

for (const { source, copy, volumeMode, from } of CASES) {
  const what = from === "VolumeSnapshot" ? "a snapshot of a claim" : "a claim in use";
  Deno.test(`${what}, ${source}, becomes a ${copy} claim on the other node: ${volumeMode}`, async () => {
    await using snapshots = await SnapshotTestNamespace.open("transfer");
    const { ns } = snapshots;
    const [classes, progress] = [await createClasses(ns), await watchProgress(ns)];
    const digest = await addWriter(ns, classes[source], volumeMode);
    let name = "source";
    if (from === "VolumeSnapshot") {
      name = "cut";
      await snapshots.createSnapshot(name, { claim: "source", class: await snapshots.createSnapshotClass("now") });
      await snapshots.waitUntilReady(name);
    }
    const before = await transferredBytes(ns, SOURCE_NODE, "sent");
    await addReader(ns, { from: { kind: from, name }, className: classes[copy], volumeMode });
    assertEquals(await copyDigest(ns, volumeMode), digest);

    const { node, volume } = await ns.lvOf("copy");
    assertEquals(node, COPY_NODE);
    assert(progress.some((percent) => percent > 0 && percent < 100), `progress: ${progress}`);
    const [copying] = (await ns.events("LVMVolume", volume!)).filter(({ reason }) => reason === "Copying");
    assertMatch(copying?.message ?? "", /^copying from /);
    const sent = await transferredBytes(ns, SOURCE_NODE, "sent") - before;
    assert(sent >= DATA_BYTES && sent < 1.3 * DATA_BYTES, `${sent} bytes were sent for ${DATA_BYTES}`);
    assert(await transferredBytes(ns, COPY_NODE, "received") >= DATA_BYTES);
    if (from === "VolumeSnapshot") {
      const { id } = await snapshots.waitUntilReady(name);
      await ns.waitFor("LVMSnapshot", id, (now) => grantsOf(now!).length === 0, "may be read by nobody");
    } else {
      await waitForNoTemporarySnapshot(ns);
    }
  });
}

Deno.test("a claim that was sent outlives its source, is sent back, and grows", async () => {
  await using snapshots = await SnapshotTestNamespace.open("back");
  const { ns } = snapshots;
  const classes = await createClasses(ns);
  const digest = await addWriter(ns, classes.thick, "Filesystem");
  const from = { kind: "PersistentVolumeClaim", name: "source" } as const;
  await addReader(ns, { from, className: classes.thick, volumeMode: "Filesystem" });
  assertEquals(await copyDigest(ns, "Filesystem"), digest);
  await ns.deleteAndWait("Pod", "writer");
  await ns.deleteAndWait("PersistentVolumeClaim", "source");
  await ns.exec("reader", "echo more > /data/more && sync");
  await ns.createClaim({ name: "back", class: classes.thick, size: "500Mi", from: { ...from, name: "copy" } });
  await ns.createPod({ name: "last", claims: [{ name: "back", path: "/data" }], node: SOURCE_NODE });
  await ns.waitForRunning("last");
  assertEquals(await ns.exec("last", "sha256sum < /data/file; cat /data/more"), `${digest}more\n`);
  const kib = Number(await ns.exec("last", "df -kP /data | awk 'END { print $2 }'"));
  assert(kib > 440 * 1024, `the filesystem has ${kib} KiB`);
});
