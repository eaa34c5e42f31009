/**
 * Contract: thin volumes, their pools and their snapshots.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import {
  assertFails,
  blockCapability,
  contractTest,
  type Harness,
  type Host,
  type HostMachine,
} from "./helpers/host.ts";
import { kernelNameOf } from "../../lvm/pools/pool.ts";
import { subcommand } from "./volumes_suite.ts";

const MiB = 1n << 20n;

/** Registers all tests. */
export function thinContract(host: Host): void {
  thinLifecycleContract(host);
  pendingThinContract(host);

  contractTest(
    host,
    "createVolume() makes a thin pool when it is first needed, and then one change a volume",
    async (harness) => {
      await harness.waitUntilIdle();
      const first = await harness.exec.recordCommands(async () => void await createThinVolume(harness));
      assertEquals(lvcreateCommands(first), ["lvcreate thin-pool", "lvcreate thin"]);
      await harness.waitUntilIdle();
      const second = await harness.exec.recordCommands(async () => void await createThinVolume(harness));
      assertEquals(withoutStatusQueries(second).map(subcommand), [
        "lvm fullreport",
        "lvm lvcreate",
        "sync",
      ]);
      const [pool] = (await harness.lvs()).filter(({ thinPool }) => thinPool !== undefined);
      assertEquals(pool?.name, `${harness.groups[0]}_thinpool`);
      assert(pool!.tags.includes("denolith.pool=made"));
      assert(pool!.thinPool!.zeroes);
      assertEquals((await volumeLvs(harness)).map((lv) => lv.pool), [pool!.name, pool!.name]);
      await cleanUp(harness);
    },
  );

  contractTest(host, "a pool's own tag limits how much it may allocate", async (harness) => {
    const path = await createPool(harness, "mine", 128n * MiB);
    const parameters = { thinPool: "mine" };
    await assertFails(
      "RESOURCE_EXHAUSTED",
      createThinVolume(harness, { requiredBytes: 200n * MiB }, parameters),
      "left in thin pool",
    );
    await harness.runAsAdmin("lvm", "lvchange", "--addtag", "denolith.overcommit=2.5", path);
    await createThinVolume(harness, { requiredBytes: 200n * MiB }, parameters);
    const { availableCapacity } = await harness.csi.controller.getCapacity({
      parameters: { volumeGroup: harness.groups[0], thinProvision: "yes", thinPool: "mine" },
    });
    assertEquals(availableCapacity, 120n * MiB);
    await cleanUp(harness);
    assertEquals((await harness.lvs()).map(({ name }) => name), ["mine"], "a pool of somebody else stays");
    await harness.runAsAdmin("lvm", "lvremove", "--yes", path);
  });

  contractTest(host, "a request that cannot be thin is refused, with a remedy", async (harness) => {
    await assertFails(
      "INVALID_ARGUMENT",
      createThinVolume(harness, undefined, { thinProvision: "perhaps" }),
      "no or yes",
    );
    await assertFails(
      "INVALID_ARGUMENT",
      createThinVolume(harness, undefined, { thinProvision: "no", thinPool: "p" }),
      "thinPool",
    );
    await assertFails("INVALID_ARGUMENT", createThinVolume(harness, undefined, { thinPool: "-p" }), "thinPool");
    await assertFails("INVALID_ARGUMENT", createThinVolume(harness, undefined, { thinPool: "p_tdata" }), "thinPool");
    await assertFails(
      "INVALID_ARGUMENT",
      createThinVolume(harness, undefined, { thinPool: "p", thinPoolSize: "1Gi" }),
      "thinPoolSize",
    );
    await assertFails(
      "INVALID_ARGUMENT",
      createThinVolume(harness, undefined, { thinPoolSize: "most" }),
      "thinPoolSize",
    );
    await assertFails(
      "RESOURCE_EXHAUSTED",
      createThinVolume(harness, { requiredBytes: 32n * MiB }, { thinPool: "none" }),
      "no thin pool none",
    );
    const path = await createPool(harness, "raw", 64n * MiB, "n");
    await assertFails(
      "FAILED_PRECONDITION",
      createThinVolume(harness, { requiredBytes: 32n * MiB }, { thinPool: "raw" }),
      "--zero y",
    );
    await harness.runAsAdmin("lvm", "lvremove", "--yes", path);
    assertEquals(await harness.lvs(), []);
  });
}

/** Registers those that also hold where what a machine has becomes known a moment later, as in a cluster. */
export function thinLifecycleContract(host: Host): void {
  contractTest(
    host,
    "a thin volume is staged, published, expanded while it is in use, and deleted",
    async (harness) => {
      const volumeId = await createThinVolume(harness, { requiredBytes: 32n * MiB });
      const [lv] = await volumeLvs(harness);
      await harness.runAsAdmin("lvm", "lvchange", "--activate", "n", `${harness.groups[0]}/${lv!.name}`);
      const stagingTargetPath = await harness.stage(volumeId);
      const targetPath = await harness.publish(volumeId);
      const capacityRange = { requiredBytes: 64n * MiB };
      const grown = await harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange });
      assertEquals([grown.capacityBytes, grown.nodeExpansionRequired], [64n * MiB, true]);
      await harness.csi.node.nodeExpandVolume({ volumeId, volumePath: targetPath });
      await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await harness.csi.controller.deleteVolume({ volumeId });
      assertEquals(await volumeLvs(harness), []);
      await cleanUp(harness);
    },
  );

  contractTest(host, "a pool allocates no more than its size, also for many requests at once", async (harness) => {
    const parameters = { thinPoolSize: "256Mi" };
    await createThinVolume(harness, { requiredBytes: 64n * MiB }, parameters);
    const capacity = async () => {
      const { availableCapacity, maximumVolumeSize } = await harness.csi.controller.getCapacity({
        parameters: { volumeGroup: harness.groups[0], thinProvision: "yes" },
      });
      return [availableCapacity, maximumVolumeSize];
    };
    assertEquals(await capacity(), [192n * MiB, 192n * MiB]);
    const attempts = await Promise.allSettled(
      Array.from({ length: 5 }, () => createThinVolume(harness, { requiredBytes: 64n * MiB })),
    );
    assertEquals(attempts.filter(({ status }) => status === "fulfilled").length, 3);
    await assertFails("RESOURCE_EXHAUSTED", createThinVolume(harness, { requiredBytes: 64n * MiB }), "thin pool");
    assertEquals(await capacity(), [0n, undefined]);
    const [{ volume } = { volume: undefined }] = (await harness.csi.controller.listVolumes({})).entries;
    const { volumeId } = volume!;
    const capacityRange = { requiredBytes: 128n * MiB };
    await assertFails(
      "OUT_OF_RANGE",
      harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange }),
      "can allocate",
    );
    const sourceVolumeId = volumeId;
    await assertFails(
      "RESOURCE_EXHAUSTED",
      harness.csi.controller.createSnapshot({ name: "too much", sourceVolumeId }),
      "can allocate",
    );
    await cleanUp(harness);
  });

  contractTest(
    host,
    "a new pool allocates no more than its size when a thick volume takes space at the same time",
    async (harness) => {
      const [volumeGroup] = harness.groups;
      const attempts = await Promise.allSettled([
        harness.create({ capacityRange: { requiredBytes: 600n * MiB }, parameters: { volumeGroup } }),
        createThinVolume(harness, { requiredBytes: 700n * MiB }),
      ]);
      const lvs = await harness.lvs();
      const pool = lvs.find(({ thinPool }) => thinPool !== undefined);
      const allocated = lvs.filter(({ pool }) => pool !== undefined).reduce((sum, { size }) => sum + size, 0n);
      assert(allocated <= (pool?.size ?? 0n), `${allocated} bytes are allocated in a pool of ${pool?.size}`);
      assertEquals(attempts.map(({ status }) => status).sort(), ["fulfilled", "rejected"]);
      for (const attempt of attempts) {
        if (attempt.status === "rejected") await assertFails("RESOURCE_EXHAUSTED", Promise.reject(attempt.reason));
      }
      await cleanUp(harness);
    },
  );

  contractTest(
    host,
    "a repeated request finds the thin volume, and another kind of volume is another one",
    async (harness) => {
      const request = { name: "same", capacityRange: { requiredBytes: 32n * MiB } };
      const parameters = { volumeGroup: harness.groups[0], thinProvision: "yes" };
      const volumeId = await harness.create({ ...request, parameters });
      assertEquals(await harness.create({ ...request, parameters }), volumeId);
      const thick = harness.create({ ...request, parameters: { volumeGroup: harness.groups[0] } });
      await assertFails("ALREADY_EXISTS", thick, "it is thin");
      const elsewhere = harness.create({ ...request, parameters: { ...parameters, thinPool: "other" } });
      await assertFails("ALREADY_EXISTS", elsewhere, "other");
      await cleanUp(harness);
    },
  );

  contractTest(host, "a thin snapshot needs no COW space, and outlives its volume", async (harness) => {
    const sourceVolumeId = await createThinVolume(harness, { requiredBytes: 32n * MiB });
    const stagingTargetPath = await harness.stage(sourceVolumeId);
    const { snapshot } = await harness.csi.controller.createSnapshot({ name: "thin", sourceVolumeId });
    const { snapshotId } = snapshot!;
    assertEquals([snapshot?.sizeBytes, snapshot?.readyToUse], [32n * MiB, true]);
    assertEquals((await harness.csi.controller.createSnapshot({ name: "thin", sourceVolumeId })).snapshot, snapshot);
    const [lv] = (await harness.lvs()).filter(({ name }) => name.startsWith("snap-"));
    assertEquals([lv?.pool, lv?.size, lv?.active], [`${harness.groups[0]}_thinpool`, 32n * MiB, true]);
    const path = `${harness.groups[0]}/${lv!.name}`;
    await harness.runAsAdmin("lvm", "lvchange", "--activate", "n", path);
    await harness.runAsAdmin("lvm", "lvchange", "--activate", "y", path);
    assert((await harness.lvs()).find(({ name }) => name === lv!.name)?.active, "it is activated like any other");

    const capacityRange = { requiredBytes: 64n * MiB };
    await harness.csi.controller.controllerExpandVolume({ volumeId: sourceVolumeId, capacityRange });
    await harness.csi.node.nodeUnstageVolume({ volumeId: sourceVolumeId, stagingTargetPath });
    await harness.csi.controller.deleteVolume({ volumeId: sourceVolumeId });
    await harness.waitUntilIdle();
    assertEquals(await volumeLvs(harness), []);
    const found = await harness.csi.controller.getSnapshot({ snapshotId });
    assertEquals(found.snapshot, snapshot);
    await harness.csi.controller.deleteSnapshot({ snapshotId });
    await cleanUp(harness);
  });
}

/** Registers those about creations that a power cut interrupted, before the pool made the LV. */
function pendingThinContract(host: Host): void {
  /** Creates a volume and a snapshot of it, stops the driver, and makes the snapshot pending. */
  const pendingSnapshot = async (harness: Harness, machine: HostMachine) => {
    const request = { name: "cut", sourceVolumeId: await createThinVolume(harness) };
    await harness.csi.controller.createSnapshot(request);
    const lv = await snapshotLv(harness);
    await harness.stop();
    await machine.makePending(`${harness.groups[0]}/${lv.name}`);
    return { request, pending: lv.uuid };
  };
  const snapshotLv = async (harness: Harness) => (await harness.lvs()).find(({ name }) => name.startsWith("snap-"))!;

  contractTest(
    host,
    "a thin snapshot that a power cut interrupted is taken when it is requested again, not when its pool changes",
    async (harness, machine) => {
      const { request, pending } = await pendingSnapshot(harness, machine);
      await using next = await harness.restart();
      await createThinVolume(next);
      const { snapshot } = await next.csi.controller.createSnapshot(request);
      const lv = await snapshotLv(next);
      assertEquals([lv.uuid === pending, lv.active], [false, true]);
      await next.csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
      await cleanUp(next);
    },
  );

  contractTest(
    host,
    "a thin snapshot that its pool cannot find after it was taken is not taken again, and goes only when it is deleted",
    async (harness) => {
      const request = { name: "cut", sourceVolumeId: await createThinVolume(harness) };
      const { snapshot } = await harness.csi.controller.createSnapshot(request);
      const lv = await snapshotLv(harness);
      const pool = (await harness.lvs()).find(({ name }) => name === lv.pool)!;
      await harness.runAsAdmin("lvm", "lvchange", "--activate", "n", `${harness.groups[0]}/${lv.name}`);
      // the kernel's answer is that of an active pool whose metadata has a bad sector
      await harness.runAsAdmin("dmsetup", "message", kernelNameOf(pool), "0", `delete ${lv.segment.thinId}`);
      const again = harness.csi.controller.createSnapshot(request);
      await assertFails("FAILED_PRECONDITION", again, "does not contain it any more");
      await using next = await harness.restart();
      await createThinVolume(next);
      assertEquals((await snapshotLv(next)).uuid, lv.uuid);
      await next.csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
      await next.waitUntilIdle();
      assertEquals(await snapshotLv(next), undefined);
      await cleanUp(next);
    },
  );

  contractTest(
    host,
    "no thin volume gets the data of another one that was deleted after a power cut",
    async (harness, machine) => {
      const request = {
        capacityRange: { requiredBytes: 32n * MiB },
        parameters: { volumeGroup: harness.groups[0], thinProvision: "yes" },
        volumeCapabilities: [blockCapability()],
      };
      const sourceVolumeId = await harness.create(request);
      const [volume] = await volumeLvs(harness);
      const ddArgs = ["if=/dev/urandom", `of=${volume!.devicePath}`, "bs=1048576", "count=4", "oflag=direct"];
      await harness.runAsAdmin("dd", ...ddArgs, "status=none");
      const { snapshot } = await harness.csi.controller.createSnapshot({ name: "cut", sourceVolumeId });
      const { name } = await snapshotLv(harness);
      await harness.stop();
      await machine.keepMessage(`${harness.groups[0]}/${name}`);
      await using next = await harness.restart();
      await next.csi.controller.deleteVolume({ volumeId: sourceVolumeId });
      await next.waitUntilIdle();
      await next.csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
      await next.waitUntilIdle();
      assert(await readsAsZeros(next, await next.create(request)));
      await cleanUp(next);
    },
  );

  contractTest(
    host,
    "a power cut in the transaction of a thin clone leaves a pool that can be changed",
    async (harness, machine) => {
      const volumeId = await createThinVolume(harness);
      const source = { volumeContentSource: { type: { case: "volume", value: { volumeId } } } } as const;
      const parameters = { volumeGroup: harness.groups[0], thinProvision: "yes" };
      const copyId = await harness.create({ parameters, capacityRange: { requiredBytes: 32n * MiB }, ...source });
      const copy = (await harness.lvs()).find(({ tags }) => tags.includes(`denolith.volume=${copyId}`))!;
      await harness.stop();
      await machine.interruptTransaction(`${harness.groups[0]}/${copy.name}`);
      await using next = await harness.restart();
      await next.waitUntilIdle();
      await next.csi.controller.deleteVolume({ volumeId });
      await next.waitUntilIdle();
      const another = await createThinVolume(next);
      const tags = (await next.lvs()).filter(({ pool }) => pool !== undefined).flatMap(({ tags }) => tags);
      const volumeTags = tags.filter((tag) => tag.startsWith("denolith.volume="));
      assertEquals(new Set(volumeTags), new Set([copyId, another].map((id) => `denolith.volume=${id}`)));
      await cleanUp(next);
    },
  );

  contractTest(
    host,
    "a thin snapshot that a power cut interrupted does not outlive its volume",
    async (harness, machine) => {
      const { request } = await pendingSnapshot(harness, machine);
      await using next = await harness.restart();
      await next.csi.controller.deleteVolume({ volumeId: request.sourceVolumeId });
      await next.waitUntilIdle();
      assertEquals((await next.lvs()).filter(({ pool }) => pool !== undefined), []);
      await cleanUp(next);
    },
  );
}

/** Reports whether the device of a volume reads as zeros from end to end. */
async function readsAsZeros(harness: Harness, volumeId: string): Promise<boolean> {
  const lv = (await harness.lvs()).find(({ tags }) => tags.includes(`denolith.volume=${volumeId}`))!;
  const args = [`--bytes=${lv.size}`, "/dev/zero", lv.devicePath];
  const { code, stderr } = await harness.exec.run({ program: "cmp", args, mutates: false });
  assert(code <= 1, stderr);
  return code === 0;
}

/** Creates a thin volume in the first group. */
async function createThinVolume(
  harness: Harness,
  capacityRange: { requiredBytes?: bigint } = { requiredBytes: 32n * MiB },
  parameters: Record<string, string> = {},
): Promise<string> {
  const volumeGroup = harness.groups[0];
  return await harness.create({ capacityRange, parameters: { volumeGroup, thinProvision: "yes", ...parameters } });
}

/** Makes a pool as an administrator does, and answers its path. */
async function createPool(harness: Harness, name: string, bytes: bigint, zero = "y"): Promise<string> {
  const options = ["--yes", "--type", "thin-pool", "--zero", zero, "--name", name, "--size", `${bytes}b`];
  await harness.runAsAdmin("lvm", "lvcreate", ...options, harness.groups[0]);
  return `${harness.groups[0]}/${name}`;
}

/** Returns the LVs of volumes. */
async function volumeLvs(harness: Harness) {
  return (await harness.lvs()).filter(({ name }) => name.startsWith("vol-"));
}

/** Deletes what there is, and the pools of the driver, as an administrator does. */
async function cleanUp(harness: Harness): Promise<void> {
  const { entries } = await harness.csi.controller.listVolumes({});
  for (const { volume } of entries) await harness.csi.controller.deleteVolume({ volumeId: volume!.volumeId });
  await harness.waitUntilIdle();
  for (const { name, tags } of await harness.lvs()) {
    if (tags.includes("denolith.pool=made")) {
      await harness.runAsAdmin("lvm", "lvremove", "--yes", `${harness.groups[0]}/${name}`);
    }
  }
}

/** Commands without those that now and then ask the kernel how full pools are. */
function withoutStatusQueries(commands: readonly string[]): readonly string[] {
  return commands.filter((command) => !command.startsWith("dmsetup status"));
}

/** Returns the changes among commands, each with what it creates. */
function lvcreateCommands(commands: readonly string[]): string[] {
  return commands.filter((command) => command.startsWith("lvm lvcreate")).map((command) =>
    command.replace(/^lvm (\S+).* --type (\S+).*$/, "$1 $2")
  );
}
