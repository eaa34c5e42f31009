/**
 * The driver under the permission set of deno.json, as a process of its own over real LVM: all of its work is permitted.
 * `deno test` runs this in the guest, as one bundle. DATA_DISK names an empty disk.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { connect } from "../contract/helpers/csi_client.ts";
import { HostExec } from "../../lvm/exec.ts";
import { assertFails, blockCapability, mountCapability } from "../contract/helpers/host.ts";
import { DriverProcess } from "../demo/driver_process.ts";
import { run } from "../demo/command.ts";
import { realCgroups } from "./helpers/real_host.ts";

const GROUP = "confined";
const MIB = 1n << 20n;
const FIRST = { requiredBytes: 300n * MIB };
const GROWN = { requiredBytes: 400n * MIB };

await run(`make the volume group ${GROUP}`, "lvm", ["vgcreate", "--yes", GROUP, Deno.env.get("DATA_DISK") ?? ""]);

/** Starts the driver with a client and a folder as its mount root. */
async function startDriver({ cgroups = false } = {}) {
  await using cleanup = new AsyncDisposableStack();
  const folder = await Deno.makeTempDir({ prefix: "denolith-confined-" });
  cleanup.defer(() => Deno.remove(folder, { recursive: true }));
  await Deno.mkdir(`${folder}/root`);
  const socket = `${folder}/socket/csi.sock`;
  const flags = ["--endpoint", socket, "--mount-roots", `${folder}/root`, "--volume-groups", GROUP, "--node-id", "n"];
  flags.push("--driver-name", "confined.denolith.dev"); // csi-sanity's driver may be at work beside it
  flags.push("--log-level", "debug");
  if (cgroups) flags.push("--cgroup-root", `${folder}/cgroup`);
  const driver = cleanup.use(
    await DriverProcess.start({ command: ["/work/denolith", "standalone", ...flags], socket }),
  );
  const csi = cleanup.use(connect(socket));
  const cleanups = cleanup.move();
  return { driver, csi, root: `${folder}/root`, folder, [Symbol.asyncDispose]: () => cleanups.disposeAsync() };
}

const CAPABILITIES = {
  ext4: mountCapability("ext4"),
  xfs: mountCapability("xfs"),
  btrfs: mountCapability("btrfs"),
  block: blockCapability(),
};

for (const [kind, volumeCapability] of Object.entries(CAPABILITIES)) {
  Deno.test(`under the permission set of deno.json a volume of kind ${kind} goes through its lifecycle`, async () => {
    await using fixture = await startDriver();
    const { csi: { controller, node }, driver, root, folder } = fixture;
    const request = { name: kind, capacityRange: FIRST, volumeCapabilities: [volumeCapability] };
    const volumeId = (await controller.createVolume(request)).volume!.volumeId;
    const [stagingTargetPath, targetPath] = [`${root}/staged`, `${root}/pod`];
    const use = { volumeId, stagingTargetPath, targetPath, volumeCapability };
    await assertFails("INVALID_ARGUMENT", node.nodeStageVolume({ ...use, stagingTargetPath: `${folder}/staged` }));

    await node.nodeStageVolume(use);
    await node.nodePublishVolume(use);
    const file = kind === "block" ? targetPath : `${targetPath}/file`;
    await Deno.writeTextFile(file, "data");
    await controller.controllerExpandVolume({ volumeId, capacityRange: GROWN });
    await node.nodeExpandVolume({ volumeId, volumePath: targetPath, capacityRange: GROWN, volumeCapability });
    const { usage: [bytes] } = await node.nodeGetVolumeStats({ volumeId, volumePath: targetPath });
    assert(bytes!.total > 310n * MIB, `it has ${bytes!.total} bytes`);
    assertEquals(new TextDecoder().decode(await read(file, 4)), "data");

    const { snapshot } = await controller.createSnapshot({ name: kind, sourceVolumeId: volumeId });
    await controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
    await node.nodeUnpublishVolume(use);
    await node.nodeUnstageVolume(use);
    await controller.deleteVolume({ volumeId });
    assertEquals((await controller.listVolumes()).entries, []);
    assert(![...Deno.readDirSync(root)].some(({ name }) => name === "pod"), "the target is removed");
    assertEquals(await driver.stop(), 0, driver.log().join("\n"));
    assertEquals([...Deno.readDirSync(`${folder}/socket`)], []);
    assertEquals(driver.log().filter((line) => line.includes("findmnt")), [], "the mount table is read as a file");
    assert(driver.log().some((line) => line.includes("umount --lazy")), "the mount table is opened");
  });
}

Deno.test("under the permission set of deno.json a pod is held to the limits of its volume", async () => {
  await using fixture = await startDriver({ cgroups: true });
  const { csi: { controller, node }, driver, root, folder } = fixture;
  await using cgroups = await realCgroups(new HostExec(), `${folder}/cgroup`);
  const pod = "0a1b2c3d-1111-2222-3333-555566667777";
  const file = await cgroups.addPod(pod);
  const volumeCapability = mountCapability("ext4");
  const request = { name: "limited", capacityRange: FIRST, volumeCapabilities: [volumeCapability] };
  const volumeId = (await controller.createVolume({ ...request, parameters: { readIops: "500" } })).volume!.volumeId;
  const target = `${root}/pods/${pod}/volumes/kubernetes.io~csi/pvc-1`;
  await Deno.mkdir(target, { recursive: true });
  const use = { volumeId, stagingTargetPath: `${root}/staged`, targetPath: `${target}/mount`, volumeCapability };
  await node.nodeStageVolume(use);
  await node.nodePublishVolume(use);
  const limits = await Deno.readTextFile(file);
  assertMatch(limits, /^\d+:\d+ rbps=max wbps=max riops=500 wiops=max\n$/, driver.log().join("\n"));
  await node.nodeUnpublishVolume(use);
  await node.nodeUnstageVolume(use);
  await controller.deleteVolume({ volumeId });
  assertEquals(await driver.stop(), 0, driver.log().join("\n"));
});

Deno.test("under the permission set of deno.json an encrypted volume is used, and nothing of its passphrase is in the log", async () => {
  await using fixture = await startDriver();
  const { csi: { controller, node }, driver, root } = fixture;
  const passphrase = "correct horse battery staple 91c2";
  const volumeCapability = mountCapability("ext4");
  const parameters = { encryption: "luks2" };
  const request = { name: "encrypted", capacityRange: FIRST, volumeCapabilities: [volumeCapability], parameters };
  const volumeId = (await controller.createVolume(request)).volume!.volumeId;
  const use = { volumeId, stagingTargetPath: `${root}/staged`, targetPath: `${root}/pod`, volumeCapability };
  await assertFails("INVALID_ARGUMENT", node.nodeStageVolume(use));
  await node.nodeStageVolume({ ...use, secrets: { passphrase } });
  await node.nodePublishVolume(use);
  await controller.controllerExpandVolume({ volumeId, capacityRange: GROWN });
  await node.nodeExpandVolume({ volumeId, volumePath: use.targetPath, capacityRange: GROWN, volumeCapability });
  await node.nodeUnpublishVolume(use);
  await node.nodeUnstageVolume(use);
  await assertFails("UNAUTHENTICATED", node.nodeStageVolume({ ...use, secrets: { passphrase: `${passphrase}x` } }));
  await controller.deleteVolume({ volumeId });
  assertEquals(await driver.stop(), 0, driver.log().join("\n"));
  assert(driver.log().some((line) => line.includes("luksFormat")), "commands are logged");
  assertEquals(driver.log().filter((line) => line.includes(passphrase)), []);
});

async function read(path: string, bytes: number): Promise<Uint8Array> {
  using file = await Deno.open(path);
  const buffer = new Uint8Array(bytes);
  await file.read(buffer);
  return buffer;
}
