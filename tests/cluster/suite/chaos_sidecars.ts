import { assert, assertEquals } from "@std/assert";
import { persistentVolumes } from "../../../k8s/api/objects.ts";
import { TempFolder } from "../../rig/temp_folder.ts";
import { volumeNameOf } from "./books.ts";
import { Host } from "./host.ts";
import { startController } from "./host_programs.ts";
import { Ledger } from "./ledger.ts";
import { limitScene } from "./limit_scene.ts";
import { Scene } from "./scene.ts";
import { DRIVER } from "./scene_objects.ts";

const MiB = 2 ** 20;

Deno.test("the official sidecars do in front of the socket what the loops do", async () => {
  await using scene = await Scene.open("official");
  await using ledger = await Ledger.open(scene);
  await using host = await Host.open(scene, ["--disable-loops", "provisioner,resizer"]);
  await using _provisioner = await host.sidecar("csi-provisioner");
  await using _resizer = await host.sidecar("csi-resizer");
  const lazy = await scene.storageClass("lazy");
  const now = await scene.storageClass("now", { volumeBindingMode: "Immediate" });

  await ledger.claim("data", lazy);
  await ledger.claim("early", now);
  await scene.pod({ name: "user", claims: [{ name: "data", path: "/data" }] });
  await scene.running("user");
  await scene.exec("user", "echo kept > /data/file");
  await ledger.balanced();
  assertEquals((await scene.lvOf("data")).size, 16 * MiB);
  const { spec } = await scene.volumeOf("data");
  assertEquals(spec?.csi?.driver, DRIVER);
  assert(spec?.nodeAffinity?.required, "the volume says where it is");

  await scene.patch("PersistentVolumeClaim", "data", { spec: { resources: { requests: { storage: "32Mi" } } } });
  await scene.wait(
    "PersistentVolumeClaim",
    "data",
    (claim) => claim?.status?.capacity?.storage === "32Mi",
    "has the room it asked for",
  );
  assertEquals((await scene.lvOf("data")).size, 32 * MiB);
  assertEquals(await scene.exec("user", "cat /data/file"), "kept\n");

  const { attributesClass, change, limited } = limitScene(scene);
  await change("data", await attributesClass("slow", { writeBps: "4Mi" }));
  await limited("data", /writeBps 4Mi$/);
  await scene.event("PersistentVolumeClaim", "data", "VolumeModifySuccessful");

  await scene.delete("Pod", "user");
  await scene.delete("PersistentVolumeClaim", "data");
  await scene.delete("PersistentVolumeClaim", "early");
  await ledger.balanced();
  await scene.settled();
});

Deno.test("the loops and the official sidecars at once: one works, the other takes its place, and no volume is made twice", async () => {
  await using scene = await Scene.open("both");
  await using ledger = await Ledger.open(scene);
  await using host = await Host.open(scene, ["--disable-loops", "provisioner"]);
  const className = await scene.storageClass("now", { volumeBindingMode: "Immediate" });
  await using official = await host.sidecar("csi-provisioner");
  const first = await host.holder("csi-provisioner");
  assert(!first.startsWith("host-"), `the official one holds the Lease, not ${first}`);
  // Another of ours, with its loops on, which finds the Lease taken.
  await using folder = await TempFolder.create("/tmp", "denolith-");
  await using _ours = await startController(scene.cluster.controlPlane, folder.path);

  const names = Array.from({ length: 6 }, (_, n) => `claim-${n}`);
  await Promise.all(names.map((name) => ledger.claim(name, className)));
  await ledger.when("the first volume is begun", () => ledger.begun > 0);
  await official.kill();
  await ledger.bound(names);
  await ledger.balanced();
  assert((await host.holder("csi-provisioner", first)).startsWith("host-"), "the loop holds the Lease now");

  const created = (await scene.cluster.controlPlane.auditEvents()).filter(({ verb, objectRef, responseStatus }) =>
    verb === "create" && objectRef?.resource === persistentVolumes.plural && responseStatus?.code === 201
  );
  for (const uid of ledger.uids) {
    const times = created.filter(({ objectRef }) => objectRef?.name === volumeNameOf(uid)).length;
    assert(times <= 1, `${volumeNameOf(uid)} was made ${times} times`);
  }
});
