import { assertEquals } from "@std/assert";
import { stub } from "@std/testing/mock";
import { snapshotIdOf, volumeIdOf } from "../base/ids.ts";
import type { Lvm } from "../lvm/client/client.ts";
import type { CowUsage } from "../lvm/snapshots/cow_autoextend.ts";
import type { TrimmedVolume } from "../lvm/staging/trimmer.ts";
import { loggingListener, lvmReadiness } from "./standalone.ts";

Deno.test("lvmReadiness() asks LVM once a minute while it answers, and each time while it does not", async () => {
  let [now, reports, answers] = [1_000, 0, false];
  using _ = stub(performance, "now", () => now);
  const report = () => (reports++, answers ? Promise.resolve([]) : Promise.reject(new Error("no answer")));
  const isReady = lvmReadiness({ report } as unknown as Lvm);
  assertEquals([await isReady(), await isReady(), reports], [false, false, 2]);
  answers = true;
  assertEquals([await isReady(), reports], [true, 3]);
  [now, answers] = [now + 59_999, false];
  assertEquals([await isReady(), reports], [true, 3]);
  now += 1;
  assertEquals([await isReady(), reports], [false, 4]);
});

Deno.test("loggingListener() needs no further listener", () => {
  const listener = loggingListener();
  const cow = { id: snapshotIdOf("cut"), lv: { name: "snap" }, group: { name: "data" } } as CowUsage;
  const volume = { id: volumeIdOf("one") } as TrimmedVolume;
  listener.onRemoved!();
  listener.onProgress!(volume.id);
  listener.onPoolExtended!("pool data/pool: extended");
  listener.onSnapshotExtended!(cow, 1n << 30n);
  listener.onSnapshotCannotExtend!(cow, "the group is full");
  listener.onTrimmed!(volume, 4096);
  listener.onTrimFailed!(volume, "no answer", 1);
  listener.onTrimUnsupported!(volume);
  listener.onStagingWarning!(volume.id, { reason: "FurtherSignatures", message: "beside" });
  listener.onFailure!("reaper", new Error("no answer"));
});
