/**
 * Runs the steps of a life: an orchestrator that calls a driver by its socket, and a pod that reads and writes.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { connect, type CsiClient } from "../contract/helpers/csi_client.ts";
import { Lvm } from "../../lvm/client/client.ts";
import { testCommand } from "../../lvm/encryption/cryptsetup.ts";
import { Passphrase } from "../../lvm/encryption/passphrase.ts";
import { HostExec } from "../../lvm/exec.ts";
import { groupSnapshotIdOf, snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { parseGroupList, type StandaloneDriver, startStandalone } from "../../mod.ts";
import { blockCapability, failureStatus, mountCapability } from "../contract/helpers/host.ts";
import { run } from "../demo/command.ts";
import { foreignFiles, type Step, type VolumeState, type World, worldAfter } from "./life.ts";
import { contentOf } from "./secret.ts";

/** The only volume group. */
export const GROUP = "power";

/** The name of the driver. */
export const DRIVER = "power.denolith.dev";

const MiB = 1n << 20n;

/** How long a call is repeated that may succeed later, in milliseconds. */
const RETRY_MS = 180_000;

/** The statuses after which an orchestrator repeats a call. */
const TRANSIENT = ["ABORTED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"];

/** How long the driver waits for a command that reads, in milliseconds: no disk hangs, but the machine may be busy. */
const READ_DEADLINE_MS = 120_000;

/** A driver and its orchestrator. */
export class Orchestrator implements AsyncDisposable {
  readonly #driver: StandaloneDriver;
  readonly #csi: CsiClient;
  readonly #folder: string;

  private constructor(driver: StandaloneDriver, folder: string) {
    this.#driver = driver;
    this.#csi = connect(driver.socketPath);
    this.#folder = folder;
  }

  static async start(): Promise<Orchestrator> {
    const folder = await Deno.makeTempDir({ prefix: "denolith-power-" });
    const driver = await startStandalone({
      socketPath: `${folder}/csi.sock`,
      driver: DRIVER,
      version: "0",
      nodeId: "node-1",
      groups: parseGroupList(GROUP),
      mountRoots: [folder],
      exec: new HostExec({ readMs: READ_DEADLINE_MS }),
      thin: { removeEmptyPools: true },
    });
    return new Orchestrator(driver, folder);
  }

  /**
   * Runs steps in order. Each publication checks the files of its volume.
   *
   * @param before what existed before
   * @param onAcknowledged called after each step with its index
   */
  async runSteps(
    steps: readonly Step[],
    before: readonly Step[] = [],
    onAcknowledged: (index: number) => Promise<void> = () => Promise.resolve(),
  ): Promise<void> {
    for (const [index, step] of steps.entries()) {
      await this.#retry(step, worldAfter([...before, ...steps.slice(0, index)]), [...before, ...steps]).catch(
        (error) => {
          throw new Error(`${step.do} of step ${index}: ${(error as Error).message}`, { cause: error });
        },
      );
      await onAcknowledged(index);
    }
  }

  async #retry(step: Step, world: World, all: readonly Step[]): Promise<void> {
    for (const start = performance.now();;) {
      const call = this.#run(step, world, all);
      const { code } = await failureStatus(call);
      if (!TRANSIENT.includes(code) || performance.now() - start > RETRY_MS) return await call;
      await this.#driver.idle();
    }
  }

  async #run(step: Step, world: World, all: readonly Step[]): Promise<void> {
    const { controller, group, node } = this.#csi;
    switch (step.do) {
      case "create":
        return void await controller.createVolume({
          name: step.volume,
          capacityRange: { requiredBytes: BigInt(step.mib) * MiB },
          volumeCapabilities: [capabilityOf(step.type ?? "ext4")],
          parameters: step.parameters ?? {},
          ...step.from === undefined ? {} : { volumeContentSource: { type: sourceOf(step.from) } },
        });
      case "expand":
        return void await controller.controllerExpandVolume({
          volumeId: volumeIdOf(step.volume),
          capacityRange: { requiredBytes: BigInt(step.mib) * MiB },
        });
      case "snapshot":
        return void await controller.createSnapshot({
          name: step.snapshot,
          sourceVolumeId: volumeIdOf(step.volume),
        });
      case "deleteSnapshot":
        return void await controller.deleteSnapshot({ snapshotId: snapshotIdOf(step.snapshot) });
      case "snapshotGroup":
        return void await group.createVolumeGroupSnapshot({
          name: step.group,
          sourceVolumeIds: step.volumes.map(volumeIdOf),
        });
      case "deleteGroup":
        return void await group.deleteVolumeGroupSnapshot({ groupSnapshotId: groupSnapshotIdOf(step.group) });
      case "delete":
        return void await controller.deleteVolume({ volumeId: volumeIdOf(step.volume) });
      case "settle":
        return await this.#driver.idle();
      case "setSecrets":
        return; // the calls that follow have it
    }
    const volume = world.volumes.get(step.volume)!;
    const volumeId = volumeIdOf(step.volume);
    const [stagingTargetPath, targetPath] = ["staging", "pod"].map((name) =>
      `${this.#folder}/${name}-${step.volume}`
    ) as [
      string,
      string,
    ];
    const volumeCapability = capabilityOf(volume.type);
    const { secrets = {} } = volume;
    switch (step.do) {
      case "stage":
        await Deno.mkdir(stagingTargetPath, { recursive: true });
        await node.nodeStageVolume({ volumeId, stagingTargetPath, volumeCapability, secrets });
        return await requireFormerToOpenNothing(volume);
      case "publish":
        await node.nodePublishVolume({ volumeId, stagingTargetPath, targetPath, volumeCapability, secrets });
        await requireFiles(targetPath, volume);
        return await requireNoOtherFiles(targetPath, step.volume, volume, all);
      case "grow":
        return void await node.nodeExpandVolume({ volumeId, volumePath: targetPath, volumeCapability });
      case "write":
        return await writeFile(targetPath, volume, step.file);
      case "unpublish":
        return void await node.nodeUnpublishVolume({ volumeId, targetPath });
      case "unstage":
        return void await node.nodeUnstageVolume({ volumeId, stagingTargetPath });
    }
  }

  /** Ends the driver, and unmounts what a failed test left. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#csi[Symbol.dispose]();
    await this.#driver.stop(10_000);
    const mounts = (await Deno.readTextFile("/proc/self/mounts")).split("\n").map((line) => line.split(" ")[1] ?? "");
    for (const target of mounts.filter((target) => target.startsWith(`${this.#folder}/`)).reverse()) {
      await run("clean up", "umount", [target]);
    }
    await Deno.remove(this.#folder, { recursive: true });
  }
}

function capabilityOf(type: VolumeState["type"]) {
  return type === "block" ? blockCapability() : mountCapability(type);
}

function sourceOf(from: { readonly snapshot: string } | { readonly volume: string }) {
  return "snapshot" in from
    ? { case: "snapshot", value: { snapshotId: snapshotIdOf(from.snapshot) } } as const
    : { case: "volume", value: { volumeId: volumeIdOf(from.volume) } } as const;
}

/** Writes a file as a pod does that must not lose it. A block volume has its files one after the other. */
async function writeFile(targetPath: string, { type, files }: VolumeState, name: string): Promise<void> {
  const content = contentOf(name);
  const options = type === "block" ? { write: true } : { write: true, create: true };
  using file = await Deno.open(type === "block" ? targetPath : `${targetPath}/${name}`, options);
  if (type === "block") await file.seek(files.length * content.length, Deno.SeekMode.Start);
  for (let count = 0; count < content.length;) count += await file.write(content.subarray(count));
  await file.sync();
}

/** Asserts that the passphrases that a volume had before open nothing, on no LV. */
async function requireFormerToOpenNothing({ former = [] }: VolumeState): Promise<void> {
  const exec = new HostExec();
  for (const passphrase of former) {
    for (const { lvs } of await new Lvm(exec).report()) {
      for (const { devicePath, name } of lvs.filter(({ active }) => active)) {
        const { code } = await exec.run(testCommand(devicePath, new Passphrase(passphrase)));
        assert(code !== 0, `the ${passphrase} opens ${name} again`);
      }
    }
  }
}

/** Asserts that the files of a volume are what was written. */
async function requireFiles(targetPath: string, { type, files }: VolumeState): Promise<void> {
  for (const [index, name] of files.entries()) {
    const content = contentOf(name);
    using file = await Deno.open(type === "block" ? targetPath : `${targetPath}/${name}`);
    if (type === "block") await file.seek(index * content.length, Deno.SeekMode.Start);
    const found = new Uint8Array(content.length);
    let count = 0;
    for (let read: number | null = 0; read !== null && count < found.length;) {
      read = await file.read(found.subarray(count));
      count += read ?? 0;
    }
    assert(found.every((byte, index) => byte === content[index]), `the file ${name} has another content`);
  }
}

/** Asserts that a filesystem has no file of another volume, such as one that its source got after it was copied. */
async function requireNoOtherFiles(
  targetPath: string,
  name: string,
  volume: VolumeState,
  steps: readonly Step[],
): Promise<void> {
  if (volume.type === "block") return;
  const found = (await Array.fromAsync(Deno.readDir(targetPath))).flatMap((entry) => entry.isFile ? [entry.name] : []);
  assertEquals(foreignFiles(found, name, steps, volume), [], `volume ${name} has files that it must not have`);
}
