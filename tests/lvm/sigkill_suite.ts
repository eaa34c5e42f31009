/**
 * Kills the driver with its child processes by SIGKILL during its calls: about every third one, with FULL each. `deno test` runs this in the guest, as one bundle.
 * DATA_DISK names an empty disk, DRIVER the driver.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { connect, type FullCsiClient } from "../contract/helpers/csi_client.ts";
import { testCommand } from "../../lvm/encryption/cryptsetup.ts";
import { Passphrase } from "../../lvm/encryption/passphrase.ts";
import { HostExec } from "../../lvm/exec.ts";
import { Lvm } from "../../lvm/client/client.ts";
import { readMappedDevices } from "../../lvm/host/device_mapper.ts";
import { blockCapability, type Capability, mountCapability } from "../contract/helpers/host.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import { run } from "../demo/command.ts";
import { isSkipped } from "./helpers/skipped_tests.ts";
import { eventually, retryCall } from "./helpers/retry.ts";
import { seededRandom } from "../rig/seeded_random.ts";

const GROUP = "kills";
const DRIVER = Deno.env.get("DRIVER") ?? "";

await run(`make the volume group ${GROUP}`, "lvm", ["vgcreate", "--yes", GROUP, Deno.env.get("DATA_DISK") ?? ""]);

/** A driver in a control group of its own, by which it can be killed with its child processes. */
class KillableDriver {
  readonly csi: FullCsiClient;
  readonly #child: Deno.ChildProcess;
  readonly #cgroup: string;

  private constructor(child: Deno.ChildProcess, cgroup: string, socket: string) {
    this.#child = child;
    this.#cgroup = cgroup;
    this.csi = connect(socket);
  }

  static async start(folder: string): Promise<KillableDriver> {
    const cgroup = `/sys/fs/cgroup/victim-${crypto.randomUUID()}`;
    const socket = `${folder}/csi.sock`;
    await Deno.mkdir(cgroup);
    const flags = [
      "--endpoint",
      `unix://${socket}`,
      "--node-id",
      "node-1",
      "--volume-groups",
      GROUP,
      "--mount-roots",
      folder,
      "--thin-pool-remove-empty",
    ];
    const command = [
      "sh",
      "-c",
      `echo $$ > ${cgroup}/cgroup.procs; exec "$@"`,
      "driver",
      DRIVER,
      "standalone",
      ...flags,
    ];
    const child = new Deno.Command(command[0]!, { args: command.slice(1), stdout: "null", stderr: "null" }).spawn();
    const driver = new KillableDriver(child, cgroup, socket);
    await retryCall(() => driver.csi.identity.probe());
    return driver;
  }

  async kill(): Promise<void> {
    this.csi[Symbol.dispose]();
    await Deno.writeTextFile(`${this.#cgroup}/cgroup.kill`, "1");
    await this.#child.status;
    await eventually(() => Deno.remove(this.#cgroup));
  }
}

/** Of how many calls, on average, one is killed: a start after each takes seconds. */
const ONE_KILL_IN = Deno.env.get("FULL") === "1" ? 1 : 3;

/**
 * The latest time after the start of a call at which the driver is killed, in milliseconds: about the duration of a
 * call here.
 */
const MAX_KILL_DELAY_MS = 1_500;

/** The same for calls that derive keys, and that encrypt data again. */
const MAX_ENCRYPTED_KILL_DELAY_MS = 8_000;

/** The passphrases of an encrypted volume, in turn. */
const PASSPHRASES: readonly string[] = ["first", "second", "third"].map((word) => `${word} passphrase`);

/** The size of a volume, in MiB. */
const VOLUME_MIB = 32n;

/** What a test writes, and reads again: the first MiB of a file, or of a device. */
const BLOCKS = ["bs=65536", "count=16", "status=none"];

/** Returns those of some passphrases that open a LUKS header on an active LV of the group, but for snapshots. */
async function openedBy(passphrases: readonly string[]): Promise<string[]> {
  const exec = new HostExec();
  const opened = new Set<string>();
  for (const { devicePath } of (await readGroup()).lvs.filter(({ active, origin }) => active && origin === undefined)) {
    for (const passphrase of passphrases) {
      const { code } = await exec.run(testCommand(devicePath, new Passphrase(passphrase)));
      if (code === 0) opened.add(passphrase);
    }
  }
  return [...opened];
}

async function runLifecycle(
  seed: number,
  volumeCapability: Capability,
  parameters: Record<string, string>,
): Promise<void> {
  const random = seededRandom(seed);
  const folder = await Deno.makeTempDir({ prefix: "denolith-kills-" });
  const [stagingTargetPath, targetPath] = [`${folder}/staging`, `${folder}/pod`];
  let driver = await KillableDriver.start(folder);
  let volumeId = "";
  let snapshotId = "";
  let secondSnapshotId = "";
  let checksum = "";
  let secrets: Record<string, string> = { passphrase: PASSPHRASES[0]! };
  const isEncrypted = parameters["encryption"] !== undefined;
  const dataPath = volumeCapability.accessType?.case === "block" ? targetPath : `${targetPath}/data`;
  const readChecksum = async () => {
    await run("read", "dd", [`if=${dataPath}`, `of=${folder}/read`, ...BLOCKS]);
    return await run("sum", "sha256sum", [`${folder}/read`]);
  };
  type Steps = Record<string, (csi: FullCsiClient) => Promise<unknown>>;
  /** What changed since the snapshot is listed by the metadata snapshot of the pool. */
  const listSteps: Steps = {
    secondSnapshot: async ({ controller }) => {
      const { snapshot } = await controller.createSnapshot({ name: `again ${seed}`, sourceVolumeId: volumeId });
      secondSnapshotId = snapshot!.snapshotId;
    },
    list: async ({ snapshotMetadata }) => {
      const request = { baseSnapshotId: snapshotId, targetSnapshotId: secondSnapshotId };
      for await (const _ of snapshotMetadata.getMetadataDelta(request));
    },
    deleteSecondSnapshot: ({ controller }) => controller.deleteSnapshot({ snapshotId: secondSnapshotId }),
  };
  const stage = ({ node }: FullCsiClient) =>
    node.nodeStageVolume({ volumeId, stagingTargetPath, volumeCapability, secrets });
  const publish = ({ node }: FullCsiClient) =>
    node.nodePublishVolume({ volumeId, stagingTargetPath, targetPath, volumeCapability, secrets });
  /** The passphrase is changed while the volume is in use. The call succeeds in any case, so it is repeated until it is done. */
  const changeStep: Steps = {
    changePassphrase: async (csi) => {
      secrets = { passphrase: PASSPHRASES[1]!, previousPassphrase: PASSPHRASES[0]! };
      await publish(csi);
      assertEquals(await openedBy(PASSPHRASES), [PASSPHRASES[1]]);
    },
  };
  const steps: Steps = {
    create: async ({ controller }) => {
      const capacityRange = { requiredBytes: VOLUME_MIB << 20n };
      const request = { name: `killed ${seed}`, capacityRange, volumeCapabilities: [volumeCapability], parameters };
      volumeId = (await controller.createVolume(request)).volume!.volumeId;
    },
    stage,
    publish,
    write: async () => {
      await run("write", "dd", ["if=/dev/urandom", `of=${dataPath}`, ...BLOCKS, "conv=fsync,notrunc"]);
      checksum = await readChecksum();
    },
    expand: ({ controller }) =>
      controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes: 2n * VOLUME_MIB << 20n } }),
    grow: ({ node }) => node.nodeExpandVolume({ volumeId, volumePath: targetPath, volumeCapability }),
    snapshot: async ({ controller }) => {
      const request = { name: `killed ${seed}`, sourceVolumeId: volumeId, parameters: { snapSize: "8Mi" } };
      snapshotId = (await controller.createSnapshot(request)).snapshot!.snapshotId;
    },
    ...(parameters["thinProvision"] === "yes" ? listSteps : {}),
    deleteSnapshot: ({ controller }) => controller.deleteSnapshot({ snapshotId }),
    ...(isEncrypted ? changeStep : {}),
    unpublish: ({ node }) => node.nodeUnpublishVolume({ volumeId, targetPath }),
    unstage: ({ node }) => node.nodeUnstageVolume({ volumeId, stagingTargetPath }),
    stageAgain: async (csi) => {
      if (isEncrypted) {
        secrets = { passphrase: PASSPHRASES[2]!, previousPassphrase: PASSPHRASES[1]!, volumeKey: "next" };
      }
      await stage(csi);
      if (isEncrypted) assertEquals(await openedBy(PASSPHRASES), [PASSPHRASES[2]]);
    },
    publishAgain: publish,
    read: async () => {
      assertEquals(await readChecksum(), checksum, "the data is another");
    },
    unpublishAgain: ({ node }) => node.nodeUnpublishVolume({ volumeId, targetPath }),
    unstageAgain: ({ node }) => node.nodeUnstageVolume({ volumeId, stagingTargetPath }),
    delete: ({ controller }) => controller.deleteVolume({ volumeId }),
  };
  const log: string[] = [];
  try {
    for (const [name, step] of Object.entries(steps)) {
      if (!["write", "read"].includes(name) && random() * ONE_KILL_IN < 1) {
        const delay = Math.round(random() * (isEncrypted ? MAX_ENCRYPTED_KILL_DELAY_MS : MAX_KILL_DELAY_MS));
        const isAnswered = await Promise.race([
          step(driver.csi).then(() => true, () => false),
          new Promise<boolean>((resolve) => setTimeout(() => resolve(false), delay)),
        ]);
        log.push(`${name}: killed after ${delay} ms${isAnswered ? ", its answer given" : ""}`);
        await driver.kill();
        driver = await KillableDriver.start(folder);
      }
      await retryCall(() => step(driver.csi));
    }
    const lvm = new Lvm(new HostExec());
    await eventually(async () => {
      const group = (await lvm.report()).find(({ name }) => name === GROUP)!;
      assertEquals([group.lvs.map(({ name, tags }) => `${name} ${tags}`), group.tags], [[], []], "left in the group");
      assertEquals(group.free, group.size);
    });
    assertEquals([...Deno.readDirSync(folder)].map(({ name }) => name).filter((name) => name === "pod"), []);
  } catch (error) {
    throw new Error(`seed ${seed}: ${log.join("; ")}: ${error}`, { cause: error });
  } finally {
    await driver.kill();
  }
}

/** The latest time after the first suspension, or the start of a deletion, at which the driver is killed, in milliseconds. */
const MAX_GROUP_KILL_DELAY_MS = { create: 400, delete: 2_000 };

/** How often a driver is killed while it takes a group snapshot, and while it deletes it. */
const GROUP_KILLS = Deno.env.get("FULL") === "1" ? 10 : 3;

/** Returns the LVs of the group, and their pool. */
async function readGroup(): Promise<VolumeGroup> {
  return (await new Lvm(new HostExec()).report()).find(({ name }) => name === GROUP)!;
}

/** Waits until a device is suspended, or a call is over. */
async function waitUntilSuspended(isOver: () => boolean): Promise<void> {
  const exec = new HostExec();
  while (!isOver() && !(await readMappedDevices(exec)).some(({ suspended }) => suspended)) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Kills drivers while they take and delete a group snapshot of a thick volume and a thin one, to which a pod writes. */
async function runGroupLifecycle(seed: number): Promise<void> {
  const random = seededRandom(seed);
  const folder = await Deno.makeTempDir({ prefix: "denolith-kills-" });
  let driver = await KillableDriver.start(folder);
  const log: string[] = [];
  const volumes: { id: string; target: string; checksum: string }[] = [];
  const volumeCapability = blockCapability();

  const checksumOf = async (device: string) => {
    await run("read", "dd", [`if=${device}`, `of=${folder}/read`, ...BLOCKS, "iflag=direct"]);
    return await run("sum", "sha256sum", [`${folder}/read`]);
  };
  const deviceOf = async (snapshotId: string) =>
    (await readGroup()).lvs.find(({ tags }) => tags.includes(`denolith.snapshot=${snapshotId}`))!.devicePath;
  const write = async () => {
    for (const volume of volumes) {
      await run("write", "dd", ["if=/dev/urandom", `of=${volume.target}`, ...BLOCKS, "conv=fsync,notrunc"]);
      volume.checksum = await checksumOf(volume.target);
    }
  };
  /** Makes a call again and again, each time with a driver that is killed meanwhile. */
  const killDuring = async (
    name: keyof typeof MAX_GROUP_KILL_DELAY_MS,
    call: (csi: FullCsiClient) => Promise<unknown>,
  ) => {
    for (let kill = 0; kill < GROUP_KILLS; kill++) {
      let [isAnswered, isOver] = [false, false];
      const ended = call(driver.csi).then(() => void (isAnswered = true), () => {}).finally(() => isOver = true);
      const begun = name === "create" ? waitUntilSuspended(() => isOver) : Promise.resolve();
      const delay = Math.round(random() * MAX_GROUP_KILL_DELAY_MS[name]);
      await Promise.race([ended, begun.then(() => new Promise((resolve) => setTimeout(resolve, delay)))]);
      await driver.kill();
      const suspended = (await readGroup()).lvs.filter((lv) => lv.suspended).length;
      log.push(`${name}: killed after ${delay} ms, ${isAnswered ? "answered" : `${suspended} suspended`}`);
      driver = await KillableDriver.start(folder);
      if (name === "create") await snapshotAlone(kill);
    }
  };
  /** Takes a snapshot of the thin volume, which may still be suspended, and reads it. */
  const snapshotAlone = async (kill: number) => {
    const { id: sourceVolumeId, checksum } = volumes[1]!;
    const request = { name: `alone ${seed} ${kill}`, sourceVolumeId };
    const { snapshot } = await retryCall(() => driver.csi.controller.createSnapshot(request));
    const { snapshotId } = snapshot!;
    assertEquals(await checksumOf(await deviceOf(snapshotId)), checksum, "the snapshot alone is another");
    await retryCall(() => driver.csi.controller.deleteSnapshot({ snapshotId }));
  };

  try {
    for (const parameters of [{}, { thinProvision: "yes", thinPoolSize: "200Mi" }] as Record<string, string>[]) {
      const name = `killed ${seed} ${volumes.length}`;
      const capacityRange = { requiredBytes: 32n << 20n };
      const request = { name, capacityRange, parameters, volumeCapabilities: [volumeCapability] };
      const { volume } = await driver.csi.controller.createVolume(request);
      const [volumeId, target] = [volume!.volumeId, `${folder}/pod-${volumes.length}`];
      const stagingTargetPath = `${folder}/staging-${volumes.length}`;
      await driver.csi.node.nodeStageVolume({ volumeId, stagingTargetPath, volumeCapability });
      await driver.csi.node.nodePublishVolume({ volumeId, stagingTargetPath, targetPath: target, volumeCapability });
      volumes.push({ id: volumeId, target, checksum: "" });
    }
    await write();
    const request = {
      name: `killed ${seed}`,
      sourceVolumeIds: volumes.map(({ id }) => id),
      parameters: { snapSize: "8Mi" },
    };
    await killDuring("create", ({ group }) => group.createVolumeGroupSnapshot(request));
    const { groupSnapshot } = await retryCall(() => driver.csi.group.createVolumeGroupSnapshot(request));
    const { groupSnapshotId, snapshots } = groupSnapshot!;
    const before = new Map(volumes.map(({ id, checksum }) => [id, checksum]));
    await write();
    assertEquals((await readGroup()).lvs.filter(({ suspended }) => suspended), [], "suspended");
    for (const { snapshotId, sourceVolumeId } of snapshots) {
      assertEquals(await checksumOf(await deviceOf(snapshotId)), before.get(sourceVolumeId), "the snapshot is another");
    }
    await killDuring("delete", ({ group }) => group.deleteVolumeGroupSnapshot({ groupSnapshotId, snapshotIds: [] }));
    await retryCall(() => driver.csi.group.deleteVolumeGroupSnapshot({ groupSnapshotId, snapshotIds: [] }));
    for (const [index, { id: volumeId, target, checksum }] of volumes.entries()) {
      assertEquals(await checksumOf(target), checksum, "the data is another");
      await retryCall(() => driver.csi.node.nodeUnpublishVolume({ volumeId, targetPath: target }));
      const stagingTargetPath = `${folder}/staging-${index}`;
      await retryCall(() => driver.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath }));
      await retryCall(() => driver.csi.controller.deleteVolume({ volumeId }));
    }
    await eventually(async () => {
      const { lvs, tags } = await readGroup();
      assertEquals([lvs.map(({ name, tags }) => `${name} ${tags}`), tags], [[], []], "left in the group");
    });
    await run("check", "vgck", [GROUP]);
    console.log(log.join("; "));
  } catch (error) {
    throw new Error(`seed ${seed}: ${log.join("; ")}: ${error}`, { cause: error });
  } finally {
    await driver.kill();
  }
}

const SEED = Number(Deno.env.get("SEED") || Date.now() % 1_000_000);

const LIFECYCLES: readonly (readonly [string, Capability, Record<string, string>])[] = [
  ["ext4", mountCapability("ext4"), {}],
  ["block", blockCapability(), {}],
  ["an encrypted ext4", mountCapability("ext4"), { encryption: "luks2" }],
  ["block in a thin pool", blockCapability(), { thinProvision: "yes", thinPoolSize: "512Mi", erase: "none" }],
];

for (const [index, [name, capability, parameters]] of LIFECYCLES.entries()) {
  const title = `a driver that is killed with its child processes during its calls continues after a restart: ${name}`;
  Deno.test(`${title}, seed ${SEED + index} [lvm]`, { ignore: isSkipped(title) }, async () => {
    await runLifecycle(SEED + index, capability, parameters);
  });
}

const GROUP_TITLE = "drivers that are killed with their child processes during group snapshots leave nothing suspended";
Deno.test(`${GROUP_TITLE}, seed ${SEED + 2} [lvm]`, { ignore: isSkipped(GROUP_TITLE) }, async () => {
  await runGroupLifecycle(SEED + 2);
});
