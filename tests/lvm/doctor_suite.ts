/**
 * The doctor and the status on real LVM: the doctor finds real problems, and those remedies that are commands solve
 * them.
 *
 * Other tests may run on this machine at the same time, on groups of their own. Problems that concern all of LVM are
 * made so that they do not affect these tests.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { parseGroupList } from "../../mod.ts";
import { type Diagnosis, examine } from "../../lvm/doctor/doctor.ts";
import type { Exec, Program } from "../../lvm/exec.ts";
import type { Finding } from "../../lvm/doctor/doctor.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { readStatus, type Status } from "../../lvm/status/status.ts";
import { usedTag } from "../../lvm/model/tags.ts";
import { contractTest, type Harness, type Host } from "../contract/helpers/host.ts";

const DRIVER = "test.denolith.dev";
const LVM_CONF = "/etc/lvm/lvmlocal.conf";
const MiB = 1n << 20n;

/** The time limit of commands in milliseconds: longer than the doctor's own, because the machine is emulated. */
const COMMAND_TIMEOUT_MS = 60_000;

/** The time limit of LVM in milliseconds where it waits in vain. */
const HELD_LOCK_TIMEOUT_MS = 12_000;

/** Registers the tests. */
export function doctorTests(host: Host): void {
  contractTest(
    host,
    "doctor finds no problem on a healthy machine, and status lists its volumes and snapshots",
    async (harness) => {
      const volumeId = await harness.create();
      const stagingTargetPath = await harness.stage(volumeId);
      const { snapshot } = await harness.csi.controller.createSnapshot({
        name: "cut",
        sourceVolumeId: volumeId,
        parameters: {},
      });
      const { checks } = await assertProblems(harness, []);
      assertMatch(checks.find(({ check }) => check === "kernel")!.summary, /linear, snapshot, snapshot-origin/);
      assertMatch(checks.find(({ check }) => check === "udev")!.summary, /udev running, 2 device nodes/);

      const status = await statusOf(harness);
      const [volume] = status.volumes;
      assertEquals([volume?.id, volume?.state, volume?.size, volume?.format, volume?.formatState, volume?.active], [
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
      assertEquals([group.physicalVolumes, group.used], [
        { count: 1, missing: 0 },
        32n * MiB + status.snapshots[0]!.cowSize,
      ]);
      assert(group.metadata.free > 400_000n && group.metadata.free < group.metadata.size);

      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await harness.csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(host, "doctor names what crashes and accidents left, and status shows it", async (harness) => {
    const volumeId = await harness.create();
    const { path, tags, devicePath } = await harness.singleLv();
    const [group] = path.split("/") as [string];
    const { snapshot } = await harness.csi.controller.createSnapshot({
      name: "small",
      sourceVolumeId: volumeId,
      parameters: { snapSize: "4Mi" },
    });
    await harness.runAsAdmin(
      "dd",
      "if=/dev/zero",
      `of=${devicePath}`,
      "bs=1M",
      "count=8",
      "oflag=direct",
      "status=none",
    );
    const missingId = volumeIdOf("gone");
    const record = usedTag(DRIVER, missingId, "AAAAAA-1111-2222-3333-4444-5555-BBBBBB");
    await harness.runAsAdmin("lvm", "vgchange", "--addtag", record, group);
    const incompleteId = await harness.create();
    const incompleteLv = (await harness.lvs()).find((lv) => lv.tags.includes(`denolith.volume=${incompleteId}`))!;
    const incompletePath = `${group}/${incompleteLv.name}`;
    const formatting = "denolith.fs=formatting:ext4:00000000-0000-4000-8000-000000000000";
    await harness.runAsAdmin(
      "lvm",
      "lvchange",
      "--deltag",
      "denolith.fs=wanted:ext4",
      "--addtag",
      formatting,
      incompletePath,
    );
    const name = incompleteLv.devicePath.replace("/dev/mapper/", "");
    await harness.runAsAdmin("dmsetup", "suspend", name);

    const { findings } = await assertProblems(harness, [
      ["leftovers", "error", name],
      ["leftovers", "error", missingId],
      ["leftovers", "warning", `${group}/snap-${snapshot!.snapshotId.slice(3)}`],
    ]);
    assert(findings.some(({ subject, message }) => subject === incompleteId && /was interrupted/.test(message)));
    const status = await statusOf(harness);
    assertEquals(
      status.volumes.map(({ id, state }) => `${id} ${state}`),
      [
        `${volumeId} Ready`,
        `${incompleteId} Ready`,
        `${missingId} Lost`,
      ].sort(),
    );
    assertEquals(status.snapshots.map(({ state }) => state), ["Overflowed"]);
    assertEquals(status.inconsistencies.map(({ kind, subject }) => [kind, subject]), [["dangling", record]]);
    await applyRemedy(harness, findings, name);
    await harness.runAsAdmin("lvm", "vgchange", "--deltag", record, group);

    const copy = tags.flatMap((tag) => ["--addtag", tag]);
    await harness.runAsAdmin("lvm", "lvcreate", "--yes", "--name", "copy", "--size", "4m", ...copy, group);
    const again = await assertProblems(harness, [
      ["leftovers", "error", path],
      ["leftovers", "error", `${group}/copy`],
      ["leftovers", "warning", `${group}/snap-${snapshot!.snapshotId.slice(3)}`],
    ]);
    await applyRemedy(harness, again.findings, `${group}/copy`);
    await harness.csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
    await harness.runAsAdmin("lvm", "lvremove", "--yes", `${group}/copy`);
    for (const id of [incompleteId, volumeId]) await harness.csi.controller.deleteVolume({ volumeId: id });
  });

  contractTest(
    host,
    "status and doctor report thin pools: their allocated and available virtual size, and when they are full",
    async (harness) => {
      const [group] = harness.groups;
      const pool = `${group}/theirs`;
      const createArgs = ["--yes", "--type", "thin-pool", "--name", "theirs", "--size", "32m", group];
      await harness.runAsAdmin("lvm", "lvcreate", ...createArgs);
      await harness.runAsAdmin("lvm", "lvchange", "--addtag", "denolith.overcommit=2", pool);
      const parameters = { volumeGroup: group, thinProvision: "yes", thinPool: "theirs", readIops: "500" };
      const volumeId = await harness.create({ capacityRange: { requiredBytes: 48n * MiB }, parameters });
      const before = await statusOf(harness);
      const { dataPercent, metadataPercent, ...reportedPool } = before.pools.find(({ name }) => name === "theirs")!;
      assert(dataPercent === 0 && metadataPercent! > 0, `${dataPercent} ${metadataPercent}`);
      assertEquals(reportedPool, {
        ...{
          group,
          name: "theirs",
          owned: false,
          size: 32n * MiB,
          metadataSize: reportedPool.metadataSize,
          overcommit: "2",
        },
        ...{ allocatedVirtual: 48n * MiB, availableVirtual: 16n * MiB, active: true, state: "Ready" },
      });
      const volume = before.volumes.find(({ id }) => id === volumeId)!;
      assertEquals([volume.pool, volume.poolState, volume.ioLimits], ["theirs", undefined, { readIops: 500n }]);

      const { devicePath } = (await harness.lvs()).find(({ tags }) => tags.includes(`denolith.volume=${volumeId}`))!;
      await harness.runAsAdmin(
        "dd",
        "if=/dev/urandom",
        `of=${devicePath}`,
        "bs=1M",
        "count=32",
        "oflag=direct",
        "status=none",
      );
      await assertProblems(harness, [["pools", "error", pool]]);
      const full = await statusOf(harness);
      assertEquals(full.pools.map(({ state }) => state), ["Full"]);
      assertMatch(full.volumes.find(({ id }) => id === volumeId)!.problem!, /theirs of 32 MiB is 100 % full/);
      await harness.csi.controller.deleteVolume({ volumeId });
      await harness.waitUntilIdle();
      await harness.runAsAdmin("lvm", "lvremove", "--yes", pool);
      await assertProblems(harness, []);
    },
  );

  contractTest(host, "doctor names a group that is exported, and one of another host", async (harness) => {
    const [small, large] = harness.groups;
    await harness.runAsAdmin("lvm", "vgexport", small);
    await harness.runAsAdmin("lvm", "vgchange", "--yes", "--systemid", "otherhost", large);
    const { findings } = await assertProblems(harness, [["groups", "error", small], ["groups", "error", large]]);
    for (const group of harness.groups) await applyRemedy(harness, findings, group);
    await assertProblems(harness, []);
  });

  contractTest(
    host,
    "a disk in no group is no matter; doctor names one that is missing, and the volumes on it",
    async (harness) => {
      const [small] = harness.groups;
      const file = await Deno.makeTempFile();
      await Deno.truncate(file, 64 << 20);
      const loop = (await runOnHost("losetup", "--find", "--show", file)).trim();
      await runOnHost("pvcreate", "--yes", loop); // the driver reads loop devices from its next report on
      await assertProblems(harness, []);
      await harness.csi.controller.deleteVolume({ volumeId: await harness.create() });
      await harness.runAsAdmin("lvm", "vgextend", "--yes", small, loop);
      const tags = ["--addtag", `denolith=${DRIVER}`, "--addtag", `denolith.volume=${volumeIdOf("two")}`, "--addtag"];
      await harness.runAsAdmin(
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
      await harness.runAsAdmin("lvm", "lvchange", "--activate", "n", `${small}/two`);
      await runOnHost("losetup", "--detach", loop);
      try {
        const { findings } = await assertProblems(harness, [["groups", "error", small]]);
        assertMatch(
          findings.find(({ subject }) => subject === small)!.message,
          /1 of its 2 physical volumes are missing .*are on them: two/,
        );
        const status = await statusOf(harness);
        assertEquals(status.volumes.map(({ state, lv }) => [state, lv]), [["Partial", "two"]]);
        assertEquals(status.groups.find(({ name }) => name === small)?.physicalVolumes, { count: 2, missing: 1 });
      } finally {
        await harness.runAsAdmin("lvm", "vgreduce", "--removemissing", "--force", small);
        await Deno.remove(file);
      }
    },
  );

  contractTest(host, "doctor names the settings that hide a disk and keep volumes inactive", async (harness) => {
    const [small, large] = harness.groups;
    const disk = (await harness.runAsAdmin("lvm", "vgs", "--noheadings", "--options", "pv_name", small)).trim();
    await withSettings(
      `devices { global_filter = [ "r|^${disk}$|" ] }\nactivation { volume_list = [ ${
        [...CONCURRENT_GROUPS, small].map((name) => `"${name}"`).join(", ")
      } ] }\n`,
      async () => {
        const { findings } = await assertProblems(harness, [
          ["filters", "warning", disk],
          ["filters", "error", large],
          ["groups", "error", small],
        ]);
        const hidden = findings.find(({ check, subject }) => check === "filters" && subject === disk)!;
        assertMatch(hidden.message, /global_filter = \["r\|/);
      },
    );
  });

  contractTest(host, "doctor names a held lock, and a program that is missing", async (harness) => {
    await withProgramHidden("mkfs.xfs", () => assertProblems(harness, [["tools", "warning", "mkfs.xfs"]]));
    const holder = new Deno.Command("flock", {
      // without a shell and with one process only: killing it frees the lock
      args: ["--exclusive", "--no-fork", `/run/lock/lvm/V_${harness.groups[0]}`, "sleep", "60"],
    }).spawn();
    try {
      await assertProblems(harness, [["locks", "error", "lvm"]], { lvmDeadlineMs: HELD_LOCK_TIMEOUT_MS });
    } finally {
      holder.kill("SIGKILL");
      await holder.status;
    }
  });
}

/** The groups of what runs beside these tests. */
const CONCURRENT_GROUPS = ["sanity-mount", "sanity-block", "confined", "kills", "erasure-small", "erasure-large"];

/**
 * Reports whether a path or device belongs to a group of a concurrent test, and so may come and go between two
 * commands.
 */
function isOfConcurrentTest(on: string): boolean {
  return CONCURRENT_GROUPS.some((group) =>
    on.startsWith(`${group}/`) || on.startsWith(`${group.replaceAll("-", "--")}-`)
  );
}

/** Runs doctor, and asserts which findings are worse than a note. */
async function assertProblems(
  harness: Harness,
  expected: [string, string, string][],
  { lvmDeadlineMs = COMMAND_TIMEOUT_MS } = {},
): Promise<Diagnosis> {
  const groups = parseGroupList(harness.groups.join(","));
  const exec: Exec = {
    run: (command) =>
      harness.exec.run({ ...command, deadlineMs: command.program === "lvm" ? lvmDeadlineMs : COMMAND_TIMEOUT_MS }),
    idle: () => harness.exec.idle(),
  };
  const diagnosis = await examine({ exec, driver: DRIVER, groups });
  const problems = diagnosis.findings.filter(({ level, subject }) => level !== "info" && !isOfConcurrentTest(subject));
  assertEquals(
    problems.map(({ check, level, subject }) => [check, level, subject]).sort(),
    expected.toSorted(),
    problems.map(({ message }) => message).join("\n"),
  );
  return diagnosis;
}

/** Runs the commands that a finding has as its remedy, without the remark after them. */
async function applyRemedy(harness: Harness, findings: readonly Finding[], on: string): Promise<void> {
  const remedy = findings.find((finding) => finding.subject === on && finding.level !== "info")!.remedy!.replace(
    / {3}\(.*$/,
    "",
  );
  for (const command of remedy.split(" && ")) {
    // quotes group words, as a shell has it
    const [program, ...args] = [...command.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map((match) =>
      match[1] ?? match[2] ?? match[3]!
    );
    const isLvm = /^(?:lv|vg|pv)/.test(program!);
    await harness.runAsAdmin(isLvm ? "lvm" : program as Program, ...(isLvm ? [program!, ...args] : args));
  }
}

function statusOf(harness: Harness): Promise<Status> {
  return readStatus({ exec: harness.exec, driver: DRIVER, groups: parseGroupList(harness.groups.join(",")) });
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
async function runOnHost(program: string, ...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await new Deno.Command(program, { args }).output();
  assertEquals(code, 0, `${program} ${args.join(" ")}: ${new TextDecoder().decode(stderr)}`);
  return new TextDecoder().decode(stdout);
}
