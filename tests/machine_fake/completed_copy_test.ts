/**
 * A copy that is completed while a report is read.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { openMachine } from "../../lvm/machine.ts";
import { ANY_GROUP } from "../../lvm/model/groups.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { FakeMachine } from "../fake/machine/machine.ts";
import { namedRequest } from "../fake/request.ts";

const MiB = 1n << 20n;
const copyId = volumeIdOf("copy");

Deno.test("a copy that was completed while a report was read stays complete", async () => {
  const fake = new FakeMachine();
  const folder = await Deno.makeTempDir();
  const [reported, completed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const tagsOfCopy = () => fake.allLvs().find(({ lv }) => lv.tags.has(`denolith.volume=${copyId}`))?.lv.tags;
  const isFormatting = () => [...tagsOfCopy() ?? []].some((tag) => tag.startsWith("denolith.fs=formatting"));
  let timer: ReturnType<typeof setTimeout> | undefined;
  const endSoon = () => timer ??= setTimeout(completed.resolve, 20);
  const run = fake.run.bind(fake);
  let isHeld = false;
  fake.run = async (command) => {
    if (!isHeld && isFormatting() && command.mutates) {
      isHeld = true;
      copies.wake(); // as any other work does
      await reported.promise;
    }
    const output = await run(command);
    if (isHeld && command.args.includes("fullreport")) {
      reported.resolve();
      await completed.promise; // what was read before is returned after the end of the copy
    }
    if (isHeld && !isFormatting()) endSoon();
    return output;
  };
  const { copies, volumes, lvm, background } = openMachine({
    ...{ exec: fake, driver: "test.denolith.dev", groups: ANY_GROUP, mountRoots: [folder], scratch: folder },
  });
  fake.addGroup("data", 1024n * MiB);
  const format = { state: "unformatted", type: "ext4" } as const;
  await volumes.create({ ...namedRequest("original", 32n * MiB), format });
  const original = fake.allLvs()[0]!.lv;
  original.content.signatures = [{ type: "ext4", uuid: crypto.randomUUID() }];
  await copies.createNew(await lvm.report(), {
    ...{ ...namedRequest("copy", 0n), range: { required: 0n }, format },
    source: { kind: "volume", id: volumeIdOf("original") },
  });
  await background.idle();
  assertEquals([isHeld, [...tagsOfCopy()!].filter((tag) => /copied|wanted|formatting/.test(tag))], [true, []]);
  await background.stop();
  await Deno.remove(folder);
});

Deno.test("a copy whose last command outlasts its deadline is complete when the command has ended", async () => {
  const fake = new FakeMachine();
  const folder = await Deno.makeTempDir();
  const tagsOfCopy = () => [...fake.allLvs().find(({ lv }) => lv.tags.has(`denolith.volume=${copyId}`))!.lv.tags];
  const run = fake.run.bind(fake);
  let late: Promise<unknown> | undefined;
  fake.run = async (command) => {
    if (late !== undefined) {
      if (command.mutates) await late; // LVM's lock of the group
      return await run(command);
    }
    if (!/--deltag denolith\.copied/.test(command.args.join(" "))) return await run(command);
    // longer than until the step is tried again
    const completion = late = new Promise((resolve) => setTimeout(resolve, 1_500)).then(() => run(command));
    throw new StorageError("StillRunning", "lvchange: it still runs", { completion });
  };
  const { copies, volumes, lvm, background } = openMachine({
    ...{ exec: fake, driver: "test.denolith.dev", groups: ANY_GROUP, mountRoots: [folder], scratch: folder },
  });
  fake.addGroup("data", 1024n * MiB);
  const format = { state: "unformatted", type: "ext4" } as const;
  await volumes.create({ ...namedRequest("original", 32n * MiB), format });
  fake.allLvs()[0]!.lv.content.signatures = [{ type: "ext4", uuid: crypto.randomUUID() }];
  await copies.createNew(await lvm.report(), {
    ...{ ...namedRequest("copy", 0n), range: { required: 0n }, format },
    source: { kind: "volume", id: volumeIdOf("original") },
  });
  await waitUntil(() => late !== undefined, "the last command");
  await late;
  await background.idle();
  const state = tagsOfCopy().filter((tag) => /copied|denolith\.fs/.test(tag)).map((tag) => tag.split(":")[0]);
  assertEquals(state, ["denolith.fs=formatted"]);
  await background.stop();
  await Deno.remove(folder);
});
