/**
 * Physical volumes on devices over logical volumes, over the fake machine and over real LVM: what a tenant writes on a block
 * volume is no disk of the machine, and keeps nobody from using those that are.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import type { Exec } from "../../lvm/exec.ts";
import { parseVolumeId } from "../../base/ids.ts";
import { HOST_PATTERN } from "../../lvm/host/stacked_devices.ts";
import { mappingPath } from "../../lvm/encryption/mapping.ts";
import { Lvm } from "../../lvm/client/client.ts";
import { examine } from "../../lvm/doctor/doctor.ts";
import { ANY_GROUP } from "../../lvm/model/groups.ts";
import { readSurvey } from "../../lvm/model/survey.ts";
import { assertFails, blockCapability, Harness, type Host } from "./helpers/host.ts";

/** A machine on which tenants write physical volumes. */
export interface StackedHost extends Omit<Host, "setUp"> {
  /** Prepares it. */
  setUp(): Promise<StackedMachine & AsyncDisposable>;
}

/** What tenants and kubelet do to a machine. */
export interface StackedMachine {
  /** Runs commands as the driver does. */
  readonly exec: Exec;
  /** Runs them without a filter, as LVM of a host does. */
  readonly hostExec: Exec;
  /** Makes a loop device over what is at a path, a device or a file. @returns its path */
  addLoop(path: string): Promise<string>;
  /** Makes a mapping of a device, as a program does that encrypts it. @returns its path */
  addMapping(path: string): Promise<string>;
  /** Makes a file that a loop device can be made of. @returns its path */
  addFile(): Promise<string>;
  /** Makes a volume group on a device, of which LVM knows no other device meanwhile. */
  addGroup(name: string, path: string): Promise<void>;
  /** Copies the first physical volume of a group, with its header and metadata, to a device. */
  copyPv(group: string, path: string): Promise<void>;
  /** Mounts an LV of a group as the operating system does. @returns what removes it */
  mountAsHost(group: string): Promise<AsyncDisposable>;
  /** Removes the loop devices and mappings. */
  removeDevices(): Promise<void>;
}

const MiB = 1n << 20n;

/** What is made over a block volume. */
const DEVICES = {
  "the loop device of kubelet": { isEncrypted: false, over: (machine, path) => machine.addLoop(path) },
  "the mapping of an encrypted volume": { isEncrypted: true, over: (_, path) => Promise.resolve(path) },
  "the loop device of kubelet over a mapping": { isEncrypted: true, over: (machine, path) => machine.addLoop(path) },
  "a mapping of another program": { isEncrypted: false, over: (machine, path) => machine.addMapping(path) },
  "a mapping over a loop device": {
    isEncrypted: false,
    over: async (machine, path) => await machine.addMapping(await machine.addLoop(path)),
  },
} satisfies Record<
  string,
  {
    readonly isEncrypted: boolean;
    readonly over: (machine: StackedMachine, path: string) => Promise<string>;
  }
>;

/** Registers the tests. */
export function stackedDevicesContract(host: StackedHost): void {
  const [group] = host.groups;
  const test = (name: string, body: (harness: Harness, machine: StackedMachine) => Promise<void>) =>
    Deno.test(`${name} [${host.name}]`, async () => {
      await using machine = await host.setUp();
      await using harness = await Harness.start(
        machine.exec,
        host.groups,
        (exec, groups, folder) => Harness.serve(exec, groups, folder, { groups: ANY_GROUP }),
      );
      await body(harness, machine);
    });
  const groupsOf = async (exec: Exec) =>
    (await new Lvm(exec).report()).map(({ name, pvPaths, free }) => `${name} on ${pvPaths} with ${free}`).sort();

  for (const [device, { isEncrypted, over }] of Object.entries(DEVICES)) {
    const write = {
      "a group of their own": (machine: StackedMachine, path: string) => machine.addGroup("aaa-tenant", path),
      "a group with the name of the machine's": (machine: StackedMachine, path: string) =>
        machine.addGroup(group, path),
      "a copy of the machine's physical volume": (machine: StackedMachine, path: string) => machine.copyPv(group, path),
    };
    for (const [content, writeTo] of Object.entries(write)) {
      test(`${device}: ${content} is no group of the machine`, async (harness, machine) => {
        const secrets = isEncrypted ? { passphrase: "a secret of the tenant" } : undefined;
        const id = await harness.create({
          capacityRange: { requiredBytes: 96n * MiB },
          volumeCapabilities: [blockCapability()],
          parameters: { volumeGroup: group, ...(isEncrypted ? { encryption: "luks2" } : {}) },
        });
        await harness.stage(id, blockCapability(), secrets && { secrets });
        await harness.publish(id, "pod", { volumeCapability: blockCapability(), ...(secrets && { secrets }) });
        await using _ = {
          [Symbol.asyncDispose]: async () => {
            await machine.removeDevices();
            await harness.csi.node.nodeUnpublishVolume({ volumeId: id, targetPath: `${harness.folder}/pod` });
            await harness.csi.node.nodeUnstageVolume({ volumeId: id, stagingTargetPath: `${harness.folder}/staging` });
            await harness.csi.controller.deleteVolume({ volumeId: id });
            await harness.waitUntilIdle();
          },
        };
        const before = await groupsOf(machine.exec);
        const published = isEncrypted ? mappingPath(parseVolumeId(id)!) : (await harness.singleLv()).devicePath;
        const path = await over(machine, published);
        await writeTo(machine, path);
        assert((await groupsOf(machine.hostExec)).join() !== before.join() || content.includes("copy"));

        assertEquals(await groupsOf(machine.exec), before);
        assertEquals((await readSurvey(machine.exec)).groups.flatMap(({ pvPaths }) => pvPaths).includes(path), false);
        // the group is used as before: by name, without one, for what is there and what is new
        const [small, named] = [
          await harness.create({ volumeCapabilities: [blockCapability()] }),
          await harness.create({ parameters: { volumeGroup: group }, volumeCapabilities: [blockCapability()] }),
        ];
        const lvs = (await new Lvm(machine.exec).report()).flatMap(({ name, lvs }) => lvs.map(() => name));
        assertEquals(lvs.every((name) => host.groups.includes(name)), true, lvs.join());
        await harness.csi.controller.controllerExpandVolume({
          volumeId: named,
          capacityRange: { requiredBytes: 64n * MiB },
          ...(secrets && { secrets }),
          volumeCapability: blockCapability(),
        });
        for (const volumeId of [small, named]) await harness.csi.controller.deleteVolume({ volumeId });
        await harness.waitUntilIdle();

        // the label is what udev has read of it
        const { findings } = await examine({ exec: machine.exec, driver: "x", groups: ANY_GROUP });
        const told = findings.filter(({ check, remedy }) => check === "filters" && remedy?.includes(HOST_PATTERN));
        assert(told.length > 0, "the host's own LVM still reads it");
      });
    }
  }

  test("a group with a mounted filesystem of the host is used only by who names it", async (harness, machine) => {
    await using _ = await machine.mountAsHost(group);
    const [any, named] = [
      await harness.create({ volumeCapabilities: [blockCapability()] }),
      await harness.create({ parameters: { volumeGroup: group }, volumeCapabilities: [blockCapability()] }),
    ];
    const report = await new Lvm(machine.exec).report();
    const of = (id: string) =>
      report.find(({ lvs }) => lvs.some(({ tags }) => tags.some((tag) => tag.includes(id))))?.name;
    assertEquals([of(any), of(named)], [host.groups[1], group]);
    assertMatch(report.find(({ name }) => name === group)!.hostUse!, /^\S+ \(mounted\)$/);
    for (const volumeId of [any, named]) await harness.csi.controller.deleteVolume({ volumeId });
    await harness.waitUntilIdle();
  });

  test(
    "nothing is changed in a group while LVM finds a copy of its disk, as a clone that somebody attached",
    async (harness, machine) => {
      const { controller } = harness.csi;
      const parameters = { volumeGroup: group };
      const volumeId = await harness.create({ parameters, volumeCapabilities: [blockCapability()] });
      const before = await groupsOf(machine.exec);
      await machine.copyPv(group, await machine.addLoop(await machine.addFile()));
      assertEquals((await controller.listVolumes({})).entries.length, 1); // by a report
      const refusal = "with duplicate PV devices";
      await assertFails("RESOURCE_EXHAUSTED", harness.create({ name: "another", parameters }), refusal);
      const capacityRange = { requiredBytes: 64n * MiB };
      const expansion = controller.controllerExpandVolume({
        volumeId,
        capacityRange,
        volumeCapability: blockCapability(),
      });
      await assertFails("FAILED_PRECONDITION", expansion, refusal);
      await assertFails("FAILED_PRECONDITION", controller.deleteVolume({ volumeId }), refusal);
      await machine.removeDevices();
      assertEquals(await groupsOf(machine.exec), before);
      await controller.deleteVolume({ volumeId });
      await harness.waitUntilIdle();
      assertEquals(await harness.lvs(), []);
    },
  );

  test("a group on a loop device of a file is a group of the machine", async (_, machine) => {
    const path = await machine.addLoop(await machine.addFile());
    await machine.addGroup("on-file", path);
    const found = (await groupsOf(machine.exec)).filter((text) => text.startsWith("on-file"));
    assertEquals(found.map((text) => text.replace(/ with .*/, "")), [`on-file on ${path}`]);
  });
}
