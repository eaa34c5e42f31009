/**
 * `denolith standalone`: the driver without Kubernetes.
 *
 * @module
 */

import { dirname } from "@std/path";
import manifest from "../deno.json" with { type: "json" };
import { EXIT, type Flags } from "./command_line.ts";
import { startStandalone } from "../csi/standalone.ts";
import { parseMountRoots, requireDriverName, socketPath } from "../csi/driver_options.ts";
import { parseGroupList } from "../csi/group_list.ts";
import { requireNodeId } from "../csi/topology.ts";
import { cgroupRoot } from "./paths.ts";
import { type CreateExec, openExec } from "../lvm/host/open_exec.ts";
import { parseSnapshotAutoextend } from "../lvm/snapshots/cow_autoextend.ts";
import { waitForAbort } from "../base/clock.ts";
import { GRACE_MS } from "./sandbox.ts";
import { logCommand, logNoMountTable, startLogging } from "./logging.ts";
import { thinPoolOptions } from "./shared_flags.ts";
import { defined } from "../base/defined.ts";

/**
 * Serves until the process is asked to end.
 *
 * @param end aborted when the process is asked to end
 * @param createExec creates what runs its commands
 * @returns the exit status: 1 when calls in progress did not complete in time
 */
export async function standalone(
  flags: Flags,
  end: AbortSignal,
  createExec: CreateExec = openExec,
): Promise<number> {
  await startLogging(flags["log-level"]!, flags["log-format"]!);
  const exec = await createExec({
    onCommand: logCommand,
    mountTableDirectory: dirname(socketPath(flags.endpoint!)),
    onNoMountTable: logNoMountTable,
  });
  const cgroups = cgroupRoot(flags);
  const driver = await startStandalone({
    socketPath: socketPath(flags.endpoint!),
    driver: requireDriverName(flags["driver-name"]!),
    version: manifest.version,
    nodeId: requireNodeId(flags["node-id"]!),
    groups: parseGroupList(flags["volume-groups"]!),
    mountRoots: parseMountRoots(flags["mount-roots"]!),
    exec,
    ...defined({ cgroupRoot: cgroups }),
    thin: thinPoolOptions(flags),
    snapshotAutoextend: parseSnapshotAutoextend(flags["snapshot-autoextend"]!),
  });
  await waitForAbort(end);
  return await driver.stop(GRACE_MS) ? EXIT.success : EXIT.failure;
}
