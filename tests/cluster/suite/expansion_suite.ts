/**
 * Volumes that grow, and those that cannot.
 *
 * @module
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import { quantityToBytes } from "../../../k8s/api/quantity.ts";
import { defined } from "../../../base/defined.ts";
import { checkingWriter, waitForMoreRounds } from "./helpers/checking_writer.ts";
import { QUICK } from "./helpers/objects.ts";
import { requestSize, resizeState, waitForSize } from "./helpers/resizing.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";

/** The time in which kubelet would repeat an expansion that it does not see as complete, in milliseconds. */
const QUIET_MS = 10_000;

Deno.test("volumes grow under a writer; without a pod they grow halfway, and wholly in the next pod", async () => {
  await using ns = await TestNamespace.open("grow");
  const cls = await ns.createStorageClass("plain", { parameters: QUICK });
  await ns.createClaim({ name: "data", class: cls });
  await ns.createClaim({ name: "raw", class: cls, volumeMode: "Block" });
  const claims = [{ name: "data", path: "/data" }, { name: "raw", devicePath: "/raw" }];
  await ns.createPod({ name: "writer", claims, command: checkingWriter(["/data/file", "/raw"]) });
  await ns.waitForRunning("writer");
  const sizes = "df -kP /data | tail -1 | awk '{ print $2 }'; blockdev --getsize64 /raw";
  const [before] = (await ns.exec("writer", sizes)).split("\n");

  await Promise.all(["data", "raw"].map((name) => requestSize(ns, name, "32Mi")));
  await Promise.all(["data", "raw"].map((name) => waitForSize(ns, name, "32Mi")));
  const [after, raw] = (await ns.exec("writer", sizes)).split("\n");
  assert(Number(after) > Number(before) * 1.8, `${before} KiB became ${after} KiB`);
  assertEquals(raw, String(32 << 20));
  await ns.waitForEvent("PersistentVolumeClaim", "data", "Resizing");
  await ns.waitForEvent("PersistentVolumeClaim", "data", "FileSystemResizeRequired");
  await ns.waitForEvent("PersistentVolumeClaim", "data", "FileSystemResizeSuccessful");
  // The writer kept running, and still runs.
  await waitForMoreRounds(ns, "writer");
  const sums = "sync; md5sum < /data/file; dd if=/raw bs=1M count=4 2>/dev/null | md5sum";
  await ns.deleteAndWait("Pod", "writer");

  await requestSize(ns, "data", "48Mi");
  const pending = await ns.waitFor(
    "PersistentVolumeClaim",
    "data",
    (claim) => resizeState(claim).conditions.includes("FileSystemResizePending"),
    "waits for a pod",
  );
  assertEquals([resizeState(pending).size, resizeState(pending).state], ["32Mi", "NodeResizePending"]);
  assertEquals((await ns.lvOf("data")).size, 48 << 20);
  await ns.createPod({ name: "reader", claims });
  await ns.waitForRunning("reader");
  await waitForSize(ns, "data", "48Mi");
  assertEquals(new Set((await ns.exec("reader", sums)).trim().split("\n")).size, 1);
});

/** Sizes that LVM rounds up, what they are expanded to, and what LVM makes of both. */
const ODD_SIZES = [
  { name: "decimal", size: "33M", grown: "50M", gets: ["32Mi", "48Mi"] },
  { name: "fraction", size: "0.0201171875Gi", grown: "30.5Mi", gets: ["24Mi", "32Mi"] },
  { name: "exponent", size: "21e6", grown: "4e7", gets: ["24Mi", "40Mi"] },
  { name: "small", size: "1", grown: "330M", gets: ["300Mi", "316Mi"], fsType: "xfs" },
  { name: "raw", size: "1500000000m", grown: "9M", gets: ["4Mi", "12Mi"], volumeMode: "Block" },
] as const;

Deno.test("claims of sizes that LVM rounds up are expanded once, and all objects have what the volume got", async () => {
  await using ns = await TestNamespace.open("odd");
  const classes = {
    ext4: await ns.createStorageClass("ext4", { parameters: QUICK }),
    xfs: await ns.createStorageClass("xfs", { parameters: { ...QUICK, "csi.storage.k8s.io/fstype": "xfs" } }),
  };
  for (const { name, size, ...more } of ODD_SIZES) {
    const { fsType = "ext4", volumeMode } = { volumeMode: undefined, fsType: undefined, ...more };
    await ns.createClaim({ name, size, class: classes[fsType], ...defined({ volumeMode }) });
  }
  const claims = ODD_SIZES.map(({ name, ...more }) =>
    "volumeMode" in more ? { name, devicePath: `/${name}` } : { name, path: `/${name}` }
  );
  await ns.createPod({ name: "user", claims });
  await ns.waitForRunning("user");
  for (const { name, gets: [size] } of ODD_SIZES) await waitForSize(ns, name, size);

  for (const { name, grown } of ODD_SIZES) await requestSize(ns, name, grown);
  const expansions = async () =>
    (await ns.kubectl("get", "events", "--output=jsonpath={.items[?(@.reason=='FileSystemResizeSuccessful')].count}"))
      .split(" ").map(Number);
  for (const { name, gets: [, size] } of ODD_SIZES) {
    await waitForSize(ns, name, size);
    const claim = await ns.waitForBound(name);
    const volume = await ns.volumeOf(name);
    assertEquals(
      [claim.status?.allocatedResources, volume.spec?.capacity],
      [{ storage: size }, { storage: size }],
      name,
    );
    assertEquals((await ns.lvOf(name)).size, Number(quantityToBytes(size)), name);
  }
  const before = await expansions();
  await new Promise((resolve) => setTimeout(resolve, QUIET_MS));
  assertEquals(await expansions(), before);
  assertEquals(before.every((count) => count === 1), true, String(before));

  for (const { name, grown, ...more } of ODD_SIZES) {
    const { fsType = "ext4", volumeMode } = { volumeMode: undefined, fsType: undefined, ...more };
    const from = { kind: "PersistentVolumeClaim", name } as const;
    await ns.createClaim({
      name: `${name}-copy`,
      size: grown,
      class: classes[fsType],
      from,
      ...defined({ volumeMode }),
    });
  }
  await ns.createPod({ name: "copies", claims: claims.map((claim) => ({ ...claim, name: `${claim.name}-copy` })) });
  await ns.waitForRunning("copies");
  for (const { name, gets: [, size] } of ODD_SIZES) await waitForSize(ns, `${name}-copy`, size);
});

Deno.test("an expansion that does not fit has an event that says so, and a smaller request recovers from it", async () => {
  await using ns = await TestNamespace.open("much");
  const cls = await ns.createStorageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "raw", class: cls, volumeMode: "Block" });
  await ns.waitForBound("raw");
  await requestSize(ns, "raw", "100Gi");
  const failed = await ns.waitFor(
    "PersistentVolumeClaim",
    "raw",
    (claim) => resizeState(claim).state === "ControllerResizeInfeasible",
    "is infeasible",
  );
  assertEquals(failed.status?.allocatedResources?.["storage"], "100Gi");
  assertEquals(resizeState(failed).conditions, ["ControllerResizeError", "Resizing"]);
  await ns.waitForEvent("PersistentVolumeClaim", "raw", "VolumeResizeFailed", /free/);
  assertEquals((await ns.lvOf("raw")).size, 16 << 20);

  await requestSize(ns, "raw", "24Mi");
  await ns.waitFor("PersistentVolumeClaim", "raw", (claim) => {
    const { size, state } = resizeState(claim);
    return size === "24Mi" || state === "NodeResizePending";
  }, "has grown to 24Mi");
  assertEquals((await ns.lvOf("raw")).size, 24 << 20);

  const classSpec = { parameters: QUICK, volumeBindingMode: "Immediate", allowVolumeExpansion: false } as const;
  await ns.createClaim({ name: "fixed", class: await ns.createStorageClass("fixed", classSpec) });
  await ns.waitForBound("fixed");
  await assertRejects(() => requestSize(ns, "fixed", "32Mi"), Error, "must support resize");
});
