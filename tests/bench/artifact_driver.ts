import { connectByFetch, type CsiClient } from "../contract/helpers/csi_client.ts";
import { pause } from "../demo/data.ts";
import { DriverProcess } from "../demo/driver_process.ts";
import { measureMs } from "./statistics.ts";
import { isCommand, memoryOf, processTree } from "./proc.ts";
import type { Memory, Start } from "./result.ts";
import { DRIVER_NAME, type MeasuredDriver } from "./measured_driver.ts";

/** The interval in milliseconds at which a condition is checked. */
const POLL_MS = 20;

/** The paths of a driver. */
export interface DriverPaths {
  /** The driver's file. */
  readonly program: string;
  /** The folder that it unpacks itself into. */
  readonly cache: string;
  /** The directory below which it mounts. */
  readonly root: string;
  /** The path of its socket. */
  readonly socket: string;
  /** Its volume group. */
  readonly group: string;
  /** Further flags of it. */
  readonly options?: readonly string[];
}

/** The driver's file as a process of its own, under its permission set. */
export class ArtifactDriver implements MeasuredDriver, AsyncDisposable {
  readonly csi: CsiClient;
  readonly root: string;
  /** The measurements of its start. */
  readonly start: Start;
  readonly #process: DriverProcess;
  readonly #group: string;

  private constructor(process: DriverProcess, paths: DriverPaths, start: Start) {
    this.#process = process;
    this.#group = paths.group;
    this.root = paths.root;
    this.start = start;
    this.csi = connectByFetch(paths.socket);
  }

  /**
   * Starts it, and takes the time.
   *
   * @throws {Error} when it does not start
   */
  static async start(paths: DriverPaths): Promise<ArtifactDriver> {
    const { program, cache, socket, root, group, options = [] } = paths;
    const flags = {
      "--endpoint": `unix://${socket}`,
      "--mount-roots": root,
      "--volume-groups": group,
      "--driver-name": DRIVER_NAME,
      "--node-id": "bench",
    };
    const startedAt = performance.now();
    const process = await DriverProcess.start({
      command: [program, "standalone", ...Object.entries(flags).flat(), ...options],
      cache,
      socket,
    });
    const socketMs = performance.now() - startedAt;
    await waitUntilReady(socket);
    const readyMs = performance.now() - startedAt;
    const firstCallMs = await measureMs(async () => {
      using csi = connectByFetch(socket);
      await csi.identity.getPluginInfo();
    });
    return new ArtifactDriver(process, paths, { socketMs, readyMs, firstCallMs });
  }

  /** Its memory, with that of all its descendants. */
  memory(): Promise<Memory> {
    return memoryOf(this.#process.pid);
  }

  async waitUntilRemoved(lvName: string): Promise<void> {
    const isPresent = () => Deno.lstat(`/dev/${this.#group}/${lvName}`).then(() => true, () => false);
    while (await isPresent()) await pause(POLL_MS);
    // LVM takes the device away first and the LV out of the group's metadata then
    while (await this.#runsCommand()) await pause(POLL_MS);
  }

  async #runsCommand(): Promise<boolean> {
    const [, ...others] = await processTree(this.#process.pid);
    return (await Promise.all(others.map(isCommand))).includes(true);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.csi[Symbol.dispose]();
    await this.#process.stop();
  }
}

/** Probes until the answer is yes. */
async function waitUntilReady(socket: string): Promise<void> {
  using csi = connectByFetch(socket);
  while (!(await csi.identity.probe()).ready) await pause(POLL_MS);
}
