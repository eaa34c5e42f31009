import { assert, assertEquals } from "@std/assert";
import { persistentVolumes } from "../../../k8s/api/objects.ts";
import { TempFolder } from "../../rig/temp_folder.ts";
import { volumeNameOf } from "./helpers/consistency.ts";
import { OutOfClusterController } from "./helpers/out_of_cluster_controller.ts";
import { startController } from "./helpers/host_processes.ts";
import { ClaimTracker } from "./helpers/claim_tracker.ts";
import { ioLimitHelpers } from "./helpers/io_limit_helpers.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { DRIVER } from "./helpers/objects.ts";

const MiB = 2 ** 20;

Deno.test("the official sidecars do over the socket what the controllers do", async () => {
  await using ns = await TestNamespace.open("official");
  await using tracker = await ClaimTracker.open(ns);
  await using controller = await OutOfClusterController.open(ns, ["--disable-controllers", "provisioner,resizer"]);
  await using _provisioner = await controller.startSidecarProcess("csi-provisioner");
  await using _resizer = await controller.startSidecarProcess("csi-resizer");
  const lazy = await ns.createStorageClass("lazy");
  const now = await ns.createStorageClass("now", { volumeBindingMode: "Immediate" });

  await tracker.createClaim("data", lazy);
  await tracker.createClaim("early", now);
  await ns.createPod({ name: "user", claims: [{ name: "data", path: "/data" }] });
  await ns.waitForRunning("user");
  await ns.exec("user", "echo kept > /data/file");
  await tracker.waitForConsistency();
  assertEquals((await ns.lvOf("data")).size, 16 * MiB);
  const { spec } = await ns.volumeOf("data");
  assertEquals(spec?.csi?.driver, DRIVER);
  assert(spec?.nodeAffinity?.required, "the volume says where it is");

  await ns.patch("PersistentVolumeClaim", "data", { spec: { resources: { requests: { storage: "32Mi" } } } });
  await ns.waitFor(
    "PersistentVolumeClaim",
    "data",
    (claim) => claim?.status?.capacity?.storage === "32Mi",
    "has the requested size",
  );
  assertEquals((await ns.lvOf("data")).size, 32 * MiB);
  assertEquals(await ns.exec("user", "cat /data/file"), "kept\n");

  const { createAttributesClass, changeAttributesClass, waitForLimits } = ioLimitHelpers(ns);
  await changeAttributesClass("data", await createAttributesClass("slow", { writeBps: "4Mi" }));
  await waitForLimits("data", /writeBps 4Mi$/);
  await ns.waitForEvent("PersistentVolumeClaim", "data", "VolumeModifySuccessful");

  await ns.deleteAndWait("Pod", "user");
  await ns.deleteAndWait("PersistentVolumeClaim", "data");
  await ns.deleteAndWait("PersistentVolumeClaim", "early");
  await tracker.waitForConsistency();
  await ns.waitForCleanup();
});

Deno.test("the controllers and the official sidecars at once: one leads, the other takes over, and no volume is created twice", async () => {
  await using ns = await TestNamespace.open("both");
  await using tracker = await ClaimTracker.open(ns);
  await using controller = await OutOfClusterController.open(ns, ["--disable-controllers", "provisioner"]);
  const className = await ns.createStorageClass("now", { volumeBindingMode: "Immediate" });
  await using sidecar = await controller.startSidecarProcess("csi-provisioner");
  const first = await controller.waitForLeaseHolder("csi-provisioner");
  assert(!first.startsWith("host-"), `the official one holds the Lease, not ${first}`);
  // Another of ours, with its loops on, which finds the Lease taken.
  await using folder = await TempFolder.create("/tmp", "denolith-");
  await using _ours = await startController(ns.cluster.controlPlane, folder.path);

  const names = Array.from({ length: 6 }, (_, n) => `claim-${n}`);
  await Promise.all(names.map((name) => tracker.createClaim(name, className)));
  await tracker.waitUntil("the creation of the first volume started", () => tracker.startedCount > 0);
  await sidecar.kill();
  await tracker.waitForBound(names);
  await tracker.waitForConsistency();
  assert(
    (await controller.waitForLeaseHolder("csi-provisioner", first)).startsWith("host-"),
    "the loop holds the Lease now",
  );

  const created = (await ns.cluster.controlPlane.auditEvents()).filter(({ verb, objectRef, responseStatus }) =>
    verb === "create" && objectRef?.resource === persistentVolumes.plural && responseStatus?.code === 201
  );
  for (const uid of tracker.uids) {
    const times = created.filter(({ objectRef }) => objectRef?.name === volumeNameOf(uid)).length;
    assert(times <= 1, `${volumeNameOf(uid)} was made ${times} times`);
  }
});
