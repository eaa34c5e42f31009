import { connectByFetch, type CsiClient } from "../contract/helpers/csi_client.ts";
import { startStandalone } from "../../csi/standalone.ts";
import { parseGroupList } from "../../csi/group_list.ts";
import { type Command, type Exec, HostExec, type Output } from "../../lvm/exec.ts";

/** The name of the measured drivers. */
export const DRIVER_NAME = "bench.denolith.dev";

/** A driver to measure. */
export interface MeasuredDriver {
  /** A client of it. */
  readonly csi: CsiClient;
  /** The directory below which it mounts. */
  readonly root: string;
  /** Resolves when it has removed the LV of that name, and its background work has ended. */
  waitUntilRemoved(lvName: string): Promise<void>;
}

/** An exec that counts the commands that ended. A call does not wait for commands that it started in the background. */
export class CountingExec implements Exec {
  readonly #exec: Exec;
  /** The number of commands that have ended. */
  completed = 0;

  constructor(exec: Exec = new HostExec({ ownSessions: false })) {
    this.#exec = exec;
  }

  async run(command: Command): Promise<Output> {
    try {
      return await this.#exec.run(command);
    } finally {
      this.completed++;
    }
  }

  idle(): Promise<void> {
    return this.#exec.idle();
  }

  async readMountTable(): Promise<string | undefined> {
    return await this.#exec.readMountTable?.();
  }
}

/** Starts a driver in this process, and counts its commands. */
export async function startCountedDriver(
  exec: CountingExec,
  { root, group }: { root: string; group: string },
): Promise<MeasuredDriver & AsyncDisposable> {
  const driver = await startStandalone({
    socketPath: `${root}/counted.sock`,
    driver: DRIVER_NAME,
    version: "0",
    nodeId: "bench",
    groups: parseGroupList(group),
    mountRoots: [root],
    exec,
  });
  const csi = connectByFetch(driver.socketPath);
  await driver.idle(); // the check for unfinished deletions at each start belongs to no call
  return {
    csi,
    root,
    waitUntilRemoved: () => driver.idle(),
    [Symbol.asyncDispose]: async () => {
      csi[Symbol.dispose]();
      await driver.stop(10_000);
    },
  };
}
