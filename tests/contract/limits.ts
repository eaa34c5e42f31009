/**
 * Contract: limits of IO are recorded, change while a pod has the volume, and hold by the pod's cgroup.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { dirname } from "@std/path";
import { ControllerServiceCapability_RPC_Type as Rpc } from "../../csi/proto/csi_pb.ts";
import { ratesIn } from "../../lvm/staging/cgroups.ts";
import type { IoRates } from "../../lvm/spec/io_limits.ts";
import { until } from "../fake/cluster.ts";
import {
  assertFails,
  Bench,
  blockCapability,
  contract,
  type Host,
  mountCapability,
  type Serve,
  volumeRequest,
} from "./host.ts";

const POD = "0a1b2c3d-1111-2222-3333-444455556666";
const OTHER_POD = "0a1b2c3d-1111-2222-3333-777788889999";

/** What of a target tells kubelet's, below the folder of a test. */
const TARGETS = {
  mount: (pod: string) => `pods/${pod}/volumes/kubernetes.io~csi/pvc-1/mount`,
  block: (pod: string) => `plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/${pod}`,
};

const NO_RATES: IoRates = { readIops: "max", writeIops: "max", readBps: "max", writeBps: "max" };

/** Parameters that are refused, and a word of the answer. */
const REFUSED: readonly (readonly [string, Record<string, string>])[] = [
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

/** A driver alone that knows where cgroups are: `cgroup` in the folder of a test. */
const serveLimiting: Serve = (exec, groups, folder) =>
  Bench.serve(exec, groups, folder, { cgroupRoot: `${folder}/cgroup` });

/** Registers the tests. */
export function limitsContract(machine: Host): void {
  const host = { ...machine, serve: machine.serve ?? serveLimiting };

  for (const [kind, capability] of [["mount", mountCapability()], ["block", blockCapability()]] as const) {
    contract(host, `a pod is held to the limits of its volume (${kind}), also when they change`, async (bench) => {
      await using cgroups = await host.cgroups(`${bench.folder}/cgroup`);
      const file = await cgroups.addPod(POD);
      const volumeId = await bench.create({
        volumeCapabilities: [capability],
        parameters: { readIops: "500", readBps: "4Mi", writeIopsPerGiB: "50" },
        mutableParameters: { readBps: "8Mi" },
      });
      await bench.stage(volumeId, capability);
      const targetPath = await publish(bench, volumeId, TARGETS[kind](POD), capability);
      const device = (await bench.onlyLv()).deviceNumber!;
      const rates = async () => ratesIn(await Deno.readTextFile(file), device);
      // before the call is answered, and so before the pod's containers start
      const first = { ...NO_RATES, readIops: 500n, readBps: 8n << 20n, writeIops: 50n };
      assertEquals(await rates(), first);

      const modify = (mutableParameters: Record<string, string>) =>
        bench.csi.controller.controllerModifyVolume({ volumeId, mutableParameters });
      await modify({ readIops: "100", writeIops: "max", writeBps: "2Mi" });
      const second = { ...first, readIops: 100n, writeIops: "max", writeBps: 2n << 20n } as const;
      await becomes(file, device, second);
      await modify({});
      await modify({ readIops: "100" });
      for (const [word, mutableParameters] of REFUSED) {
        await assertFails("INVALID_ARGUMENT", modify(mutableParameters), word);
      }
      await bench.settled();
      assertEquals(await rates(), second);

      // to another pod they apply anew
      const other = await cgroups.addPod(OTHER_POD);
      const otherPath = await publish(bench, volumeId, TARGETS[kind](OTHER_POD), capability);
      assertEquals(ratesIn(await Deno.readTextFile(other), device).readIops, 100n);
      for (const target of [targetPath, otherPath]) {
        await bench.csi.node.nodeUnpublishVolume({ volumeId, targetPath: target });
      }
      await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${bench.folder}/staging` });
      await bench.csi.controller.deleteVolume({ volumeId });
    });
  }

  contract(host, "limits wait for a pod whose cgroup comes after the volume", async (bench) => {
    await using cgroups = await host.cgroups(`${bench.folder}/cgroup`);
    const volumeId = await bench.create({ parameters: { readIops: "500" } });
    await bench.stage(volumeId);
    const targetPath = await publish(bench, volumeId, TARGETS.mount(POD), mountCapability());
    const file = await cgroups.addPod(POD);
    await becomes(file, (await bench.onlyLv()).deviceNumber!, { ...NO_RATES, readIops: 500n });
    await bench.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
    await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${bench.folder}/staging` });
    await bench.csi.controller.deleteVolume({ volumeId });
  });

  contract(host, "hostile: limits that are none make no volume, and no command", async (bench) => {
    const commands = await bench.exec.during(async () => {
      for (const [word, parameters] of REFUSED) {
        await assertFails("INVALID_ARGUMENT", bench.create({ parameters }), word);
        await assertFails("INVALID_ARGUMENT", bench.create({ mutableParameters: parameters }), word);
      }
      await assertFails("INVALID_ARGUMENT", bench.create({ mutableParameters: { volumeGroup: "x" } }), "mutable");
    });
    assertEquals(commands.filter((command) => !command.startsWith("lvm fullreport")), []);
  });

  contract(host, "controllerModifyVolume() is offered, and knows what is no volume", async (bench) => {
    const { capabilities } = await bench.csi.controller.controllerGetCapabilities({});
    const types = capabilities.map(({ type }) => type.case === "rpc" ? type.value.type : undefined);
    assertEquals(types.includes(Rpc.MODIFY_VOLUME), true);
    const modify = (volumeId: string) =>
      bench.csi.controller.controllerModifyVolume({ volumeId, mutableParameters: { readIops: "100" } });
    await assertFails("INVALID_ARGUMENT", modify(""), "volume_id");
    await assertFails("NOT_FOUND", modify("some-volume"));
    await assertFails("NOT_FOUND", modify("v1-00000000000000000000000000000000"));
  });

  contract(host, "createVolume() answers the volume that exists, with the limits that it has", async (bench) => {
    await using cgroups = await host.cgroups(`${bench.folder}/cgroup`);
    const file = await cgroups.addPod(POD);
    const request = volumeRequest();
    const volumeId = await bench.create({ ...request, parameters: { readIops: "500" } });
    assertEquals(await bench.create({ ...request, parameters: { readIops: "100" } }), volumeId);
    await bench.stage(volumeId);
    const targetPath = await publish(bench, volumeId, TARGETS.mount(POD), mountCapability());
    await becomes(file, (await bench.onlyLv()).deviceNumber!, { ...NO_RATES, readIops: 500n });
    await bench.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
    await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${bench.folder}/staging` });
    await bench.csi.controller.deleteVolume({ volumeId });
  });
}

/** What only a driver alone has: its records are tags. */
export function standaloneLimitsContract(host: Host): void {
  contract({ ...host, serve: serveLimiting }, "limits outlive the driver, in one tag", async (bench) => {
    await using cgroups = await host.cgroups(`${bench.folder}/cgroup`);
    const file = await cgroups.addPod(POD);
    const volumeId = await bench.create({ parameters: { readIops: "500", writeBpsPerGiB: "4Mi" } });
    await bench.stage(volumeId);
    const targetPath = await publish(bench, volumeId, TARGETS.mount(POD), mountCapability());
    const changes = await bench.exec.during(() =>
      bench.csi.controller.controllerModifyVolume({ volumeId, mutableParameters: { readIops: "100" } })
    );
    assertEquals(changes.filter((command) => command.startsWith("lvm lvchange")).length, 1);
    const lv = await bench.onlyLv();
    assertEquals(lv.tags.filter((tag) => tag.startsWith("denolith.io=")), ["denolith.io=ri100:wb4Mi/g"]);
    const device = lv.deviceNumber!;
    await bench.stop();
    await Deno.writeTextFile(file, `${device} rbps=max wbps=max riops=max wiops=max\n`);
    const options = { socket: "second.sock", cgroupRoot: `${bench.folder}/cgroup` };
    const second = await Bench.serve(bench.exec, bench.groups, bench.folder, options);
    try {
      await second.settled();
      await becomes(file, device, { ...NO_RATES, readIops: 100n, writeBps: 4n << 20n });
    } finally {
      await second.stop(10_000);
    }
    await bench.admin("umount", targetPath);
    await bench.admin("umount", `${bench.folder}/staging`);
  });

  contract(host, "without cgroups, limits are recorded, and pods run", async (bench) => {
    const volumeId = await bench.create({ parameters: { readIops: "500" } });
    await bench.stage(volumeId);
    const targetPath = await publish(bench, volumeId, TARGETS.mount(POD), mountCapability());
    await bench.csi.controller.controllerModifyVolume({ volumeId, mutableParameters: { readIops: "max" } });
    assertEquals((await bench.onlyLv()).tags.includes("denolith.io=rimax"), true);
    await bench.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
    await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${bench.folder}/staging` });
    await bench.csi.controller.deleteVolume({ volumeId });
  });
}

async function publish(
  bench: Bench,
  volumeId: string,
  name: string,
  volumeCapability: ReturnType<typeof mountCapability>,
): Promise<string> {
  await Deno.mkdir(dirname(`${bench.folder}/${name}`), { recursive: true });
  return await bench.publish(volumeId, name, { volumeCapability });
}

/** Settles when a pod's io.max says so: a loop of the driver writes it. */
async function becomes(file: string, device: string, rates: IoRates): Promise<void> {
  const isSo = () => {
    const now = ratesIn(Deno.readTextFileSync(file), device);
    return Object.entries(rates).every(([name, rate]) => now[name as keyof IoRates] === rate);
  };
  await until(isSo, `${device} in ${file} at its rates`);
}
