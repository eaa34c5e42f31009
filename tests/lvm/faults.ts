/**
 * Faults of real disks, and death by SIGKILL of the driver with all that it started: `deno test` runs this in the guest, alone,
 * as one bundle. DATA_DISKS names two empty disks, DRIVER the driver.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { connect, type CsiClient } from "../../csi/client.ts";
import { HostExec } from "../../lvm/exec.ts";
import { Lvm } from "../../lvm/lvm.ts";
import { assertFails, Bench, blockCapability, type Capability, failureOf, mountCapability } from "../contract/host.ts";
import { run } from "../demo/command.ts";

const [BAD, GOOD] = (Deno.env.get("DATA_DISKS") ?? "").split(" ");
const DRIVER = Deno.env.get("DRIVER");
if (!BAD || !GOOD || !DRIVER) throw new Error("DATA_DISKS must name two empty disks, DRIVER a program");

const GROUPS = ["faulty", "healthy"] as const;

/** Where the faulty disk begins on the real one, in sectors: LVM must not find its label there as well. */
const START = 2048;

/** What the faulty disk does: its sectors lead to the real one's, or to errors, or to errors when they are written. */
async function load(target: "linear" | "error" | "flakey"): Promise<void> {
  const sectors = Number(await run("measure the disk", "blockdev", ["--getsz", BAD!])) - START;
  const table = {
    linear: `0 ${sectors} linear ${BAD} ${START}`,
    error: `0 ${sectors} error`,
    flakey: `0 ${sectors} flakey ${BAD} ${START} 0 3600 1 error_writes`,
  }[target];
  const exists = (await run("list devices", "dmsetup", ["ls"])).includes("faulty-disk");
  if (!exists) return void await run("make the disk", "dmsetup", ["create", "faulty-disk", "--table", table]);
  await run("suspend the disk", "dmsetup", ["suspend", "--noflush", "--nolockfs", "faulty-disk"]);
  await run("load the disk", "dmsetup", ["load", "faulty-disk", "--table", table]);
  await run("resume the disk", "dmsetup", ["resume", "faulty-disk"]);
}

await load("linear");
await run("make a group", "vgcreate", ["-qq", "--yes", GROUPS[0], "/dev/mapper/faulty-disk"]);
await run("make a group", "vgcreate", ["-qq", "--yes", GROUPS[1], GOOD]);

Deno.test("a disk that hangs stops its group within bounds, and no other [lvm]", async () => {
  await using bench = await Bench.start(new HostExec({ readMs: 8_000, changeMs: 100_000 }), GROUPS);
  const inFaulty = { parameters: { volumeGroup: GROUPS[0] } };
  const inHealthy = { parameters: { volumeGroup: GROUPS[1] } };
  const first = await bench.create(inFaulty);
  const second = await bench.create(inHealthy);
  await run("suspend the disk", "dmsetup", ["suspend", "--noflush", "--nolockfs", "faulty-disk"]);
  const start = performance.now();
  try {
    const third = await bench.create(inHealthy);
    const stagingTargetPath = await bench.stage(second);
    await bench.csi.node.nodeUnstageVolume({ volumeId: second, stagingTargetPath });
    await bench.csi.controller.deleteVolume({ volumeId: third });
    await assertFails("UNAVAILABLE", bench.stage(first), "does not answer");
    await assertFails("UNAVAILABLE", bench.csi.controller.deleteVolume({ volumeId: first }), "does not answer");
    assert(performance.now() - start < 90_000, "the wait has no bound");
  } finally {
    await run("resume the disk", "dmsetup", ["resume", "faulty-disk"]);
  }
  for (const volumeId of [first, second]) await until(() => bench.csi.controller.deleteVolume({ volumeId }));
  assertEquals(await bench.lvs(), []);
});

Deno.test("a disk that cannot be read is not taken for an empty one: nothing is formatted [lvm]", async () => {
  await using bench = await Bench.start(new HostExec(), GROUPS);
  const volumeId = await bench.create({ parameters: { volumeGroup: GROUPS[0] } });
  await load("error");
  try {
    const commands = await bench.exec.during(() => bench.stage(volumeId).then(() => assert(false), () => {}));
    assertEquals(commands.filter((command) => /^(?:mk|wipefs --all|mount)/.test(command)), []);
  } finally {
    await load("linear");
  }
  const stagingTargetPath = await bench.stage(volumeId);
  await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  await bench.csi.controller.deleteVolume({ volumeId });
  assertEquals(await bench.lvs(), []);
});

Deno.test("a disk that refuses writes fails the call, and when it takes them again the call succeeds [lvm]", async () => {
  await using bench = await Bench.start(new HostExec(), GROUPS);
  const volumeId = await bench.create({ parameters: { volumeGroup: GROUPS[0] } });
  await load("flakey");
  try {
    const { code } = await failureOf(bench.stage(volumeId));
    assert(code !== "OK");
  } finally {
    await load("linear");
  }
  const stagingTargetPath = await bench.stage(volumeId);
  await Deno.writeTextFile(`${stagingTargetPath}/file`, "data");
  await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  await bench.csi.controller.deleteVolume({ volumeId });
  assertEquals(await bench.lvs(), []);
});

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
      GROUPS[1],
      "--mount-roots",
      folder,
    ];
    const command = [
      "sh",
      "-c",
      `echo $$ > ${cgroup}/cgroup.procs; exec "$@"`,
      "driver",
      DRIVER!,
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

/** How long something that fails is repeated, in milliseconds: a start takes its time on an emulated machine. */
const PATIENCE_MS = 180_000;

/** Repeats what fails, as an orchestrator does, or while something starts. */
async function until<T>(body: () => Promise<T>): Promise<T> {
  for (const start = performance.now();;) {
    try {
      return await body();
    } catch (error) {
      if (performance.now() - start > PATIENCE_MS) throw error;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
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
  const folder = await Deno.makeTempDir({ prefix: "denolith-test-" });
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
      const group = (await lvm.report()).find(({ name }) => name === GROUPS[1])!;
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
  Deno.test(`killed with all that it started in the midst of each call, a driver goes on: ${name}, seed ${SEED + index} [lvm]`, async () => {
    await live(SEED + index, capability, mib);
  });
}
