import { assertEquals, assertThrows } from "@std/assert";
import type { VolumeId } from "../../base/ids.ts";
import type { CowUsage } from "../../lvm/snapshots/cow_autoextend.ts";
import type { TrimmedVolume } from "../../lvm/staging/trimmer.ts";
import { MachineEvents } from "./machine_events.ts";

Deno.test("MachineEvents: passes each event on to the reconcilers, and counts it", () => {
  const calls: string[] = [];
  const record = (name: string) => (...args: unknown[]) => void calls.push([name, ...args].join(" "));
  const machineEvents = new MachineEvents();
  assertThrows(() => machineEvents.onRemoved(), Error, "not connected yet");
  machineEvents.connect({
    node: { requeue: record("requeue") },
    pools: { onExtended: record("pool") },
    volumes: {
      recordWarning: (id, { reason, message }) => record("warning")(id, reason, message),
      recordTrimFailed: record("trim failed"),
      recordTrimUnsupported: record("trim unsupported"),
      reportLimits: () => Promise.resolve(),
    },
    snapshots: { recordCowExtended: record("extended"), recordCowCannotExtend: record("cannot extend") },
    volumeController: { add: record("add"), wake: record("wake") },
    snapshotController: { wake: record("wake") },
    counters: {
      onSnapshotExtended: record("count extension"),
      onTrimmed: record("count bytes"),
      onTrimFailed: record("count failure"),
    },
  });
  const volume = "volume" as unknown as TrimmedVolume;
  const cow = "cow" as unknown as CowUsage;
  const { onRemoved, onPoolExtended, onSnapshotExtended, onSnapshotCannotExtend, ...others } = { ...machineEvents };
  onRemoved();
  onPoolExtended("from 1 GiB to 2 GiB");
  onSnapshotExtended(cow, 8n);
  onSnapshotCannotExtend(cow, "full");
  others.onProgress("v1-x" as VolumeId);
  others.onKeyChange();
  others.onTrimmed(volume, 4);
  others.onTrimFailed(volume, "busy", 2);
  others.onTrimUnsupported(volume);
  others.onStagingWarning("v1-x" as VolumeId, { reason: "FurtherSignatures", message: "beside" });
  assertEquals(calls, [
    "requeue",
    "pool from 1 GiB to 2 GiB",
    "requeue",
    "count extension",
    "extended cow 8",
    "cannot extend cow full",
    "add v1-x",
    "requeue",
    "count bytes 4",
    "count failure",
    "trim failed volume busy 2",
    "trim unsupported volume",
    "warning v1-x FurtherSignatures beside",
  ]);
});
