/**
 * `denolith standalone`: the driver without Kubernetes.
 *
 * @module
 */

import { dirname } from "@std/path";
import manifest from "../deno.json" with { type: "json" };
import { type Flags, messageOf, UsageError } from "./command_line.ts";
import { startStandalone } from "../csi/standalone.ts";
import { parseMountRoots, requireDriverName, socketPath } from "../csi/driver_options.ts";
import { parseGroupList } from "../csi/group_list.ts";
import { requireNodeId } from "../csi/topology.ts";
import { cgroupRoot } from "./paths.ts";
import type { Exec } from "../lvm/exec.ts";
import { Lvm } from "../lvm/model/client.ts";
import { formatBytes } from "../lvm/size.ts";
import { type CreateExec, openExec } from "../lvm/shell/open.ts";
import { parseSnapshotAutoextend } from "../lvm/snapshots/cow_autoextend.ts";
import { waitForAbort } from "../lvm/clock.ts";
import { GRACE_MS } from "./sandbox.ts";
import { logCommand, logNoMountTable, logShellLost, startLogging } from "./logging.ts";
import { thinPoolOptions } from "./flags.ts";
import { defined } from "../lvm/defined.ts";

/**
 * Serves until the process is asked to end.
 *
 * @param end aborted when the process is asked to end
 * @param createExec creates what runs its commands
 * @returns the exit status: 1 when calls in progress did not complete in time
 * @throws {UsageError} without `--volume-groups`; the message lists the volume groups of the host
 */
export async function standalone(
  flags: Flags,
  end: AbortSignal,
  createExec: CreateExec = openExec,
): Promise<number> {
  await startLogging(flags["log-level"]!, flags["log-format"]!);
  const list = flags["volume-groups"];
  const mountTableDirectory = list === undefined ? undefined : dirname(socketPath(flags.endpoint!));
  const exec = await createExec({
    ...{ shell: flags["lvm-shell"] !== undefined, onCommand: logCommand, onShellLost: logShellLost },
    ...{ ...defined({ mountTableDirectory }), onNoMountTable: logNoMountTable },
  });
  if (list === undefined) throw new UsageError(`--volume-groups is required; ${await describeHostGroups(exec)}`);
  const cgroups = cgroupRoot(flags);
  const driver = await startStandalone({
    socketPath: socketPath(flags.endpoint!),
    driver: requireDriverName(flags["driver-name"]!),
    version: manifest.version,
    nodeId: requireNodeId(flags["node-id"]!),
    groups: parseGroupList(list),
    mountRoots: parseMountRoots(flags["mount-roots"]!),
    exec,
    ...defined({ cgroupRoot: cgroups }),
    thin: thinPoolOptions(flags),
    snapshotAutoextend: parseSnapshotAutoextend(flags["snapshot-autoextend"]!),
  });
  await waitForAbort(end);
  return await driver.stop(GRACE_MS) ? 0 : 1;
}

async function describeHostGroups(exec: Exec): Promise<string> {
  try {
    const groups = (await new Lvm(exec).report()).map(({ name, free }) => `${name} (${formatBytes(free)} free)`);
    return groups.length === 0
      ? "this host has none yet: create one with vgcreate"
      : `this host has ${groups.join(", ")}`;
  } catch (error) {
    return `the volume groups of this host cannot be listed: ${messageOf(error)}`;
  }
}
