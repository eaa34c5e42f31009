/**
 * `denolith doctor` and `denolith status`, which inspect a host.
 *
 * @module
 */

import { defined } from "../base/defined.ts";
import { apiClient } from "./api_client.ts";
import { EXIT, type Flags } from "./command_line.ts";
import { requireDriverName, socketPath } from "../csi/driver_options.ts";
import { parseGroupList } from "../csi/group_list.ts";
import { probeSocket } from "../csi/server.ts";
import { requireNodeId } from "../csi/topology.ts";
import { knownObjects, listManaged } from "../k8s/agent/orphans.ts";
import { reportedVolumes } from "../k8s/agent/volume_progress.ts";
import { examine } from "../lvm/doctor/doctor.ts";
import { diagnosisJson, diagnosisText } from "../lvm/doctor/text.ts";
import { type Exec, HostExec } from "../lvm/exec.ts";
import { FilteredExec } from "../lvm/host/filtered_exec.ts";
import { readStatus, type StatusOptions } from "../lvm/status/status.ts";
import { statusJson, statusText } from "../lvm/status/text.ts";
import { overcommitOption } from "./shared_flags.ts";

/**
 * Prints the problems of this host, with remedies.
 *
 * @param exec runs the commands
 * @returns the exit status: 1 when one of them is an error
 */
export async function doctor(flags: Flags, exec: Exec = readingExec()): Promise<number> {
  const path = socketPath(flags.endpoint!);
  const state = await probeSocket(path).catch(() => undefined);
  const socket = state && { path, state };
  const diagnosis = await examine({ ...hostOptions(flags, exec), ...defined({ socket }) });
  console.log(flags.json === "true" ? diagnosisJson(diagnosis) : diagnosisText(diagnosis));
  return diagnosis.level === "error" ? EXIT.failure : EXIT.success;
}

/**
 * Prints the state of the driver on this host, compared with the cluster when `--node-name` is given.
 *
 * @param exec runs the commands
 * @returns 0
 */
export async function status(flags: Flags, exec: Exec = readingExec()): Promise<number> {
  const overcommit = overcommitOption(flags);
  const report = await readStatus({ ...hostOptions(flags, exec), ...await clusterOptions(flags), overcommit });
  console.log(flags.json === "true" ? statusJson(report) : statusText(report));
  return EXIT.success;
}

/** Creates an exec for commands that only read, which a signal may end. */
function readingExec(): Exec {
  return new FilteredExec(new HostExec({ ownSessions: false }));
}

async function clusterOptions(flags: Flags): Promise<Pick<StatusOptions, "known" | "reported">> {
  if (flags["node-name"] === undefined) return {};
  const nodeKey = { driver: requireDriverName(flags["driver-name"]!), nodeName: requireNodeId(flags["node-name"]) };
  using client = await apiClient(flags, "status");
  const objects = await listManaged(client, nodeKey);
  return { known: knownObjects(objects, nodeKey), reported: reportedVolumes(objects.volumes) };
}

function hostOptions(flags: Flags, exec: Exec): StatusOptions {
  const list = flags["volume-groups"];
  return {
    exec,
    driver: requireDriverName(flags["driver-name"]!),
    ...defined({ groups: list === undefined ? undefined : parseGroupList(list) }),
  };
}
