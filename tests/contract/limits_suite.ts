/**
 * Contract: limits of IO are recorded, change while a pod has the volume, and hold by the pod's cgroup.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { dirname } from "@std/path";
import { ControllerServiceCapability_RPC_Type as Rpc } from "../../csi/proto/csi_pb.ts";
import { parseRates } from "../../lvm/staging/cgroups.ts";
import type { IoRates } from "../../lvm/settings/io_limits.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import {
  assertFails,
  blockCapability,
  contractTest,
  Harness,
  type Host,
  mountCapability,
  type Serve,
  volumeRequest,
} from "./helpers/host.ts";

const POD = "0a1b2c3d-1111-2222-3333-444455556666";
const OTHER_POD = "0a1b2c3d-1111-2222-3333-777788889999";

/** The part of a target path by which kubelet's targets differ, below the folder of a test. */
const KUBELET_TARGETS = {
  mount: (pod: string) => `pods/${pod}/volumes/kubernetes.io~csi/pvc-1/mount`,
  block: (pod: string) => `plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/${pod}`,
};

const NO_RATES: IoRates = { readIops: "max", writeIops: "max", readBps: "max", writeBps: "max" };

/** Parameters that are refused, and a word of the answer. */
const INVALID_LIMITS: readonly (readonly [string, Record<string, string>])[] = [
  ["readIops", { readIops: "0" }],
  ["readIops", { readIops: "1" }],
  ["readIops", { readIops: "-1" }],
  ["readIops", { readIops: "" }],
  ["readIops", { readIops: "many" }],
  ["readIops", { readIops: "1e3" }],
  ["writeIops", { writeIops: `${1n << 32n}` }],
  ["writeIops", { writeIops: `${1n << 64n}` }],
  ["writeBps", { writeBps: `${1n << 63n}` }],
  ["writeBps", { writeBps: "-4Mi" }],
  ["writeBps", { writeBps: "4 Mi" }],
  ["readBps", { readBps: "4Mi\n253:0 rbps=2" }],
  ["readBpsPerGiB", { readBpsPerGiB: "max" }],
  ["only one", { readIops: "5", readIopsPerGiB: "5" }],
  ["writeIops", { readIops: "100", writeIops: "0" }],
  ["readIOPS", { readIOPS: "100" }],
  ["riops", { riops: "100" }],
];

/** A driver whose cgroups are in `cgroup` in the folder of a test. */
const serveWithCgroups: Serve = (exec, groups, folder) =>
  Harness.serve(exec, groups, folder, { cgroupRoot: `${folder}/cgroup` });

/** Registers the tests. */
export function limitsContract(machine: Host): void {
  const host = { ...machine, serve: machine.serve ?? serveWithCgroups };

  for (const [kind, capability] of [["mount", mountCapability()], ["block", blockCapability()]] as const) {
    contractTest(
      host,
      `a pod is held to the limits of its volume (${kind}), also when they change`,
      async (harness) => {
        await using cgroups = await host.cgroups(`${harness.folder}/cgroup`);
        const file = await cgroups.addPod(POD);
        const volumeId = await harness.create({
          volumeCapabilities: [capability],
          parameters: { readIops: "500", readBps: "4Mi", writeIopsPerGiB: "50" },
          mutableParameters: { readBps: "8Mi" },
        });
        await harness.stage(volumeId, capability);
        const targetPath = await publish(harness, volumeId, KUBELET_TARGETS[kind](POD), capability);
        const device = (await harness.singleLv()).deviceNumber!;
        const readRates = async () => parseRates(await Deno.readTextFile(file), device);
        // before the call is answered, and so before the pod's containers start
        const first = { ...NO_RATES, readIops: 500n, readBps: 8n << 20n, writeIops: 50n };
        assertEquals(await readRates(), first);

        const modify = (mutableParameters: Record<string, string>) =>
          harness.csi.controller.controllerModifyVolume({ volumeId, mutableParameters });
        await modify({ readIops: "100", writeIops: "max", writeBps: "2Mi" });
        const second = { ...first, readIops: 100n, writeIops: "max", writeBps: 2n << 20n } as const;
        await waitForRates(file, device, second);
        await modify({});
        await modify({ readIops: "100" });
        for (const [word, mutableParameters] of INVALID_LIMITS) {
          await assertFails("INVALID_ARGUMENT", modify(mutableParameters), word);
        }
        await harness.waitUntilIdle();
        assertEquals(await readRates(), second);

        // They are applied to another pod, too.
        const other = await cgroups.addPod(OTHER_POD);
        const otherPath = await publish(harness, volumeId, KUBELET_TARGETS[kind](OTHER_POD), capability);
        assertEquals(parseRates(await Deno.readTextFile(other), device).readIops, 100n);
        for (const target of [targetPath, otherPath]) {
          await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath: target });
        }
        await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
        await harness.csi.controller.deleteVolume({ volumeId });
      },
    );
  }

  contractTest(host, "limits wait for a pod whose cgroup comes after the volume", async (harness) => {
    await using cgroups = await host.cgroups(`${harness.folder}/cgroup`);
    const volumeId = await harness.create({ parameters: { readIops: "500" } });
    await harness.stage(volumeId);
    const targetPath = await publish(harness, volumeId, KUBELET_TARGETS.mount(POD), mountCapability());
    const file = await cgroups.addPod(POD);
    await waitForRates(file, (await harness.singleLv()).deviceNumber!, { ...NO_RATES, readIops: 500n });
    await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
    await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(host, "hostile: limits that are none make no volume, and no command", async (harness) => {
    const commands = await harness.exec.recordCommands(async () => {
      for (const [word, parameters] of INVALID_LIMITS) {
        await assertFails("INVALID_ARGUMENT", harness.create({ parameters }), word);
        await assertFails("INVALID_ARGUMENT", harness.create({ mutableParameters: parameters }), word);
      }
      await assertFails("INVALID_ARGUMENT", harness.create({ mutableParameters: { volumeGroup: "x" } }), "mutable");
    });
    assertEquals(commands.filter((command) => !command.startsWith("lvm fullreport")), []);
  });

  contractTest(
    host,
    "controllerModifyVolume() is offered, and fails with NOT_FOUND without the volume",
    async (harness) => {
      const { capabilities } = await harness.csi.controller.controllerGetCapabilities({});
      const types = capabilities.map(({ type }) => type.case === "rpc" ? type.value.type : undefined);
      assertEquals(types.includes(Rpc.MODIFY_VOLUME), true);
      const modify = (volumeId: string) =>
        harness.csi.controller.controllerModifyVolume({ volumeId, mutableParameters: { readIops: "100" } });
      await assertFails("INVALID_ARGUMENT", modify(""), "volume_id");
      await assertFails("NOT_FOUND", modify("some-volume"));
      await assertFails("NOT_FOUND", modify("v1-00000000000000000000000000000000"));
    },
  );

  contractTest(host, "createVolume() answers the volume that exists, with the limits that it has", async (harness) => {
    await using cgroups = await host.cgroups(`${harness.folder}/cgroup`);
    const file = await cgroups.addPod(POD);
    const request = volumeRequest();
    const volumeId = await harness.create({ ...request, parameters: { readIops: "500" } });
    assertEquals(await harness.create({ ...request, parameters: { readIops: "100" } }), volumeId);
    await harness.stage(volumeId);
    const targetPath = await publish(harness, volumeId, KUBELET_TARGETS.mount(POD), mountCapability());
    await waitForRates(file, (await harness.singleLv()).deviceNumber!, { ...NO_RATES, readIops: 500n });
    await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
    await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
    await harness.csi.controller.deleteVolume({ volumeId });
  });
}

/** Registers the tests that only a standalone driver passes, because it keeps its records in tags. */
export function standaloneLimitsContract(host: Host): void {
  contractTest({ ...host, serve: serveWithCgroups }, "limits outlive the driver, in one tag", async (harness) => {
    await using cgroups = await host.cgroups(`${harness.folder}/cgroup`);
    const file = await cgroups.addPod(POD);
    const volumeId = await harness.create({ parameters: { readIops: "500", writeBpsPerGiB: "4Mi" } });
    await harness.stage(volumeId);
    const targetPath = await publish(harness, volumeId, KUBELET_TARGETS.mount(POD), mountCapability());
    const changes = await harness.exec.recordCommands(() =>
      harness.csi.controller.controllerModifyVolume({ volumeId, mutableParameters: { readIops: "100" } })
    );
    assertEquals(changes.filter((command) => command.startsWith("lvm lvchange")).length, 1);
    const lv = await harness.singleLv();
    assertEquals(lv.tags.filter((tag) => tag.startsWith("denolith.io=")), ["denolith.io=ri100:wb4Mi/g"]);
    const device = lv.deviceNumber!;
    await harness.stop();
    await Deno.writeTextFile(file, `${device} rbps=max wbps=max riops=max wiops=max\n`);
    const options = { socket: "second.sock", cgroupRoot: `${harness.folder}/cgroup` };
    const second = await Harness.serve(harness.exec, harness.groups, harness.folder, options);
    try {
      await second.idle();
      await waitForRates(file, device, { ...NO_RATES, readIops: 100n, writeBps: 4n << 20n });
    } finally {
      await second.stop(10_000);
    }
    await harness.runAsAdmin("umount", targetPath);
    await harness.runAsAdmin("umount", `${harness.folder}/staging`);
    await using third = await Harness.start(harness.exec, harness.groups);
    await third.csi.controller.deleteVolume({ volumeId });
    await third.waitUntilIdle();
  });

  contractTest(host, "without cgroups, limits are recorded, and pods run", async (harness) => {
    const volumeId = await harness.create({ parameters: { readIops: "500" } });
    await harness.stage(volumeId);
    const targetPath = await publish(harness, volumeId, KUBELET_TARGETS.mount(POD), mountCapability());
    await harness.csi.controller.controllerModifyVolume({ volumeId, mutableParameters: { readIops: "max" } });
    assertEquals((await harness.singleLv()).tags.includes("denolith.io=rimax"), true);
    await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
    await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
    await harness.csi.controller.deleteVolume({ volumeId });
  });
}

async function publish(
  harness: Harness,
  volumeId: string,
  name: string,
  volumeCapability: ReturnType<typeof mountCapability>,
): Promise<string> {
  await Deno.mkdir(dirname(`${harness.folder}/${name}`), { recursive: true });
  return await harness.publish(volumeId, name, { volumeCapability });
}

/** Waits until the io.max of a pod has these rates. A background task of the driver writes it. */
async function waitForRates(file: string, device: string, rates: IoRates): Promise<void> {
  const hasRates = () => {
    const now = parseRates(Deno.readTextFileSync(file), device);
    return Object.entries(rates).every(([name, rate]) => now[name as keyof IoRates] === rate);
  };
  await waitUntil(hasRates, `${device} in ${file} at its rates`);
}
