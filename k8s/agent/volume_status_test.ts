import { assert, assertEquals } from "@std/assert";
import type { KeyState } from "../../lvm/encryption/key_changes.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { parseReport } from "../../lvm/model/report_parser.ts";
import { REPORT_COMMAND } from "../../lvm/model/report_command.ts";
import type { Volume } from "../../lvm/inventory/volume.ts";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { endSync } from "../../tests/fake/machine/pvs.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import type { LvmVolume, LvmVolumeStatus } from "../api/lvm_objects.ts";
import { lvmVolumeFor } from "../api/volume_mapping.ts";
import { readyStatus } from "./volume_status.ts";

const id = volumeIdOf("pvc-1");

/** Returns a volume of 32 MiB as LVM reports it, in a group with so many missing physical volumes. */
async function volume(missingPvs = 0): Promise<Volume> {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n);
  const args = ["lvcreate", "--yes", "--wipesignatures", "n", "--size", `${32 << 20}b`, "--name", "vol-1", "data"];
  await machine.run({ program: "lvm", args, mutates: true });
  group.missingPvs = missingPvs;
  const { stdout } = await machine.run(REPORT_COMMAND);
  const [reported] = parseReport(stdout);
  const [lv] = reported!.lvs;
  const tags = { id, format: { state: "raw" }, mkfsOptions: [], shared: true, erase: "zero" } as const;
  return { id, size: lv!.size, tags, lv: lv!, group: reported!, used: false };
}

function object(size: bigint, status?: LvmVolumeStatus, generation = 2): LvmVolume {
  const request = namedRequest("pvc-1", size, { id, format: { state: "raw" } });
  const made = lvmVolumeFor(request, { driver: "d", nodeName: "n" });
  return { ...made, metadata: { ...made.metadata, generation }, ...(status && { status }) };
}

const MiB = 1n << 20n;

function conditionSummaries(status: LvmVolumeStatus): string[] {
  return status.conditions?.map(({ type, status, reason }) => `${type} ${status} ${reason}`) ?? [];
}

Deno.test("readyStatus() reports how full the filesystem is in steps, also while nobody mounts it", async () => {
  const present = await volume();
  const reported = (recorded: number | undefined, seen: number | undefined, lvUUID = present.lv.uuid) => {
    const status = { lvUUID, ...(recorded !== undefined && { usedPercent: recorded }) };
    return readyStatus(object(30n * MiB, status), present, { usedPercent: seen }).usedPercent;
  };
  assertEquals(reported(undefined, undefined), undefined);
  assertEquals(reported(undefined, 41), 41);
  assertEquals([45, 46, 37, 36].map((seen) => reported(41, seen)), [41, 46, 41, 36]);
  assertEquals([reported(97, 99), reported(97, 100)], [97, 100]);
  assertEquals(reported(41, undefined), 41);
  assertEquals(reported(41, undefined, "another LV"), undefined);
});

Deno.test("readyStatus() reports where the LV is, and that its group is complete", async () => {
  const present = await volume();
  const { conditions: _, ...status } = readyStatus(object(30n * MiB), present);
  assertEquals(status, {
    state: "Ready",
    observedGeneration: 2,
    volumeGroup: "data",
    volumeGroupUUID: present.group.uuid,
    lvName: "vol-1",
    lvUUID: present.lv.uuid,
    devicePath: present.lv.devicePath,
    size: "32Mi",
  });
  assertEquals(conditionSummaries(readyStatus(object(30n * MiB), present)), [
    "Healthy True PhysicalVolumesPresent",
    "Ready True Created",
  ]);
});

Deno.test("readyStatus() of a volume on a missing physical volume is Ready, and not Healthy", async () => {
  const status = readyStatus(object(30n * MiB), await volume(1));
  assertEquals(conditionSummaries(status), ["Healthy False Partial", "Ready True Created"]);
  assert(status.conditions![0]!.message.includes("with its data is missing"), status.conditions![0]!.message);
});

Deno.test("readyStatus() keeps the error of an expansion until the size is reached, or another one is requested", async () => {
  const present = await volume();
  const error = { code: "OutOfRange", message: "no room" } as const;
  const errorOf = (size: bigint, observedGeneration: number) =>
    readyStatus(object(size, { error, observedGeneration, lvUUID: present.lv.uuid }), present).error;
  assertEquals(errorOf(64n * MiB, 2), error);
  assertEquals(errorOf(64n * MiB, 1), undefined, "it was about an earlier spec");
  assertEquals(errorOf(32n * MiB, 2), undefined, "the requested size is reached");
});

Deno.test("readyStatus() of a RAID volume reports whether it is redundant, and the remedy if it is not", async () => {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n, 4n << 20n, 2);
  const size = ["--size", `${32 << 20}b`, "--name", "vol-1", "data"];
  await machine.run({
    program: "lvm",
    args: ["lvcreate", "--type", "raid1", "--mirrors", "1", ...size],
    mutates: true,
  });
  const redundantCondition = async () => {
    const [reported] = parseReport((await machine.run(REPORT_COMMAND)).stdout);
    const tags = { id, format: { state: "raw" }, mkfsOptions: [], shared: true, erase: "zero" } as const;
    const [lv] = reported!.lvs;
    const volume = { id, size: lv!.size, tags, lv: lv!, group: reported!, used: false };
    const status = readyStatus(object(30n * MiB), volume, {
      limits: { applied: true, reason: "Applied", message: "to one pod" },
    });
    assertEquals(status.conditions?.map(({ type }) => type), ["Healthy", "IOLimitsApplied", "Ready", "Redundant"]);
    const condition = status.conditions?.find(({ type }) => type === "Redundant");
    return [condition?.status, condition?.reason, condition?.message] as const;
  };
  assertEquals((await redundantCondition()).slice(0, 2), ["False", "Rebuilding"]);
  endSync(group);
  assertEquals((await redundantCondition()).slice(0, 2), ["True", "InSync"]);
  group.lvs[0]!.raid!.refreshNeeded = true;
  const [status, reason, message] = await redundantCondition();
  assertEquals([status, reason], ["False", "RefreshNeeded"]);
  assert(message?.includes("lvchange --refresh data/vol-1"), message);
  group.missingPvs = 1;
  assertEquals((await redundantCondition()).slice(0, 2), ["False", "Degraded"]);
});

Deno.test("readyStatus() reports whether a volume has the keys that its Secret requests, and keeps what a restart forgot", async () => {
  const present = await volume();
  let status: LvmVolumeStatus | undefined;
  const next = (keys: KeyState | undefined) => {
    status = readyStatus(object(30n * MiB, status), present, { keys });
    return status.conditions!.find(({ type }) => type === "KeysChanged");
  };
  const summary = (keys: KeyState | undefined) => {
    const condition = next(keys);
    return condition && `${condition.status} ${condition.reason}`;
  };
  assertEquals([summary(undefined), summary("NotRequested")], [undefined, undefined]);
  const failed = { reason: "KeyChangeFailed", message: "neither opens it" } as const;
  assertEquals(summary(failed), "False KeyChangeFailed");
  assertEquals(next(undefined)?.message, "neither opens it", "the agent was restarted");
  assertEquals(summary("NotRequested"), undefined, "the change was taken back");
  assertEquals(summary({ reason: "KeyChangeInterrupted", message: "a backup is left" }), "False KeyChangeInterrupted");
  assertEquals(summary(undefined), undefined, "the backup is gone");
  assertEquals(summary({ reason: "KeyChangeRunning", message: "it takes hours" }), "False KeyChangeRunning");
  assertEquals(summary(undefined), undefined, "the command ended, with no pod there");
  assertEquals(summary("Complete"), "True KeyChangeComplete");
  const messages = (["Complete", "PassphraseReplaced", "Complete", failed, "Complete"] as const).map((keys) =>
    next(keys)!.message.includes("previous passphrase opens nothing")
  );
  assertEquals(messages, [false, true, true, false, false], "until the next request that failed");
  assertEquals(summary("PassphraseReplaced"), "True KeyChangeComplete");
  assertEquals([summary(undefined), summary("NotRequested")], ["True KeyChangeComplete", "True KeyChangeComplete"]);
});
