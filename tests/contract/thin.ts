/**
 * Contract: thin volumes, their pools and their snapshots.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { assertFails, type Bench, contract, type Host } from "./host.ts";

const MiB = 1n << 20n;

/** Registers all tests. */
export function thinContract(host: Host): void {
  thinLivesContract(host);

  contract(
    host,
    "createVolume() makes a thin pool when it is first needed, and then one change a volume",
    async (bench) => {
      await bench.settled();
      const first = await bench.exec.during(async () => void await thin(bench));
      assertEquals(changesOf(first), ["lvcreate thin-pool", "lvcreate thin"]);
      await bench.settled();
      const second = await bench.exec.during(async () => void await thin(bench));
      assertEquals(quiet(second).map((command) => command.split(" ").slice(0, 2).join(" ")), [
        "lvm fullreport",
        "lvm lvcreate",
      ]);
      const [pool] = (await bench.lvs()).filter(({ thinPool }) => thinPool !== undefined);
      assertEquals(pool?.name, `${bench.groups[0]}_thinpool`);
      assert(pool!.tags.includes("denolith.pool=made"));
      assert(pool!.thinPool!.zeroes);
      assertEquals((await volumesOf(bench)).map((lv) => lv.pool), [pool!.name, pool!.name]);
      await clear(bench);
    },
  );

  contract(host, "a pool's own tag says how much it may promise", async (bench) => {
    const path = await poolOf(bench, "mine", 128n * MiB);
    const parameters = { thinPool: "mine" };
    await assertFails(
      "RESOURCE_EXHAUSTED",
      thin(bench, { requiredBytes: 200n * MiB }, parameters),
      "left in thin pool",
    );
    await bench.admin("lvm", "lvchange", "--addtag", "denolith.overcommit=2.5", path);
    await thin(bench, { requiredBytes: 200n * MiB }, parameters);
    const { availableCapacity } = await bench.csi.controller.getCapacity({
      parameters: { volumeGroup: bench.groups[0], thinProvision: "yes", thinPool: "mine" },
    });
    assertEquals(availableCapacity, 120n * MiB);
    await clear(bench);
    assertEquals((await bench.lvs()).map(({ name }) => name), ["mine"], "a pool of somebody else stays");
    await bench.admin("lvm", "lvremove", "--yes", path);
  });

  contract(host, "what cannot be thin is refused, with what to do", async (bench) => {
    await assertFails("INVALID_ARGUMENT", thin(bench, undefined, { thinProvision: "perhaps" }), "no or yes");
    await assertFails("INVALID_ARGUMENT", thin(bench, undefined, { thinProvision: "no", thinPool: "p" }), "thinPool");
    await assertFails("INVALID_ARGUMENT", thin(bench, undefined, { thinPool: "-p" }), "thinPool");
    await assertFails("INVALID_ARGUMENT", thin(bench, undefined, { thinPool: "p_tdata" }), "thinPool");
    await assertFails(
      "INVALID_ARGUMENT",
      thin(bench, undefined, { thinPool: "p", thinPoolSize: "1Gi" }),
      "thinPoolSize",
    );
    await assertFails("INVALID_ARGUMENT", thin(bench, undefined, { thinPoolSize: "most" }), "thinPoolSize");
    await assertFails(
      "RESOURCE_EXHAUSTED",
      thin(bench, { requiredBytes: 32n * MiB }, { thinPool: "none" }),
      "no thin pool none",
    );
    const path = await poolOf(bench, "raw", 64n * MiB, "n");
    await assertFails(
      "FAILED_PRECONDITION",
      thin(bench, { requiredBytes: 32n * MiB }, { thinPool: "raw" }),
      "--zero y",
    );
    await bench.admin("lvm", "lvremove", "--yes", path);
    assertEquals(await bench.lvs(), []);
  });
}

/** Registers those that also hold where what a machine has becomes known a moment later, as in a cluster. */
export function thinLivesContract(host: Host): void {
  contract(host, "a thin volume is staged, published, grown while it is in use, and deleted", async (bench) => {
    const volumeId = await thin(bench, { requiredBytes: 32n * MiB });
    const [lv] = await volumesOf(bench);
    await bench.admin("lvm", "lvchange", "--activate", "n", `${bench.groups[0]}/${lv!.name}`);
    const stagingTargetPath = await bench.stage(volumeId);
    const targetPath = await bench.publish(volumeId);
    const capacityRange = { requiredBytes: 64n * MiB };
    const grown = await bench.csi.controller.controllerExpandVolume({ volumeId, capacityRange });
    assertEquals([grown.capacityBytes, grown.nodeExpansionRequired], [64n * MiB, true]);
    await bench.csi.node.nodeExpandVolume({ volumeId, volumePath: targetPath });
    await bench.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
    await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
    await bench.csi.controller.deleteVolume({ volumeId });
    assertEquals(await volumesOf(bench), []);
    await clear(bench);
  });

  contract(host, "a pool promises no more than its size, also when many ask at once", async (bench) => {
    const parameters = { thinPoolSize: "256Mi" };
    await thin(bench, { requiredBytes: 64n * MiB }, parameters);
    const capacity = async () => {
      const { availableCapacity, maximumVolumeSize } = await bench.csi.controller.getCapacity({
        parameters: { volumeGroup: bench.groups[0], thinProvision: "yes" },
      });
      return [availableCapacity, maximumVolumeSize];
    };
    assertEquals(await capacity(), [192n * MiB, 192n * MiB]);
    const tries = await Promise.allSettled(Array.from({ length: 5 }, () => thin(bench, { requiredBytes: 64n * MiB })));
    assertEquals(tries.filter(({ status }) => status === "fulfilled").length, 3);
    await assertFails("RESOURCE_EXHAUSTED", thin(bench, { requiredBytes: 64n * MiB }), "thin pool");
    assertEquals(await capacity(), [0n, undefined]);
    const [{ volume } = { volume: undefined }] = (await bench.csi.controller.listVolumes({})).entries;
    const { volumeId } = volume!;
    const capacityRange = { requiredBytes: 128n * MiB };
    await assertFails(
      "OUT_OF_RANGE",
      bench.csi.controller.controllerExpandVolume({ volumeId, capacityRange }),
      "may promise",
    );
    const sourceVolumeId = volumeId;
    await assertFails(
      "RESOURCE_EXHAUSTED",
      bench.csi.controller.createSnapshot({ name: "too much", sourceVolumeId }),
      "may promise",
    );
    await clear(bench);
  });

  contract(
    host,
    "a repeated request finds the thin volume, and another kind of volume is another one",
    async (bench) => {
      const request = { name: "same", capacityRange: { requiredBytes: 32n * MiB } };
      const parameters = { volumeGroup: bench.groups[0], thinProvision: "yes" };
      const volumeId = await bench.create({ ...request, parameters });
      assertEquals(await bench.create({ ...request, parameters }), volumeId);
      const thick = bench.create({ ...request, parameters: { volumeGroup: bench.groups[0] } });
      await assertFails("ALREADY_EXISTS", thick, "it is thin");
      const elsewhere = bench.create({ ...request, parameters: { ...parameters, thinPool: "other" } });
      await assertFails("ALREADY_EXISTS", elsewhere, "other");
      await clear(bench);
    },
  );

  contract(host, "a thin snapshot takes no store, and outlives its volume", async (bench) => {
    const sourceVolumeId = await thin(bench, { requiredBytes: 32n * MiB });
    const stagingTargetPath = await bench.stage(sourceVolumeId);
    const { snapshot } = await bench.csi.controller.createSnapshot({ name: "thin", sourceVolumeId });
    const { snapshotId } = snapshot!;
    assertEquals([snapshot?.sizeBytes, snapshot?.readyToUse], [32n * MiB, true]);
    assertEquals((await bench.csi.controller.createSnapshot({ name: "thin", sourceVolumeId })).snapshot, snapshot);
    const [lv] = (await bench.lvs()).filter(({ name }) => name.startsWith("snap-"));
    assertEquals([lv?.pool, lv?.size, lv?.active], [`${bench.groups[0]}_thinpool`, 32n * MiB, true]);
    const path = `${bench.groups[0]}/${lv!.name}`;
    await bench.admin("lvm", "lvchange", "--activate", "n", path);
    await bench.admin("lvm", "lvchange", "--activate", "y", path);
    assert((await bench.lvs()).find(({ name }) => name === lv!.name)?.active, "it is activated like any other");

    const capacityRange = { requiredBytes: 64n * MiB };
    await bench.csi.controller.controllerExpandVolume({ volumeId: sourceVolumeId, capacityRange });
    await bench.csi.node.nodeUnstageVolume({ volumeId: sourceVolumeId, stagingTargetPath });
    await bench.csi.controller.deleteVolume({ volumeId: sourceVolumeId });
    await bench.settled();
    assertEquals(await volumesOf(bench), []);
    const found = await bench.csi.controller.getSnapshot({ snapshotId });
    assertEquals(found.snapshot, snapshot);
    await bench.csi.controller.deleteSnapshot({ snapshotId });
    await clear(bench);
  });
}

/** A thin volume in the first group. */
async function thin(
  bench: Bench,
  capacityRange: { requiredBytes?: bigint } = { requiredBytes: 32n * MiB },
  parameters: Record<string, string> = {},
): Promise<string> {
  const volumeGroup = bench.groups[0];
  return await bench.create({ capacityRange, parameters: { volumeGroup, thinProvision: "yes", ...parameters } });
}

/** Makes a pool as an administrator does, and answers its path. */
async function poolOf(bench: Bench, name: string, bytes: bigint, zero = "y"): Promise<string> {
  const options = ["--yes", "--type", "thin-pool", "--zero", zero, "--name", name, "--size", `${bytes}b`];
  await bench.admin("lvm", "lvcreate", ...options, bench.groups[0]);
  return `${bench.groups[0]}/${name}`;
}

/** The LVs of volumes. */
async function volumesOf(bench: Bench) {
  return (await bench.lvs()).filter(({ name }) => name.startsWith("vol-"));
}

/** Deletes what there is, and the pools of the driver, as an administrator does. */
async function clear(bench: Bench): Promise<void> {
  const { entries } = await bench.csi.controller.listVolumes({});
  for (const { volume } of entries) await bench.csi.controller.deleteVolume({ volumeId: volume!.volumeId });
  await bench.settled();
  for (const { name, tags } of await bench.lvs()) {
    if (tags.includes("denolith.pool=made")) {
      await bench.admin("lvm", "lvremove", "--yes", `${bench.groups[0]}/${name}`);
    }
  }
}

/** Commands without those that now and then ask the kernel how full pools are. */
function quiet(commands: readonly string[]): readonly string[] {
  return commands.filter((command) => !command.startsWith("dmsetup status"));
}

/** The changes among commands, each with what it makes. */
function changesOf(commands: readonly string[]): string[] {
  return commands.filter((command) => command.startsWith("lvm lvcreate")).map((command) =>
    command.replace(/^lvm (\S+).* --type (\S+).*$/, "$1 $2")
  );
}
