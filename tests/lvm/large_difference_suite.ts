/**
 * Lists the difference between two snapshots of a thin volume of 1 TiB with a million changed ranges, and prints how long that
 * takes beside thin_delta(8) alone, and the memory of the driver. `deno test` runs this in the guest, as one bundle. DATA_DISK
 * names an empty disk, DRIVER the driver.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { HostExec } from "../../lvm/exec.ts";
import { Lvm } from "../../lvm/client/client.ts";
import { connect } from "../contract/helpers/csi_client.ts";
import { blockCapability } from "../contract/helpers/host.ts";
import { run } from "../demo/command.ts";
import { DriverProcess } from "../demo/driver_process.ts";

const GROUP = "large";
const POOL = `${GROUP}/pool`;
const MIB = 1n << 20n;

/** The size of the volume, whose blocks have 64 KiB. */
const VOLUME_BYTES = 1n << 40n;

/** The ranges in which the snapshots differ: of each 16 blocks, the volume has two, and one of them was changed. */
const RANGES = 1_000_000;

/** The most that the memory of the driver may grow by a list, in MiB: some windows, whatever the number of ranges is. */
const MAX_GROWTH_MIB = 64;

await run("make a group", "vgcreate", ["--yes", GROUP, Deno.env.get("DATA_DISK") ?? ""]);
const pool = ["--type", "thin-pool", "--chunksize", "64k", "--poolmetadatasize", "512m", "--zero", "y"];
await run("make a pool", "lvcreate", [
  "--yes",
  ...pool,
  "--size",
  "210g",
  "--addtag",
  "denolith.overcommit=100",
  "--name",
  "pool",
  GROUP,
]);

/** Starts the driver. */
async function startDriver(folder: string) {
  const socket = `${folder}/csi.sock`;
  const flags = ["--endpoint", socket, "--mount-roots", folder, "--volume-groups", GROUP, "--node-id", "n"];
  const driver = await DriverProcess.start({ command: [Deno.env.get("DRIVER")!, "standalone", ...flags], socket });
  const csi = connect(socket);
  return {
    driver,
    csi,
    [Symbol.asyncDispose]: async () => {
      csi[Symbol.dispose]();
      await driver[Symbol.asyncDispose]();
    },
  };
}

/** Returns the number of a thin LV in the pool, by a tag. */
async function thinIdOf(tag: string): Promise<bigint> {
  const lvs = (await new Lvm(new HostExec()).report()).flatMap(({ lvs }) => lvs);
  return lvs.find(({ tags }) => tags.includes(tag))!.segment.thinId!;
}

/** Yields tables of the pool: what changed is in other blocks of the pool. */
function* tables(
  ids: { readonly volume: bigint; readonly base: bigint; readonly target: bigint },
  transaction: string,
) {
  yield `<superblock uuid="" time="2" transaction="${transaction}" flags="0" version="2" data_block_size="128" nr_data_blocks="${
    210 * 16384
  }">\n`;
  for (const [name, id] of Object.entries(ids)) {
    yield `<device dev_id="${id}" mapped_blocks="${2 * RANGES}" transaction="0" creation_time="0" snap_time="2">\n`;
    for (let range = 0, lines = ""; range < RANGES; range++) {
      const changed = name === "base" ? 2 * range + 1 : 2 * RANGES + range;
      lines += `<single_mapping origin_block="${16 * range}" data_block="${2 * range}" time="0"/>\n` +
        `<single_mapping origin_block="${16 * range + 1}" data_block="${changed}" time="${
          name === "base" ? 0 : 1
        }"/>\n`;
      if (lines.length < 1 << 16 && range < RANGES - 1) continue;
      yield lines;
      lines = "";
    }
    yield "</device>\n";
  }
  yield "</superblock>\n";
}

/** Replaces the tables of the pool, which is inactive. */
async function replaceTables(lines: Iterable<string>): Promise<void> {
  await run("make an LV", "lvcreate", ["--yes", "--size", "2g", "--name", "xml", GROUP]);
  await run("make a filesystem", "mkfs.ext4", ["-q", `/dev/mapper/${GROUP}-xml`]);
  const folder = await Deno.makeTempDir();
  await run("mount it", "mount", [`/dev/mapper/${GROUP}-xml`, folder]);
  {
    using file = await Deno.create(`${folder}/xml`);
    const writer = file.writable.getWriter();
    for (const each of lines) await writer.write(new TextEncoder().encode(each));
    await writer.close();
  }
  await run("make an LV", "lvcreate", ["--yes", "--size", "512m", "--name", "tables", GROUP]);
  await run("write the tables", "thin_restore", ["-i", `${folder}/xml`, "-o", `/dev/mapper/${GROUP}-tables`]);
  await run("unmount", "umount", [folder]);
  await run("remove the file", "lvremove", ["--yes", `${GROUP}/xml`]);
  await run("deactivate", "lvchange", ["--activate", "n", `${GROUP}/tables`]);
  await run("swap the tables", "lvconvert", ["--yes", "--thinpool", POOL, "--poolmetadata", `${GROUP}/tables`]);
}

/** Returns the resident memory of a process, in MiB: now, and at its highest. */
async function memoryOf(pid: number): Promise<{ now: number; highest: number }> {
  const status = await Deno.readTextFile(`/proc/${pid}/status`);
  const read = (name: string) => Math.round(Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(status)![1]) / 1024);
  return { now: read("VmRSS"), highest: read("VmHWM") };
}

Deno.test("a difference of a million ranges is listed with little memory [lvm]", async () => {
  const folder = await Deno.makeTempDir({ prefix: "denolith-large-" });
  const ids: string[] = [];
  {
    await using first = await startDriver(folder);
    const { controller } = first.csi;
    const request = {
      name: "v",
      capacityRange: { requiredBytes: VOLUME_BYTES },
      parameters: { thinProvision: "yes", thinPool: "pool" },
    };
    const { volume } = await controller.createVolume({ ...request, volumeCapabilities: [blockCapability()] });
    for (const name of ["base", "target"]) {
      const { snapshot } = await controller.createSnapshot({ name, sourceVolumeId: volume!.volumeId });
      ids.push(snapshot!.snapshotId);
    }
    ids.push(volume!.volumeId);
  }
  const [base, target, volume] = ids as [string, string, string];
  const thinIds = {
    volume: await thinIdOf(`denolith.volume=${volume}`),
    base: await thinIdOf(`denolith.snapshot=${base}`),
    target: await thinIdOf(`denolith.snapshot=${target}`),
  };
  const transaction = (await run("read", "lvs", ["--noheadings", "-o", "transaction_id", POOL])).trim();
  await run("deactivate", "vgchange", ["--activate", "n", GROUP]);
  await replaceTables(tables(thinIds, transaction));
  await run("activate", "vgchange", ["--activate", "y", "--ignoreactivationskip", GROUP]);

  const device = `${GROUP}-pool-tpool`;
  await run("reserve", "dmsetup", ["message", device, "0", "reserve_metadata_snap"]);
  const thinDelta = ["--metadata-snap", "--thin1", `${thinIds.base}`, "--thin2", `${thinIds.target}`];
  const delta = async () => {
    const start = performance.now();
    await run("compare", "sh", ["-c", `thin_delta ${thinDelta.join(" ")} /dev/mapper/${GROUP}-pool_tmeta > /dev/null`]);
    return performance.now() - start;
  };
  const alone = [await delta(), await delta()];
  await run("release", "dmsetup", ["message", device, "0", "release_metadata_snap"]);

  await using second = await startDriver(folder);
  const { csi: { snapshotMetadata }, driver } = second;
  const before = await memoryOf(driver.pid);
  const listed: number[] = [];
  for (let time = 0; time < 2; time++) {
    let [ranges, bytes] = [0, 0n];
    const start = performance.now();
    for await (
      const { blockMetadata } of snapshotMetadata.getMetadataDelta({ baseSnapshotId: base, targetSnapshotId: target })
    ) {
      ranges += blockMetadata.length;
      for (const { sizeBytes } of blockMetadata) bytes += sizeBytes;
    }
    listed.push(performance.now() - start);
    assertEquals([ranges, bytes], [RANGES, BigInt(RANGES) * 65536n]);
  }
  const after = await memoryOf(driver.pid);
  const seconds = (times: readonly number[]) => times.map((ms) => (ms / 1000).toFixed(1)).join(" and ");
  console.log(
    `${VOLUME_BYTES / MIB} MiB, ${RANGES} ranges: thin_delta alone ${seconds(alone)} s, the list ${
      seconds(listed)
    } s ` +
      `(${Math.round(Number(VOLUME_BYTES / MIB) / (Math.min(...listed) / 1000))} MiB/s of the volume); ` +
      `memory of the driver ${before.now} MiB before, ${after.highest} MiB at its highest, ${after.now} MiB after`,
  );
  assert(after.highest - before.now <= MAX_GROWTH_MIB, `the driver took ${after.highest - before.now} MiB more`);
});
