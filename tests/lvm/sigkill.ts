/**
 * Kills the driver with its child processes by SIGKILL during its calls: about every third one, with FULL each. `deno test` runs this in the guest, as one bundle.
 * DATA_DISK names an empty disk, DRIVER the driver.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { connect, type FullCsiClient } from "../contract/csi_client.ts";
import { HostExec } from "../../lvm/exec.ts";
import { Lvm } from "../../lvm/client/client.ts";
import { blockCapability, type Capability, mountCapability } from "../contract/host.ts";
import { run } from "../demo/command.ts";
import { isSkipped } from "./skipped_tests.ts";
import { eventually, retryCall } from "./retry.ts";
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
      ...Deno.env.get("LVM_SHELL") === "1" ? ["--lvm-shell"] : [],
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

/** The size of a volume, in MiB. */
const VOLUME_MIB = 32n;

/** What a test writes, and reads again: the first MiB of a file, or of a device. */
const BLOCKS = ["bs=65536", "count=16", "status=none"];

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
  const steps: Steps = {
    create: async ({ controller }) => {
      const capacityRange = { requiredBytes: VOLUME_MIB << 20n };
      const request = { name: `killed ${seed}`, capacityRange, volumeCapabilities: [volumeCapability], parameters };
      volumeId = (await controller.createVolume(request)).volume!.volumeId;
    },
    stage: ({ node }) => node.nodeStageVolume({ volumeId, stagingTargetPath, volumeCapability }),
    publish: ({ node }) => node.nodePublishVolume({ volumeId, stagingTargetPath, targetPath, volumeCapability }),
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
    unpublish: ({ node }) => node.nodeUnpublishVolume({ volumeId, targetPath }),
    unstage: ({ node }) => node.nodeUnstageVolume({ volumeId, stagingTargetPath }),
    stageAgain: ({ node }) => node.nodeStageVolume({ volumeId, stagingTargetPath, volumeCapability }),
    publishAgain: ({ node }) => node.nodePublishVolume({ volumeId, stagingTargetPath, targetPath, volumeCapability }),
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
        const delay = Math.round(random() * MAX_KILL_DELAY_MS);
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

const SEED = Number(Deno.env.get("SEED") || Date.now() % 1_000_000);

const LIFECYCLES: readonly (readonly [string, Capability, Record<string, string>])[] = [
  ["ext4", mountCapability("ext4"), {}],
  ["block", blockCapability(), {}],
  ["block in a thin pool", blockCapability(), { thinProvision: "yes", thinPoolSize: "512Mi", erase: "none" }],
];

for (const [index, [name, capability, parameters]] of LIFECYCLES.entries()) {
  const title = `a driver that is killed with its child processes during its calls continues after a restart: ${name}`;
  Deno.test(`${title}, seed ${SEED + index} [lvm]`, { ignore: isSkipped(title) }, async () => {
    await runLifecycle(SEED + index, capability, parameters);
  });
}
