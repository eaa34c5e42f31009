/**
 * Death by SIGKILL of the driver with all that it started, in the midst of its calls: `deno test` runs this in the guest, as
 * one bundle. DATA_DISK names an empty disk, DRIVER the driver.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { connect, type CsiClient } from "../../csi/client.ts";
import { HostExec } from "../../lvm/exec.ts";
import { Lvm } from "../../lvm/model/client.ts";
import { blockCapability, type Capability, mountCapability } from "../contract/host.ts";
import { run } from "../demo/command.ts";
import { isLeftOut } from "./left_out.ts";
import { until } from "./until.ts";

const GROUP = "deaths";
const DRIVER = Deno.env.get("DRIVER") ?? "";

await run(`make the volume group ${GROUP}`, "lvm", ["vgcreate", "--yes", GROUP, Deno.env.get("DATA_DISK") ?? ""]);

/** A driver in a control group of its own, by which it can be killed with all that it started. */
class Victim {
  readonly csi: CsiClient;
  readonly #child: Deno.ChildProcess;
  readonly #cgroup: string;

  private constructor(child: Deno.ChildProcess, cgroup: string, socket: string) {
    this.#child = child;
    this.#cgroup = cgroup;
    this.csi = connect(socket);
  }

  static async start(folder: string): Promise<Victim> {
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
    const victim = new Victim(child, cgroup, socket);
    await until(() => victim.csi.identity.probe());
    return victim;
  }

  async kill(): Promise<void> {
    this.csi[Symbol.dispose]();
    await Deno.writeTextFile(`${this.#cgroup}/cgroup.kill`, "1");
    await this.#child.status;
    await until(() => Deno.remove(this.#cgroup));
  }
}

/** Numbers from 0 to 1 that are the same for the same seed (mulberry32). */
function random(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Of how many calls, on average, one is killed: a start after each takes seconds on an emulated machine. */
const KILLED_OF = 3;

/** How long after a call's begin the driver is killed at most, in milliseconds: about as long as calls take here. */
const KILL_MS = 1_500;

async function live(seed: number, volumeCapability: Capability, mib: bigint): Promise<void> {
  const next = random(seed);
  const folder = await Deno.makeTempDir({ prefix: "denolith-deaths-" });
  const [stagingTargetPath, targetPath] = [`${folder}/staging`, `${folder}/pod`];
  let victim = await Victim.start(folder);
  let volumeId = "";
  let snapshotId = "";
  let uuid = "";
  const steps: Record<string, (csi: CsiClient) => Promise<unknown>> = {
    create: async ({ controller }) => {
      const capacityRange = { requiredBytes: mib << 20n };
      const request = { name: `killed ${seed}`, capacityRange, volumeCapabilities: [volumeCapability] };
      volumeId = (await controller.createVolume(request)).volume!.volumeId;
    },
    stage: ({ node }) => node.nodeStageVolume({ volumeId, stagingTargetPath, volumeCapability }),
    publish: ({ node }) => node.nodePublishVolume({ volumeId, stagingTargetPath, targetPath, volumeCapability }),
    write: async () => {
      const path = volumeCapability.accessType?.case === "block" ? targetPath : `${targetPath}/data`;
      await run("write", "dd", ["if=/dev/urandom", `of=${path}`, "bs=65536", "count=16", "conv=fsync,notrunc"]);
      uuid = await run("sum", "sha256sum", [path]);
    },
    expand: ({ controller }) =>
      controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes: (mib + 32n) << 20n } }),
    grow: ({ node }) => node.nodeExpandVolume({ volumeId, volumePath: targetPath, volumeCapability }),
    snapshot: async ({ controller }) => {
      const request = { name: `killed ${seed}`, sourceVolumeId: volumeId, parameters: { snapSize: "8Mi" } };
      snapshotId = (await controller.createSnapshot(request)).snapshot!.snapshotId;
    },
    deleteSnapshot: ({ controller }) => controller.deleteSnapshot({ snapshotId }),
    unpublish: ({ node }) => node.nodeUnpublishVolume({ volumeId, targetPath }),
    unstage: ({ node }) => node.nodeUnstageVolume({ volumeId, stagingTargetPath }),
    stageAgain: ({ node }) => node.nodeStageVolume({ volumeId, stagingTargetPath, volumeCapability }),
    publishAgain: ({ node }) => node.nodePublishVolume({ volumeId, stagingTargetPath, targetPath, volumeCapability }),
    read: async () => {
      if (volumeCapability.accessType?.case === "block") return;
      assertEquals(await run("sum", "sha256sum", [`${targetPath}/data`]), uuid, "the data is another");
    },
    unpublishAgain: ({ node }) => node.nodeUnpublishVolume({ volumeId, targetPath }),
    unstageAgain: ({ node }) => node.nodeUnstageVolume({ volumeId, stagingTargetPath }),
    delete: ({ controller }) => controller.deleteVolume({ volumeId }),
  };
  const log: string[] = [];
  try {
    for (const [name, step] of Object.entries(steps)) {
      if (!["write", "read"].includes(name) && next() * KILLED_OF < 1) {
        const delay = Math.round(next() * KILL_MS);
        const done = await Promise.race([
          step(victim.csi).then(() => true, () => false),
          new Promise<boolean>((resolve) => setTimeout(() => resolve(false), delay)),
        ]);
        log.push(`${name}: killed after ${delay} ms${done ? ", its answer given" : ""}`);
        await victim.kill();
        victim = await Victim.start(folder);
      }
      await until(() => step(victim.csi));
    }
    const lvm = new Lvm(new HostExec());
    await until(async () => {
      const group = (await lvm.report()).find(({ name }) => name === GROUP)!;
      assertEquals([group.lvs.map(({ name, tags }) => `${name} ${tags}`), group.tags], [[], []], "left in the group");
      assertEquals(group.free, group.size);
    });
    assertEquals([...Deno.readDirSync(folder)].map(({ name }) => name).filter((name) => name === "pod"), []);
  } catch (error) {
    throw new Error(`seed ${seed}: ${log.join("; ")}: ${error}`, { cause: error });
  } finally {
    await victim.kill();
  }
}

const SEED = Number(Deno.env.get("SEED") || Date.now() % 1_000_000);

for (
  const [index, [name, capability, mib]] of ([
    ["ext4", mountCapability("ext4"), 32n],
    ["block", blockCapability(), 32n],
  ] as const).entries()
) {
  const title = `killed with all that it started in the midst of each call, a driver goes on: ${name}`;
  Deno.test(`${title}, seed ${SEED + index} [lvm]`, { ignore: isLeftOut(title) }, async () => {
    await live(SEED + index, capability, mib);
  });
}
