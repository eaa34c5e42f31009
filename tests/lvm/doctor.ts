/**
 * The doctor and the status on real LVM: real sicknesses are named, and the remedies that are commands heal them.
 *
 * Other tests may run on this machine at the same time, on groups of their own: what is for all of LVM is made so that it
 * does not concern them.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { parseGroupList } from "../../mod.ts";
import { type Diagnosis, examine } from "../../lvm/doctor/doctor.ts";
import type { Exec, Program } from "../../lvm/exec.ts";
import type { Finding } from "../../lvm/doctor/finding.ts";
import { volumeIdOf } from "../../lvm/ids.ts";
import { readStatus, type Status } from "../../lvm/status/status.ts";
import { usedTag } from "../../lvm/model/tags.ts";
import { type Bench, contract, type Host } from "../contract/host.ts";

const DRIVER = "test.denolith.dev";
const LVM_CONF = "/etc/lvm/lvmlocal.conf";
const MiB = 1n << 20n;

/** How long commands are waited for, in milliseconds: longer than the doctor would on a machine that is not emulated. */
const PATIENCE_MS = 60_000;

/** How long LVM is waited for where it waits in vain, in milliseconds. */
const IN_VAIN_MS = 12_000;

/** Registers the tests. */
export function doctorTests(host: Host): void {
  contract(host, "doctor finds nothing wrong on a healthy machine, and status tells what there is", async (bench) => {
    const volumeId = await bench.create();
    const stagingTargetPath = await bench.stage(volumeId);
    const { snapshot } = await bench.csi.controller.createSnapshot({
      name: "cut",
      sourceVolumeId: volumeId,
      parameters: {},
    });
    const { checks } = await sicknesses(bench, []);
    assertMatch(checks.find(({ check }) => check === "kernel")!.summary, /linear, snapshot, snapshot-origin/);
    assertMatch(checks.find(({ check }) => check === "udev")!.summary, /udev running, 2 device nodes/);

    const status = await statusOf(bench);
    const [volume] = status.volumes;
    assertEquals([volume?.id, volume?.state, volume?.size, volume?.content, volume?.contentState, volume?.active], [
      volumeId,
      "Ready",
      32n * MiB,
      "ext4",
      "formatted",
      true,
    ]);
    assertEquals(volume?.mounts, [{ target: stagingTargetPath, readOnly: false }]);
    assert(volume!.usage!.bytes.total > 20n * MiB, "it says how full the volume is");
    assertEquals(status.snapshots.map(({ id, source, state, size }) => [id, source, state, size]), [
      [snapshot!.snapshotId, volumeId, "Ready", 32n * MiB],
    ]);
    const group = status.groups.find(({ name }) => name === volume!.group)!;
    assertEquals([group.disks, group.used], [{ count: 1, missing: 0 }, 32n * MiB + status.snapshots[0]!.storeSize]);
    assert(group.metadata.free > 400_000n && group.metadata.free < group.metadata.size);

    await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
    await bench.csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
    await bench.csi.controller.deleteVolume({ volumeId });
  });

  contract(host, "doctor names what crashes and accidents left, and status shows it", async (bench) => {
    const volumeId = await bench.create();
    const { path, tags, devicePath } = await bench.onlyLv();
    const [group] = path.split("/") as [string];
    const { snapshot } = await bench.csi.controller.createSnapshot({
      name: "small",
      sourceVolumeId: volumeId,
      parameters: { snapSize: "4Mi" },
    });
    await bench.admin("dd", "if=/dev/zero", `of=${devicePath}`, "bs=1M", "count=8", "oflag=direct", "status=none");
    const lostId = volumeIdOf("gone");
    const record = usedTag(DRIVER, lostId, "AAAAAA-1111-2222-3333-4444-5555-BBBBBB");
    await bench.admin("lvm", "vgchange", "--addtag", record, group);
    const half = await bench.create();
    const halfLv = (await bench.lvs()).find((lv) => lv.tags.includes(`denolith.volume=${half}`))!;
    const halfPath = `${group}/${halfLv.name}`;
    const formatting = "denolith.fs=formatting:ext4:00000000-0000-4000-8000-000000000000";
    await bench.admin("lvm", "lvchange", "--deltag", "denolith.fs=wanted:ext4", "--addtag", formatting, halfPath);
    const name = halfLv.devicePath.replace("/dev/mapper/", "");
    await bench.admin("dmsetup", "suspend", name);

    const { findings } = await sicknesses(bench, [
      ["leftovers", "error", name],
      ["leftovers", "error", lostId],
      ["leftovers", "warning", `${group}/snap-${snapshot!.snapshotId.slice(3)}`],
    ]);
    assert(findings.some(({ on, found }) => on === half && /begun and not finished/.test(found)));
    const status = await statusOf(bench);
    assertEquals(
      status.volumes.map(({ id, state }) => `${id} ${state}`),
      [
        `${volumeId} Ready`,
        `${half} Ready`,
        `${lostId} Lost`,
      ].sort(),
    );
    assertEquals(status.snapshots.map(({ state }) => state), ["Overflowed"]);
    assertEquals(status.orphans.map(({ kind, on }) => [kind, on]), [["record", record]]);
    await heal(bench, findings, name);
    await bench.admin("lvm", "vgchange", "--deltag", record, group);

    const copy = tags.flatMap((tag) => ["--addtag", tag]);
    await bench.admin("lvm", "lvcreate", "--yes", "--name", "copy", "--size", "4m", ...copy, group);
    const again = await sicknesses(bench, [
      ["leftovers", "error", path],
      ["leftovers", "error", `${group}/copy`],
      ["leftovers", "warning", `${group}/snap-${snapshot!.snapshotId.slice(3)}`],
    ]);
    await heal(bench, again.findings, `${group}/copy`);
    await bench.csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
    await bench.admin("lvm", "lvremove", "--yes", `${group}/copy`);
    for (const id of [half, volumeId]) await bench.csi.controller.deleteVolume({ volumeId: id });
  });

  contract(
    host,
    "status and doctor tell thin pools: what they have and promised, and when they are full",
    async (bench) => {
      const [group] = bench.groups;
      const pool = `${group}/theirs`;
      const make = ["--yes", "--type", "thin-pool", "--name", "theirs", "--size", "32m", group];
      await bench.admin("lvm", "lvcreate", ...make);
      await bench.admin("lvm", "lvchange", "--addtag", "denolith.overcommit=2", pool);
      const parameters = { volumeGroup: group, thinProvision: "yes", thinPool: "theirs", readIops: "500" };
      const volumeId = await bench.create({ capacityRange: { requiredBytes: 48n * MiB }, parameters });
      const roomy = await statusOf(bench);
      const { dataPercent, metadataPercent, ...told } = roomy.pools.find(({ name }) => name === "theirs")!;
      assert(dataPercent === 0 && metadataPercent! > 0, `${dataPercent} ${metadataPercent}`);
      assertEquals(told, {
        ...{ group, name: "theirs", owned: false, size: 32n * MiB, metadataSize: told.metadataSize, overcommit: "2" },
        ...{ promised: 48n * MiB, promisable: 16n * MiB, active: true, state: "Ready" },
      });
      const volume = roomy.volumes.find(({ id }) => id === volumeId)!;
      assertEquals([volume.pool, volume.poolState, volume.limits], ["theirs", undefined, { readIops: 500n }]);

      const { devicePath } = (await bench.lvs()).find(({ tags }) => tags.includes(`denolith.volume=${volumeId}`))!;
      await bench.admin(
        "dd",
        "if=/dev/urandom",
        `of=${devicePath}`,
        "bs=1M",
        "count=32",
        "oflag=direct",
        "status=none",
      );
      await sicknesses(bench, [["pools", "error", pool]]);
      const full = await statusOf(bench);
      assertEquals(full.pools.map(({ state }) => state), ["Full"]);
      assertMatch(full.volumes.find(({ id }) => id === volumeId)!.problem!, /theirs of 32 MiB is 100 % full/);
      await bench.csi.controller.deleteVolume({ volumeId });
      await bench.settled();
      await bench.admin("lvm", "lvremove", "--yes", pool);
      await sicknesses(bench, []);
    },
  );

  contract(host, "doctor names a group that is exported, and one of another host", async (bench) => {
    const [small, large] = bench.groups;
    await bench.admin("lvm", "vgexport", small);
    await bench.admin("lvm", "vgchange", "--yes", "--systemid", "otherhost", large);
    const { findings } = await sicknesses(bench, [["groups", "error", small], ["groups", "error", large]]);
    for (const group of bench.groups) await heal(bench, findings, group);
    await sicknesses(bench, []);
  });

  contract(
    host,
    "a disk in no group is no matter; doctor names one that is missing, and the volumes on it",
    async (bench) => {
      const [small] = bench.groups;
      const file = await Deno.makeTempFile();
      await Deno.truncate(file, 64 << 20);
      const loop = (await onHost("losetup", "--find", "--show", file)).trim();
      await bench.admin("lvm", "pvcreate", "--yes", loop);
      await sicknesses(bench, []);
      await bench.csi.controller.deleteVolume({ volumeId: await bench.create() });
      await bench.admin("lvm", "vgextend", "--yes", small, loop);
      const tags = ["--addtag", `denolith=${DRIVER}`, "--addtag", `denolith.volume=${volumeIdOf("two")}`, "--addtag"];
      await bench.admin(
        "lvm",
        "lvcreate",
        "--yes",
        "--name",
        "two",
        "--size",
        "8m",
        ...tags,
        "denolith.fs=raw",
        small,
        loop,
      );
      await bench.admin("lvm", "lvchange", "--activate", "n", `${small}/two`);
      await onHost("losetup", "--detach", loop);
      try {
        const { findings } = await sicknesses(bench, [["groups", "error", small]]);
        assertMatch(findings.find(({ on }) => on === small)!.found, /1 of its 2 disks are missing .*on them are two/);
        const status = await statusOf(bench);
        assertEquals(status.volumes.map(({ state, lv }) => [state, lv]), [["Partial", "two"]]);
        assertEquals(status.groups.find(({ name }) => name === small)?.disks, { count: 2, missing: 1 });
      } finally {
        await bench.admin("lvm", "vgreduce", "--removemissing", "--force", small);
        await Deno.remove(file);
      }
    },
  );

  contract(host, "doctor names the settings that hide a disk and keep volumes inactive", async (bench) => {
    const [small, large] = bench.groups;
    const disk = (await bench.admin("lvm", "vgs", "--noheadings", "--options", "pv_name", small)).trim();
    await withSettings(
      `devices { global_filter = [ "r|^${disk}$|" ] }\nactivation { volume_list = [ ${
        [...BESIDE, small].map((name) => `"${name}"`).join(", ")
      } ] }\n`,
      async () => {
        const { findings } = await sicknesses(bench, [
          ["filters", "warning", disk],
          ["filters", "error", large],
          ["groups", "error", small],
        ]);
        assertMatch(findings[0]!.found, /global_filter = \["r\|/);
      },
    );
  });

  contract(host, "doctor names a held lock, and a program that is missing", async (bench) => {
    await withProgramHidden("mkfs.xfs", () => sicknesses(bench, [["tools", "warning", "mkfs.xfs"]]));
    const holder = new Deno.Command("flock", {
      // without a shell and with one process only: killing it frees the lock
      args: ["--exclusive", "--no-fork", `/run/lock/lvm/V_${bench.groups[0]}`, "sleep", "60"],
    }).spawn();
    try {
      await sicknesses(bench, [["locks", "error", "lvm"]], { lvmDeadlineMs: IN_VAIN_MS });
    } finally {
      holder.kill("SIGKILL");
      await holder.status;
    }
  });
}

/** The groups of what runs beside these tests. */
const BESIDE = ["sanity-mount", "sanity-block", "confined", "deaths", "erasure-small", "erasure-large"];

/** Whether something is of one of those groups, by its path or its device's name: it comes and goes between two commands. */
function isBeside(on: string): boolean {
  return BESIDE.some((group) => on.startsWith(`${group}/`) || on.startsWith(`${group.replaceAll("-", "--")}-`));
}

/** Looks at the machine; makes sure of what is found that is worse than a note. */
async function sicknesses(
  bench: Bench,
  expected: [string, string, string][],
  { lvmDeadlineMs = PATIENCE_MS } = {},
): Promise<Diagnosis> {
  const groups = parseGroupList(bench.groups.join(","));
  let diagnosis: Diagnosis | undefined;
  const exec: Exec = {
    run: (command) =>
      bench.exec.run({ ...command, deadlineMs: command.program === "lvm" ? lvmDeadlineMs : PATIENCE_MS }),
    settled: () => bench.exec.settled(),
  };
  const commands = await bench.exec.during(async () => {
    diagnosis = await examine({ exec, driver: DRIVER, groups });
  });
  const grave = diagnosis!.findings.filter(({ level, on }) => level !== "info" && !isBeside(on));
  assertEquals(
    grave.map(({ check, level, on }) => [check, level, on]).sort(),
    expected.toSorted(),
    grave.map(({ found }) => found).join("\n"),
  );
  assert(commands.length <= 15, commands.join("\n"));
  return diagnosis!;
}

/** Runs the command that a finding has as its remedy, without the remark after it. */
async function heal(bench: Bench, findings: readonly Finding[], on: string): Promise<void> {
  const remedy = findings.find((finding) => finding.on === on && finding.level !== "info")!.remedy!.replace(
    / {3}\(.*$/,
    "",
  );
  // quotes group words, as a shell has it
  const [program, ...args] = [...remedy.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map((match) =>
    match[1] ?? match[2] ?? match[3]!
  );
  const isLvm = /^(?:lv|vg|pv)/.test(program!);
  await bench.admin(isLvm ? "lvm" : program as Program, ...(isLvm ? [program!, ...args] : args));
}

function statusOf(bench: Bench): Promise<Status> {
  return readStatus({ exec: bench.exec, driver: DRIVER, groups: parseGroupList(bench.groups.join(",")) });
}

async function withSettings(more: string, body: () => Promise<unknown>): Promise<void> {
  const before = await Deno.readTextFile(LVM_CONF);
  try {
    await Deno.writeTextFile(LVM_CONF, `${before}\n${more}`);
    await body();
  } finally {
    await Deno.writeTextFile(LVM_CONF, before);
  }
}

async function withProgramHidden(program: Program, body: () => Promise<unknown>): Promise<void> {
  const path = `/usr/sbin/${program}`;
  await Deno.rename(path, `${path}.hidden`);
  try {
    await body();
  } finally {
    await Deno.rename(`${path}.hidden`, path);
  }
}

/** Runs a program that is none of the driver's. */
async function onHost(program: string, ...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await new Deno.Command(program, { args }).output();
  assertEquals(code, 0, `${program} ${args.join(" ")}: ${new TextDecoder().decode(stderr)}`);
  return new TextDecoder().decode(stdout);
}
