/**
 * Contract: copies of thin volumes: at once within a pool, by blocks between thick and thin.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { content, copied, filled, from, isMounted, isSame, lvOf, snapshot, stageAt } from "./copies.ts";
import {
  assertFails,
  type Bench,
  blockCapability,
  contract,
  type CreateRequest,
  type Host,
  mountCapability,
  volumeRequest,
} from "./host.ts";

const MiB = 1n << 20n;

/** How dd writes the first 4 MiB of a device. */
const FOUR_MIB = ["bs=4194304", "count=1", "oflag=direct", "status=none"];

/** Registers all tests. */
export function thinCopiesContract(host: Host): void {
  thinCopyLivesContract(host);

  contract(
    host,
    "a copy that is made at once takes one change, one more for what it is, and one more to grow",
    async (bench) => {
      const volumeId = await bench.create({ ...thin(bench), volumeCapabilities: [blockCapability()] });
      await bench.settled();
      const request = { ...thin(bench), volumeCapabilities: [blockCapability()], ...from({ volumeId }) };
      const same = await bench.exec.during(async () => void await bench.create(request));
      assertEquals(changesOf(same), ["lvcreate", "lvchange"]);
      assert(same.filter((command) => command.includes("fullreport")).length <= 6, same.join("\n"));
      await bench.settled();
      const capacityRange = { requiredBytes: 64n * MiB };
      const larger = await bench.exec.during(async () => void await bench.create({ ...request, capacityRange }));
      assertEquals(changesOf(larger), ["lvcreate", "lvextend", "lvchange"]);
      await clear(bench);
    },
  );
}

/** Registers those that also hold where what a machine has becomes known a moment later, as in a cluster. */
export function thinCopyLivesContract(host: Host): void {
  for (const [fsType, mib] of [["ext4", 32n], ["xfs", 320n], ["btrfs", 320n]] as const) {
    contract(
      host,
      `a clone of a mounted thin ${fsType} volume is there at once, larger, and mounted beside it`,
      async (bench) => {
        const capability = mountCapability(fsType);
        const parameters = { volumeGroup: bench.groups[1], thinProvision: "yes" };
        const request = { parameters, volumeCapabilities: [capability] };
        const volumeId = await bench.create({ ...request, capacityRange: { requiredBytes: mib * MiB } });
        const staged = await stageAt(bench, volumeId, "original", capability);
        await Deno.writeTextFile(`${staged}/file`, "there");
        const larger = { capacityRange: { requiredBytes: (mib + 16n) * MiB } };
        const commands = await bench.exec.during(async () => {
          const { volume } = await bench.csi.controller.createVolume({
            ...volumeRequest(),
            ...request,
            ...larger,
            ...from({ volumeId }),
          });
          assertEquals(volume?.capacityBytes, (mib + 16n) * MiB);
          const beside = await stageAt(bench, volume!.volumeId, "copy", capability);
          if (await isMounted(bench, beside)) assertEquals(await Deno.readTextFile(`${beside}/file`), "there");
          const { usage } = await bench.csi.node.nodeGetVolumeStats({ volumeId: volume!.volumeId, volumePath: beside });
          assert(usage[0]!.total > (mib - 16n) * MiB * 3n / 4n, `${usage[0]!.total}`);
          const uuids = await Promise.all([volumeId, volume!.volumeId].map((id) => content(bench, id)));
          assert(uuids.every((tag) => tag.startsWith(`denolith.fs=formatted:${fsType}:`)) && uuids[0] !== uuids[1]);
          await bench.csi.node.nodeUnstageVolume({ volumeId: volume!.volumeId, stagingTargetPath: beside });
        });
        assertEquals(commands.filter((command) => command.startsWith("dd ") && command.includes("conv=")), []);
        await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: staged });
        await clear(bench);
      },
    );
  }

  contract(host, "a thin snapshot is restored at once, and both it and its volume may go then", async (bench) => {
    const volumeId = await filled(bench, thin(bench));
    const snapshotId = await snapshot(bench, volumeId);
    const { devicePath, size } = await lvOf(bench, volumeId);
    const cut = (await bench.lvs()).find(({ name }) => name.startsWith("snap-"))!.devicePath;
    await bench.admin("blkdiscard", "--zeroout", "--offset", "0", "--length", `${size}`, devicePath);
    const request = { ...volumeRequest(), ...thin(bench), volumeCapabilities: [blockCapability()] };
    const { volume } = await bench.csi.controller.createVolume({ ...request, ...from({ snapshotId }) });
    assertEquals(volume?.contentSource?.type.case, "snapshot");
    const [copy] = (await bench.lvs()).filter(({ name, origin }) => name.startsWith("vol-") && origin !== undefined);
    assertEquals(copy?.tags.filter((tag) => tag.startsWith("denolith.copied")), []);
    assert(await isSame(bench, copy!.devicePath, cut));
    assert(!await isSame(bench, copy!.devicePath, devicePath));
    await bench.admin("dd", "if=/dev/zero", `of=${copy!.devicePath}`, ...FOUR_MIB);
    assert(!await isSame(bench, copy!.devicePath, cut), "it is written to, and its source stays as it is");

    await bench.csi.controller.deleteVolume({ volumeId });
    await bench.csi.controller.deleteSnapshot({ snapshotId });
    await bench.settled();
    assertEquals((await bench.lvs()).filter(({ pool }) => pool !== undefined).map(({ name }) => name), [copy!.name]);
    assertEquals(await bench.create({ ...request, ...from({ snapshotId }) }), ownId(copy!.tags));
    const others: CreateRequest[] = [
      request,
      { ...request, ...from({ volumeId }) },
      { ...request, ...from({ snapshotId }), parameters: { volumeGroup: bench.groups[0] } },
      { ...request, ...from({ snapshotId }), capacityRange: { requiredBytes: 64n * MiB } },
    ];
    for (const other of others) await assertFails("ALREADY_EXISTS", bench.csi.controller.createVolume(other));
    await clear(bench);
  });

  contract(
    host,
    "a copy for which its pool may not promise the whole size is refused, and nothing is made",
    async (bench) => {
      const { parameters } = thin(bench);
      const request = { parameters: { ...parameters, thinPoolSize: "128Mi" }, volumeCapabilities: [blockCapability()] };
      const volumeId = await bench.create({ ...request, capacityRange: { requiredBytes: 64n * MiB } });
      const of = (mib: bigint) => ({ ...request, ...from({ volumeId }), capacityRange: { requiredBytes: mib * MiB } });
      await assertFails("RESOURCE_EXHAUSTED", bench.create(of(96n)), "left in thin pool");
      await bench.settled();
      assertEquals((await bench.lvs()).filter(({ pool }) => pool !== undefined).length, 1);
      const tries = await Promise.allSettled([1, 2, 3].map(() => bench.create(of(64n))));
      assertEquals(tries.filter(({ status }) => status === "fulfilled").length, 1, "also when many ask at once");
      await assertFails("RESOURCE_EXHAUSTED", bench.create(of(64n)), "thin pool");
      await clear(bench);
    },
  );

  contract(host, "a thin volume is copied to a thick one and back, without what was never written", async (bench) => {
    const { parameters } = thin(bench, { thinPoolSize: "256Mi" });
    const volumeId = await bench.create({ parameters, volumeCapabilities: [blockCapability()] });
    await stageAt(bench, volumeId, "block", blockCapability());
    const original = await lvOf(bench, volumeId);
    await bench.admin("dd", "if=/dev/urandom", `of=${original.devicePath}`, ...FOUR_MIB);
    const request = { volumeCapabilities: [blockCapability()] };
    let thick = "";
    const there = await bench.exec.during(async () => {
      thick = await copied(bench, { ...request, parameters: { volumeGroup: bench.groups[0] } }, { volumeId });
    });
    const cut = there.find((command) => command.includes("--name cut-"));
    assert(cut !== undefined && !cut.includes("--size"), "what keeps it as it was is thin, too");
    assertEquals((await lvOf(bench, thick)).pool, undefined);
    assert(await isSame(bench, (await lvOf(bench, thick)).devicePath, original.devicePath));
    let back = "";
    const commands = await bench.exec.during(async () => {
      back = await copied(bench, { ...request, parameters }, { volumeId: thick });
    });
    assert(commands.some((command) => command.startsWith("dd ") && command.includes(",sparse")), commands.join("\n"));
    const lv = await lvOf(bench, back);
    assertEquals(lv.pool, original.pool);
    assert(await isSame(bench, lv.devicePath, original.devicePath));
    await bench.settled();
    const lvs = await bench.lvs();
    assertEquals(lvs.filter(({ name }) => name.startsWith("cut-")), []);
    const { thinPool } = lvs.find(({ name }) => name === original.pool)!;
    assert(thinPool!.dataPercent! < 8, `the pool is ${thinPool!.dataPercent} % full`);
    await clear(bench);
  });
}

/** A request for a thin volume in the first group. */
function thin(bench: Bench, parameters: Record<string, string> = {}) {
  return { parameters: { volumeGroup: bench.groups[0], thinProvision: "yes", ...parameters } };
}

/** The volume that an LV is, by its tags. */
function ownId(tags: readonly string[]): string {
  return tags.find((tag) => tag.startsWith("denolith.volume="))!.slice("denolith.volume=".length);
}

/** The changes among commands, each by lvm's name for it. */
function changesOf(commands: readonly string[]): string[] {
  return commands.filter((command) => /^lvm (?!fullreport)/.test(command)).map((command) => command.split(" ")[1]!);
}

/** Deletes what there is, and the pools of the driver, as an administrator does; makes sure that nothing else is left. */
async function clear(bench: Bench): Promise<void> {
  const { entries } = await bench.csi.controller.listVolumes({});
  for (const { volume } of entries) await bench.csi.controller.deleteVolume({ volumeId: volume!.volumeId });
  const groups = await bench.report();
  for (const { name, lvs } of groups) {
    const rest = lvs.filter(({ thinPool }) => thinPool === undefined);
    assertEquals(rest.map(({ name }) => name), []);
    for (const pool of lvs) await bench.admin("lvm", "lvremove", "--yes", `${name}/${pool.name}`);
  }
}
