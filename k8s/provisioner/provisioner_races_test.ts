import { assertEquals } from "@std/assert";
import { Cluster, until } from "../../tests/fake/cluster.ts";
import { interrupted } from "../../tests/fake/interrupted_client.ts";
import { CallError, Code } from "../sidecars/csi_client.ts";
import { type PersistentVolumeClaim, persistentVolumeClaims, persistentVolumes } from "../api/objects.ts";
import { Provisioner } from "./provisioner.ts";

const CLAIM = { namespace: "default", name: "data" };

/** Everything that a claim could leave behind. */
function left({ driver, kept }: Cluster) {
  return { volumes: driver.volumes.size, intents: driver.intents.size, objects: kept.length };
}

const NOTHING = { volumes: 0, intents: 0, objects: 0 };

/** A claim of a class with a secret and an attributes class, so that there is much to wait for. */
function addLongClaim(cluster: Cluster): PersistentVolumeClaim {
  cluster.addAttributesClass("fast", {});
  return cluster.addClaim("data", { volumeAttributesClassName: "fast" });
}

/** Where the provisioning of such a claim waits for someone. */
const STEPS = [
  "before get volumeattributesclasses",
  "after get volumeattributesclasses",
  "before createVolume",
  "after createVolume",
  "before create persistentvolumes",
  "after create persistentvolumes",
  "before handOver",
  "after handOver",
];

for (const seen of [true, false]) {
  for (const at of STEPS) {
    const when = seen ? "and that is seen" : "which is seen later";
    Deno.test(`a claim deleted ${at}, ${when}, leaves nothing behind`, async () => {
      await using cluster = await Cluster.start();
      const { driver } = cluster;
      let reached = false;
      const step = async (name: string) => {
        if (name !== at || reached) return;
        reached = true;
        await cluster.remove(persistentVolumeClaims, CLAIM);
        if (seen) await options.claims.waitFor("default/data", (claim) => claim === undefined);
      };
      const options = cluster.loopOptions(
        "loop",
        (client) => interrupted(client, (request, when) => step(`${when} ${request}`)),
      );
      const provisioner = new Provisioner({
        ...options,
        csi: {
          createVolume: async (request, how) => {
            await step("before createVolume");
            const made = await driver.createVolume(request, how);
            await step("after createVolume");
            return made;
          },
          deleteVolume: (request, how) => driver.deleteVolume(request, how),
        },
        intents: {
          find: (name) => driver.find(name),
          list: () => driver.list(),
          handOver: async (name) => {
            await step("before handOver");
            await driver.handOver(name);
            await step("after handOver");
          },
        },
      });
      const stop = cluster.run((signal) => provisioner.run(signal));
      addLongClaim(cluster);
      await until(() => reached, at);
      cluster.addClaim("other");
      await cluster.bound("other");
      await until(() => Object.values(left(cluster)).every((count) => count === 1), "nothing of it left");
      await stop();
      assertEquals(left(cluster), { volumes: 1, intents: 1, objects: 1 });
    });
  }
}

Deno.test("a claim deleted while its volume is in doubt has the request repeated until it settles, and the volume removed", async () => {
  await using cluster = await Cluster.start();
  const provisioner = new Provisioner(cluster.loopOptions());
  cluster.run((signal) => provisioner.run(signal));
  const gate = Promise.withResolvers<void>();
  for (let n = 0; n < 3; n++) {
    const error = new CallError(Code.DeadlineExceeded, "no answer");
    cluster.driver.next("createVolume", { error, done: true, until: gate.promise });
  }
  const called = cluster.driver.called("createVolume");
  cluster.addClaim();
  await called;
  await cluster.remove(persistentVolumeClaims, CLAIM);
  gate.resolve();
  await until(() => cluster.driver.count("deleteVolume") > 0, "the removal");
  await until(() => left(cluster).volumes === 0);
  assertEquals(cluster.driver.calls.map(({ call }) => call), [...Array(4).fill("createVolume"), "deleteVolume"]);
  assertEquals(left(cluster), NOTHING);
});

Deno.test("a claim deleted while its volume is in doubt is done with when the request fails for good", async () => {
  await using cluster = await Cluster.start();
  const provisioner = new Provisioner(cluster.loopOptions());
  const stop = cluster.run((signal) => provisioner.run(signal));
  const gate = Promise.withResolvers<void>();
  cluster.driver.next("createVolume", { error: new CallError(Code.Aborted, "pending"), until: gate.promise });
  cluster.driver.next("createVolume", { error: new CallError(Code.InvalidArgument, "no") });
  const called = cluster.driver.called("createVolume");
  cluster.addClaim();
  await called;
  await cluster.remove(persistentVolumeClaims, CLAIM);
  gate.resolve();
  await until(() => cluster.driver.count("createVolume") === 2, "the repetition");
  cluster.addClaim("other");
  await cluster.bound("other");
  await stop();
  assertEquals(cluster.driver.calls.map(({ call }) => call), Array(3).fill("createVolume"));
});

for (const kept of [true, false]) {
  const what = kept ? "a PersistentVolume was made for it by another" : "it was handed over before";
  Deno.test(`a volume is not taken back from a claim that is gone when ${what}`, async () => {
    await using cluster = await Cluster.start({ binds: false });
    const { driver } = cluster;
    const provisioner = new Provisioner(cluster.loopOptions());
    const stop = cluster.run((signal) => provisioner.run(signal));
    const gate = Promise.withResolvers<void>();
    driver.next("createVolume", { until: gate.promise });
    const called = driver.called("createVolume");
    const name = `pvc-${cluster.addClaim().metadata.uid}`;
    await called;
    const spec = { persistentVolumeReclaimPolicy: "Retain" };
    if (kept) cluster.api.put(persistentVolumes, { metadata: { name }, spec });
    else await driver.handOver(name);
    await cluster.remove(persistentVolumeClaims, CLAIM);
    gate.resolve();
    cluster.addClaim("other");
    await until(() => driver.volumes.size === 2, "the other volume");
    await stop();
    assertEquals([driver.count("deleteVolume"), driver.volumes.size], [0, 2]);
  });
}

Deno.test("a removal that fails is repeated until nothing is left", async () => {
  await using cluster = await Cluster.start();
  const provisioner = new Provisioner(cluster.loopOptions());
  cluster.run((signal) => provisioner.run(signal));
  const gate = Promise.withResolvers<void>();
  cluster.driver.next("createVolume", { until: gate.promise });
  for (let n = 0; n < 3; n++) cluster.driver.next("deleteVolume", { error: new CallError(Code.Internal, "busy") });
  const called = cluster.driver.called("createVolume");
  cluster.addClaim();
  await called;
  await cluster.remove(persistentVolumeClaims, CLAIM);
  gate.resolve();
  await until(() => cluster.driver.count("deleteVolume") === 4, "the removal");
  await until(() => left(cluster).volumes === 0);
  assertEquals(left(cluster), NOTHING);
});

Deno.test("two provisioners at once make one volume and one PersistentVolume for each claim, and remove them once", async () => {
  await using cluster = await Cluster.start();
  for (const name of ["first", "second"]) {
    const provisioner = new Provisioner(cluster.loopOptions(name));
    cluster.run((signal) => provisioner.run(signal));
  }
  const names = Array.from({ length: 8 }, (_, n) => `data-${n}`);
  for (const name of names) cluster.addClaim(name);
  for (const name of names) await cluster.bound(name);
  assertEquals(left(cluster), { volumes: 8, intents: 8, objects: 8 });
  for (const name of names) await cluster.remove(persistentVolumeClaims, { namespace: "default", name });
  await until(() => cluster.kept.length === 0, "the end of all");
  assertEquals(left(cluster), NOTHING);
});

Deno.test("a restart between the volume and its PersistentVolume goes on with the volume that is there", async () => {
  await using cluster = await Cluster.start();
  const gate = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  const first = new Provisioner(cluster.loopOptions("first", (client) =>
    interrupted(client, async (request) => {
      if (request !== "create persistentvolumes") return;
      reached.resolve();
      await gate.promise;
      throw new Error("killed here");
    })));
  const stop = cluster.run((signal) => first.run(signal));
  cluster.addClaim();
  await reached.promise;
  const second = new Provisioner(cluster.loopOptions("second"));
  cluster.run((signal) => second.run(signal));
  await cluster.bound();
  assertEquals(left(cluster), { volumes: 1, intents: 1, objects: 1 });
  gate.resolve();
  await stop();
});

Deno.test("a provisioner that was stopped and is run again goes on", async () => {
  await using cluster = await Cluster.start();
  const provisioner = new Provisioner(cluster.loopOptions());
  const stop = cluster.run((signal) => provisioner.run(signal));
  cluster.addClaim("one");
  await cluster.bound("one");
  await stop();
  cluster.addClaim("two");
  cluster.run((signal) => provisioner.run(signal));
  await cluster.bound("two");
  assertEquals(cluster.driver.count("createVolume"), 2);
});
