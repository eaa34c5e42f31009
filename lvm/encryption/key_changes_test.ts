import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { Lvm } from "../client/client.ts";
import { StorageError } from "../../base/error.ts";
import { headerBackupLvName, volumeIdOf, volumeLvName } from "../../base/ids.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { KeyChanges } from "./key_changes.ts";

const ID = volumeIdOf("one");

/** Returns an encrypted volume as a report has it, with or without a backup of its header, and what is known of its keys. */
async function reportedVolume(
  { hasBackup = false, format = "luks2:formatted:5e1c9b07-33d8-4c1a-9d53-6ad3b6a0f4c1:raw" } = {},
) {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const create = (name: string, tags: string[]) => {
    const args = ["lvcreate", "--yes", "--zero", "y", "--wipesignatures", "y", "--size", "33554432b", "--name", name];
    return machine.run({
      program: "lvm",
      args: [...args, ...tags.flatMap((tag) => ["--addtag", tag]), "data"],
      mutates: true,
    });
  };
  await create(volumeLvName(ID), ["denolith=d", `denolith.volume=${ID}`, `denolith.fs=${format}`]);
  if (hasBackup) {
    await create(headerBackupLvName(ID), [
      "denolith=d",
      `denolith.header=${ID}:0:0=0000000a:0248ab34`,
      "denolith.luks",
    ]);
  }
  return new VolumeFinder({ driver: "d" }).require(await new Lvm(machine).report(), ID);
}

function newChanges() {
  const calls: string[] = [];
  return { calls, changes: new KeyChanges((id) => calls.push(id)) };
}

Deno.test("the outcome of a change of keys is known until the next one, and a listener is called when it differs", async () => {
  const volume = await reportedVolume();
  const { calls, changes } = newChanges();
  assertEquals(changes.stateOf(volume), undefined);
  const fail = (text: string) =>
    assertRejects(() => changes.track(ID, () => Promise.reject(new StorageError("NoSpace", text))), StorageError, text);
  await fail("no space");
  await fail("no space");
  assertEquals(changes.problemOf(volume), { reason: "KeyChangeFailed", message: "no space" });
  assertEquals(calls.length, 1);
  await fail("wrong");
  await changes.track(ID, () => {
    assertEquals(changes.problemOf(volume)?.message, "wrong", "while it is being changed");
    return Promise.resolve("Complete");
  });
  assertEquals([changes.stateOf(volume), changes.problemOf(volume)], ["Complete", undefined]);
  changes.record(ID, "NotRequested");
  assertEquals([changes.stateOf(volume), calls.length], ["NotRequested", 4]);
  changes.forget(ID);
  assertEquals(changes.stateOf(volume), undefined);
  changes.record(ID, "NotRequested");
  assertEquals([changes.stateOf(volume), calls.length], ["NotRequested", 4], "no news");
});

Deno.test("a change whose command goes on after its deadline is running, until that has ended", async () => {
  for (const end of ["resolve", "reject"] as const) {
    const volume = await reportedVolume();
    const { calls, changes } = newChanges();
    const command = Promise.withResolvers<void>();
    const still = new StorageError("StillRunning", "it still runs", { completion: command.promise });
    await assertRejects(() => changes.track(ID, () => Promise.reject(still)), StorageError);
    changes.forget(ID); // its pod is deleted
    assertEquals([changes.problemOf(volume)?.reason, calls.length], ["KeyChangeRunning", 1]);
    if (end === "resolve") command.resolve();
    else command.reject(new Error("it failed"));
    await Promise.allSettled([command.promise]);
    await Promise.resolve();
    await Promise.resolve();
    assertEquals([changes.stateOf(volume), calls.length], [undefined, 2]);
  }
});

Deno.test("the end of a command that changed keys leaves what became known meanwhile", async () => {
  const volume = await reportedVolume();
  const { changes } = newChanges();
  const command = Promise.withResolvers<void>();
  const still = new StorageError("StillRunning", "it still runs", { completion: command.promise });
  await assertRejects(() => changes.track(ID, () => Promise.reject(still)), StorageError);
  await changes.track(ID, () => Promise.resolve("Complete"));
  command.resolve();
  await command.promise;
  await Promise.resolve();
  assertEquals(changes.stateOf(volume), "Complete");
});

Deno.test("the backup of a header tells that a change was interrupted, unless the report is older than its end", async () => {
  const volume = await reportedVolume({ hasBackup: true });
  const { changes } = newChanges();
  const problem = changes.problemOf(volume);
  assertEquals(problem?.reason, "KeyChangeInterrupted");
  assertMatch(problem!.message, /data\/hdr-[0-9a-f]+ has its LUKS header.*previousPassphrase/);
  changes.record(ID, "NotRequested");
  assertEquals(changes.problemOf(volume)?.reason, "KeyChangeInterrupted");
  await changes.track(ID, () => Promise.resolve("Complete"));
  assertEquals(changes.stateOf(volume), "Complete");
});

Deno.test("while a change runs, an interruption before it is still known, and its own backup is none", async () => {
  const volume = await reportedVolume({ hasBackup: true });
  const { changes } = newChanges();
  const begin = Date.now();
  const during = async (createdAt: number) => {
    const lvs = volume.group.lvs.map((lv) => ({ ...lv, createdAt }));
    const seen: unknown[] = [];
    await changes.track(ID, () => {
      seen.push(changes.problemOf({ ...volume, group: { ...volume.group, lvs } })?.reason);
      return Promise.resolve("Complete");
    });
    return seen;
  };
  const seconds = Math.floor(begin / 1_000);
  assertEquals(await during(seconds - 60), ["KeyChangeInterrupted"]);
  changes.forget(ID);
  assertEquals(await during(seconds), [undefined], "it may be that of the change itself");
  changes.record(ID, "NotRequested");
  assertEquals(await during(seconds - 60), ["KeyChangeInterrupted"]);
  assertEquals(await during(seconds - 60), [undefined], "the report is older than the end of the change before");
});

Deno.test("an interrupted change of the volume key is known while nobody uses the volume or completes it", async () => {
  const volume = await reportedVolume();
  const forgotten: string[] = [];
  const headers = { of: () => true, forget: (id: string) => void forgotten.push(id) };
  const changes = new KeyChanges(() => {}, headers);
  const reason = (lv: object = {}) => changes.problemOf({ ...volume, lv: { ...volume.lv, ...lv } })?.reason;
  assertEquals([reason(), forgotten.length], ["ReencryptionInterrupted", 0]);
  assertEquals([reason({ open: true }), forgotten.length], [undefined, 1], "it is read again after the use");
  await changes.track(ID, () => {
    assertEquals(reason(), undefined, "it is being completed");
    return Promise.resolve("Complete");
  });
  assertEquals(forgotten.length, 3, "as before the completion, it is not any more");
  changes.record(ID, { reason: "KeyChangeFailed", message: "no passphrase opens it" });
  assertEquals(reason(), "ReencryptionInterrupted");
  assertMatch(
    changes.problemOf(volume)!.message,
    /was interrupted \(no passphrase opens it\)\. To complete it, start a pod/,
  );
  changes.record(ID, { reason: "KeyChangeRunning", message: "it still runs" });
  assertEquals(reason(), "KeyChangeRunning");
});

Deno.test("nothing is known of the keys of a volume that is not encrypted", async () => {
  const volume = await reportedVolume({ format: "raw" });
  const { changes } = newChanges();
  changes.record(ID, "Complete");
  assertEquals(changes.stateOf(volume), undefined);
});
