/**
 * Contract: copy-on-write snapshots that are inactive, as after a restart of a host that activates no volumes by itself. LVM
 * asks questions about some changes of them. No one answers, which means no.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import type { LogicalVolume } from "../../lvm/model/report.ts";
import { lvchange, lvchangeTags, lvconvert, lvcreate, lvextend, lvremove } from "../../lvm/model/command_lines.ts";
import { activationArguments } from "../../lvm/pools/activation.ts";
import { createCopy, createFilledVolume, haveSameData, lvOf, takeSnapshot } from "./copies_suite.ts";
import { blockCapability, contractTest, type Harness, type Host } from "./helpers/host.ts";

const MiB = 1n << 20n;

/** Registers the tests. */
export function cowSnapshotsContract(host: Host): void {
  contractTest(host, "a snapshot that is inactive with its volume is copied from, and is erased", async (harness) => {
    const volumeId = await createFilledVolume(harness);
    const snapshotId = await takeSnapshot(harness, volumeId);
    await deactivate(harness, volumeId);
    const copy = await createCopy(harness, { volumeCapabilities: [blockCapability()] }, { snapshotId });
    const { devicePath } = await cowSnapshotOf(harness);
    for (const id of [volumeId, copy]) {
      assert(await haveSameData(harness, (await lvOf(harness, id)).devicePath, devicePath));
    }
    await deactivate(harness, volumeId);
    const commands = await harness.exec.recordCommands(async () => {
      await harness.csi.controller.deleteSnapshot({ snapshotId });
      await harness.waitUntilIdle();
    });
    assert(commands.some((command) => command.startsWith("blkdiscard --zeroout")), commands.join("\n"));
    for (const id of [copy, volumeId]) await harness.csi.controller.deleteVolume({ volumeId: id });
    assertEquals(await harness.lvs(), []);
  });

  for (const isActive of [true, false]) {
    const title = `LVM asks nothing when the driver changes a snapshot that is ${isActive ? "active" : "inactive"}`;
    contractTest(host, title, async (harness) => {
      const [group] = harness.groups;
      const [base, cow] = [`${group}/base`, `${group}/cow`];
      const activate = (path: string) => async () => {
        const reported = (await harness.report()).find(({ name }) => name === group)!;
        const lv = reported.lvs.find(({ name }) => `${group}/${name}` === path)!;
        return activationArguments(harness.driverName, reported, lv);
      };
      const remove = (path: string) => async () => {
        const { uuid } = (await harness.lvs()).find(({ name }) => `${group}/${name}` === path)!;
        return lvremove({ yes: true, uuid }, path);
      };
      const deactivate = lvchange({ activate: "n" }, base);
      const snapshot = { yes: true, snapshot: true, permission: "r", name: "cow", size: 8n * MiB } as const;
      const unless = (condition: boolean, args: string[]) => condition ? [] : [args];
      const create = [
        lvcreate({ yes: true, wipesignatures: "y", name: "base", size: 32n * MiB }, group),
        ...unless(isActive, deactivate),
        lvcreate(snapshot, base),
      ];
      const before = { base: isActive, cow: isActive };
      assertEquals(await change(harness, create), before);
      const changes = [
        lvchangeTags(["--deltag", "x", "--addtag", "y"], cow),
        ...[cow, base].map((path) => lvchange({ refresh: true }, path)),
        ...[cow, base].flatMap((path) =>
          (path === cow ? ["rw", "r"] as const : ["r", "rw"] as const).map((permission) =>
            lvchange({ permission }, path)
          )
        ),
        lvextend({ size: 12n * MiB }, cow),
      ];
      for (const args of changes) assertEquals(await change(harness, [args]), before, args.join(" "));
      assertEquals((await cowSnapshotOf(harness)).size, 12n * MiB);
      const both = { base: true, cow: true };
      assertEquals(await change(harness, [deactivate, lvextend({ size: 36n * MiB }, base), activate(cow)]), both);
      assertEquals(await change(harness, [activate(cow), deactivate, activate(base)]), both);
      const split = lvconvert({ yes: true, splitsnapshot: true }, cow);
      assertEquals(await change(harness, [...unless(isActive, deactivate), split, activate(cow)]), {
        ...before,
        cow: true,
      });
      assertEquals(await change(harness, [remove(cow), remove(base), ...create, remove(cow)]), { base: isActive });
      assertEquals(await change(harness, [lvcreate(snapshot, base), remove(base)]), {});
    });
  }
}

/** The arguments of a command of LVM; or a function that returns them, for what depends on the state. */
type Arguments = readonly string[] | (() => Promise<readonly string[]>);

/** Runs commands of LVM, which must not ask anything. @returns whether each LV is active then, by its name */
async function change(harness: Harness, commands: readonly Arguments[]): Promise<Record<string, boolean>> {
  for (const command of commands) {
    const args = typeof command === "function" ? await command() : command;
    const { code, stdout, stderr } = await harness.exec.run({ program: "lvm", args, mutates: true });
    assert(code === 0 && !`${stdout}${stderr}`.includes("[y/n]"), `lvm ${args.join(" ")}: ${stdout}${stderr}`);
  }
  return Object.fromEntries((await harness.lvs()).map(({ name, active }) => [name, active]));
}

/** Deactivates a volume, and its snapshots with it. */
async function deactivate(harness: Harness, volumeId: string): Promise<void> {
  const { name } = await lvOf(harness, volumeId);
  const group = (await harness.report()).find(({ lvs }) => lvs.some((lv) => lv.name === name))!;
  await harness.runAsAdmin("lvm", "lvchange", "--activate", "n", `${group.name}/${name}`);
  assertEquals((await cowSnapshotOf(harness)).active, false);
}

async function cowSnapshotOf(harness: Harness): Promise<LogicalVolume> {
  return (await harness.lvs()).find(({ origin }) => origin !== undefined)!;
}
