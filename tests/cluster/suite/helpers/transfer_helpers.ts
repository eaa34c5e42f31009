/**
 * Helpers for suites of transfers: a claim in use on one node, its copy on the other, and what both have.
 *
 * @module
 */

import type { Pod } from "../../../../k8s/api/objects.ts";
import type { LvmVolume } from "../../../../k8s/api/lvm_objects.ts";
import { transferSnapshotIdOf, type VolumeId } from "../../../../base/ids.ts";
import { pollUntil } from "../../../rig/poll_until.ts";
import { listDriverLvs } from "./driver_lvs.ts";
import { SYSTEM_NAMESPACE } from "./driver_pods.ts";
import { WAIT_MS } from "./object_watcher.ts";
import { type ClaimSpec, SLEEP } from "./objects.ts";
import type { TestNamespace } from "./test_namespace.ts";

/** How the volumes of a claim are laid out. */
export type Layout = "thick" | "thin";

/** The mode of a claim. */
export type VolumeMode = NonNullable<ClaimSpec["volumeMode"]>;

/** The nodes of a transfer: that of the source, and that of the copy. */
export const [SOURCE_NODE, COPY_NODE] = ["node1", "node2"] as const;

/** The subnets of the pods of both nodes, and the address by which the second reaches the first. */
const [SOURCE_PODS, SOURCE_ADDRESS] = ["10.88.1.0/24", "10.89.0.1"];

/** The size of a source, in MiB: more than one range, and no whole number of them. */
const SIZE = 420;

/** Where a source has data that is not zero, in MiB. Nothing else is written to what a digest is made of. */
const DATA = [[0, 20], [150, 30], [300, 10]] as const;

/** The data of a source, in bytes. */
export const DATA_BYTES: number = DATA.reduce((sum, [, length]) => sum + length, 0) << 20;

/** The part of a device that has a digest, in MiB: a writer writes behind it. */
const DIGEST_MIB = 400;

/** Makes a class of each layout. @returns their names */
export async function createClasses(ns: TestNamespace): Promise<Record<Layout, string>> {
  const thin = { volumeGroup: "data", thinProvision: "yes", thinPoolSize: "1800Mi" };
  return {
    thick: await ns.createStorageClass("thick", { parameters: { volumeGroup: "data" } }), // erased, so that its rest is zeros
    thin: await ns.createStorageClass("thin", { parameters: thin }),
  };
}

/** What a pod sees of a claim: a path, or a device. */
function mountOf(name: string, volumeMode: VolumeMode) {
  return volumeMode === "Block" ? { name, devicePath: "/raw" } : { name, path: "/data" };
}

/** Prints the digest of what {@linkcode addWriter} wrote. */
const DIGEST: Record<VolumeMode, string> = {
  Block: `dd if=/raw bs=1M count=${DIGEST_MIB} 2>/dev/null | sha256sum`,
  Filesystem: "sha256sum < /data/file",
};

/**
 * Makes a claim `source`, and a pod `writer` on its node that has written data to it, and goes on to write something else.
 *
 * @returns the digest of the data
 */
export async function addWriter(ns: TestNamespace, className: string, volumeMode: VolumeMode): Promise<string> {
  await ns.createClaim({ name: "source", class: className, size: `${SIZE}Mi`, volumeMode });
  await ns.createPod({ name: "writer", claims: [mountOf("source", volumeMode)], node: SOURCE_NODE, command: SLEEP });
  await ns.waitForRunning("writer");
  const [file, grow, other] = volumeMode === "Block"
    ? ["/raw", "", `of=/raw seek=${DIGEST_MIB}`]
    : ["/data/file", `truncate -s ${DIGEST_MIB - 100}M /data/file`, "of=/data/other"];
  const parts = DATA.map(([at, count]) =>
    `dd if=/dev/urandom of=${file} bs=1M seek=${at} count=${count} conv=notrunc,fsync 2>/dev/null`
  );
  await ns.exec("writer", [...(grow === "" ? [] : [grow]), ...parts].join(" && "));
  const writes = `while :; do dd if=/dev/urandom ${other} bs=1M count=1 conv=notrunc,fsync; sleep .2; done`;
  await ns.exec("writer", `(${writes}) >/dev/null 2>&1 </dev/null &`);
  return await ns.exec("writer", DIGEST[volumeMode]);
}

/** Makes a claim `copy`, and a pod `reader` on the other node that has it. */
export async function addReader(
  ns: TestNamespace,
  { from, className, volumeMode }: {
    readonly from: NonNullable<ClaimSpec["from"]>;
    readonly className: string;
    readonly volumeMode: VolumeMode;
  },
): Promise<void> {
  await ns.createClaim({ name: "copy", class: className, size: `${SIZE}Mi`, volumeMode, from });
  await ns.createPod({ name: "reader", claims: [mountOf("copy", volumeMode)], node: COPY_NODE, command: SLEEP });
}

/** Returns the digest of the data in the copy, when its pod runs. */
export async function copyDigest(ns: TestNamespace, volumeMode: VolumeMode): Promise<string> {
  await ns.waitForRunning("reader");
  return await ns.exec("reader", DIGEST[volumeMode]);
}

/** Records the progress of all volumes that are filled from another node, from now on. @returns what was seen, in percent */
export async function watchProgress(ns: TestNamespace): Promise<readonly number[]> {
  const seen: number[] = [];
  const volumes = ns.informer("LVMVolume");
  await volumes.synced;
  volumes.subscribe((_name, volume: LvmVolume | undefined) => {
    const percent = volume?.spec.sourceNode === undefined ? undefined : volume.status?.copy?.percent;
    if (percent !== undefined && seen.at(-1) !== percent) seen.push(percent);
  }, { replay: false });
  return seen;
}

/** Returns the bytes that the agent of a node has sent or received since it started. */
export async function transferredBytes(ns: TestNamespace, node: string, direction: "sent" | "received") {
  const selector = ["--selector=app.kubernetes.io/component=node", `--field-selector=spec.nodeName=${node}`];
  const get = ["--namespace", SYSTEM_NAMESPACE, "get", "pods", ...selector, "--output=json"];
  const { items: [pod] } = JSON.parse(await ns.cluster.controlPlane.kubectl(get)) as { items: Pod[] };
  const url = `http://${pod!.status!.podIP}:9808/metrics`;
  const page = await ns.runOnNode(`busybox wget -q -O - ${url}`, ns.cluster.node(node));
  const pattern = new RegExp(`^denolith_transfer_bytes_total\\{direction="${direction}"\\} (\\d+)`, "m");
  return Number(pattern.exec(page)![1]);
}

/** Waits until the temporary snapshot of a copy is gone: object, permission and LV. @throws {Error} when it stays */
export async function waitForNoTemporarySnapshot(ns: TestNamespace): Promise<void> {
  const volume = (await ns.volumeOf("copy")).spec!.csi!.volumeHandle as VolumeId;
  const snapshot = transferSnapshotIdOf(volume);
  await ns.waitForDeletion("LVMSnapshot", snapshot);
  const isGone = async () => {
    const lvs = (await Promise.all(ns.cluster.nodes.map(listDriverLvs))).flat();
    return !lvs.some(({ tags }) => tags.includes(`denolith.snapshot=${snapshot}`));
  };
  await pollUntil(isGone, { action: `wait for the end of LV of ${snapshot}`, timeoutMs: WAIT_MS, intervalMs: 500 });
}

/** Lets packets from the pods of the second node to those of the first disappear. */
export async function cutNetwork(ns: TestNamespace, seconds: number): Promise<void> {
  const back = `ip route replace ${SOURCE_PODS} via ${SOURCE_ADDRESS}`;
  await ns.runOnNode(
    `ip route replace blackhole ${SOURCE_PODS} && sleep ${seconds}; ip route del blackhole ${SOURCE_PODS}; ${back}`,
    ns.cluster.node(COPY_NODE),
  );
}
