/**
 * The doctor's check of udev, and of the device nodes that it makes.
 *
 * @module
 */

import type { BlockDevice } from "../host/device.ts";
import type { Configuration } from "../model/configuration.ts";
import type { LogicalVolume } from "../model/report.ts";
import {
  type CheckResult,
  error,
  failureSummary,
  type Found,
  type HostFacts,
  info,
  type UdevState,
  warning,
} from "./finding.ts";

/** Checks whether udev runs as LVM expects it, and whether the device nodes exist. */
export function checkUdev({ configuration, udev, activeLvs, deviceNodes, root }: HostFacts): CheckResult {
  const state = root && "value" in udev ? udev.value : undefined;
  const settings = "value" in configuration ? configuration.value : undefined;
  const findings = udevStates(state, settings);
  if ("value" in deviceNodes) findings.push(...wrongDeviceNodes(activeLvs, deviceNodes.value));
  else findings.push(warning("device nodes", `they cannot be read: ${failureSummary(deviceNodes.error)}`));
  return { summary: `udev ${state ?? "unknown"}, ${activeLvs.length} device nodes`, findings };
}

/**
 * Compares the state of udev with LVM's settings. Without udev, LVM finds the nodes of the LVs that it creates only if
 * it creates the nodes itself.
 */
function udevStates(state: UdevState | undefined, settings: Configuration | undefined): Found[] {
  const [sync, rules] = (["activation/udev_sync", "activation/udev_rules"] as const).map((name) =>
    settings?.value(name)
  );
  if (state === undefined) return [];
  if (state === "running") {
    const found = "0, although udev runs: device nodes can appear late. This is correct in a container";
    return sync === "0" ? [info("activation/udev_sync", found)] : [];
  }
  if (sync === "0" && rules === "0") return [info("udev", "it does not run; LVM creates device nodes itself")];
  const found = state === "dead"
    ? "it does not respond any more: commands that create or remove a volume wait for it forever"
    : "it does not run: no volume can be created, since LVM waits for device nodes that nothing creates";
  return [
    error("udev", found, "systemctl restart systemd-udevd   (in a container: udev_sync = 0, and the host's /dev)"),
  ];
}

function wrongDeviceNodes(activeLvs: readonly LogicalVolume[], deviceNodes: readonly BlockDevice[]): Found[] {
  return activeLvs.flatMap(({ devicePath, deviceNumber }) => {
    const name = devicePath.replace(/^.*\//, "");
    const node = deviceNodes.find((each) => each.name === name);
    if (node !== undefined && node.number === deviceNumber) return [];
    const found = node === undefined
      ? "there is no block device, although the logical volume is active"
      : `it is the device ${node.number}, but LVM reports ${deviceNumber}`;
    return [error(devicePath, found, `dmsetup mknodes ${name}   (in a container: mount the host's /dev)`)];
  });
}
