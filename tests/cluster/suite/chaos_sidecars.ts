import { assert, assertEquals } from "@std/assert";
import { leases, persistentVolumes } from "../../../k8s/objects.ts";
import { officialLeaseName } from "../../../k8s/leader.ts";
import { TempFolder } from "../../rig/temp_folder.ts";
import { until } from "../../rig/until.ts";
import { volumeNameOf } from "./books.ts";
import { DriverPods, SYSTEM } from "./driver_pods.ts";
import { type HostController, startController, startSidecar } from "./host_programs.ts";
import { administrator, Ledger } from "./ledger.ts";
import { Scene } from "./scene.ts";
import { DRIVER } from "./scene_objects.ts";
import { WAIT_MS } from "./scene_watch.ts";

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
  const first = await host.holder();
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
  assert((await host.holder(first)).startsWith("host-"), "the loop holds the Lease now");

  const created = (await scene.cluster.controlPlane.auditEvents()).filter(({ verb, objectRef, responseStatus }) =>
    verb === "create" && objectRef?.resource === persistentVolumes.plural && responseStatus?.code === 201
  );
  for (const uid of ledger.uids) {
    const times = created.filter(({ objectRef }) => objectRef?.name === volumeNameOf(uid)).length;
    assert(times <= 1, `${volumeNameOf(uid)} was made ${times} times`);
  }
});

/** A controller on this machine, instead of the one in the cluster. */
class Host implements AsyncDisposable {
  readonly #scene: Scene;
  readonly #stack: AsyncDisposableStack;
  readonly #controller: HostController;
  readonly #folder: string;

  private constructor(
    scene: Scene,
    stack: AsyncDisposableStack,
    parts: { controller: HostController; folder: string },
  ) {
    this.#scene = scene;
    this.#stack = stack;
    this.#controller = parts.controller;
    this.#folder = parts.folder;
  }

  static async open(scene: Scene, flags: readonly string[]): Promise<Host> {
    await using stack = new AsyncDisposableStack();
    const driver = stack.use(await DriverPods.open(scene.cluster, { controller: false }));
    stack.defer(() => driver.scaleController(1));
    await driver.scaleController(0);
    const folder = stack.use(await TempFolder.create("/tmp", "denolith-"));
    const controller = stack.use(await startController(scene.cluster.controlPlane, folder.path, flags));
    return new Host(scene, stack.move(), { controller, folder: folder.path });
  }

  async sidecar(name: "csi-provisioner" | "csi-resizer") {
    const { controlPlane } = this.#scene.cluster;
    return await startSidecar(name, { controlPlane, socket: this.#controller.socket, folder: this.#folder });
  }

  /** Who holds the provisioner's Lease, if that is not the one that held it before. */
  async holder(before = ""): Promise<string> {
    using client = administrator(this.#scene.cluster.controlPlane);
    const at = { namespace: SYSTEM, name: officialLeaseName("csi-provisioner", DRIVER) };
    const look = async () => {
      const { spec } = await client.get(leases, at);
      const live = Date.parse(spec?.renewTime ?? "") > Date.now() - 15_000;
      return live && spec?.holderIdentity && spec.holderIdentity !== before ? spec.holderIdentity : undefined;
    };
    return await until(look, { action: "wait for a holder of the Lease", timeoutMs: WAIT_MS, everyMs: 500 });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}
