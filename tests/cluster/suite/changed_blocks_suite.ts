/**
 * Backups by the list of changed blocks, as a backup program makes them: by external-snapshot-metadata beside the controller,
 * and its iterator.
 *
 * @module
 */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { SNAPSHOT_METADATA_HOST } from "../changed_blocks/sidecar.ts";
import { SNAPSHOT_METADATA_IMAGE, SNAPSHOT_METADATA_PROGRAMS } from "../../rig/snapshot_metadata.ts";
import { SYSTEM_NAMESPACE } from "./helpers/driver_pods.ts";
import { QUICK } from "./helpers/objects.ts";
import { SnapshotTestNamespace } from "./helpers/snapshot_test_namespace.ts";
import { removePool } from "./helpers/test_group.ts";
import type { TestNamespace } from "./helpers/test_namespace.ts";

/** The kinds of volumes, with their sizes in MiB. */
const KINDS = {
  thick: { parameters: QUICK, sizeMiB: 256 },
  thin: { parameters: { ...QUICK, thinProvision: "yes", thinPoolSize: "4Gi" }, sizeMiB: 512 },
} as const;

/** The bytes that are written at once: chunks of a thick snapshot have 4 KiB, the blocks of a small pool 64 KiB. */
const PART_KIB = 64;

/** The parts that are written between the snapshots: numbers of {@linkcode PART_KIB}, spread over the volume. */
const CHANGED_PARTS = Array.from({ length: 60 }, (_, index) => 3 + index * 67);

/** The parts that are written after the second snapshot: some of the same, and others. */
const LATER_PARTS = Array.from({ length: 60 }, (_, index) => 3 + index * 67 + index % 2);

/** What the backup program says of a backup. */
interface Backup {
  readonly records: number;
  readonly ranges: number;
  readonly bytes: number;
  readonly capacity: number;
  readonly seconds: number;
  readonly device: string;
  readonly file: string;
  readonly restored?: string;
}

/** Runs the backup program as a pod. @returns its output @throws {Error} unless it ends as expected */
async function runBackup(
  ns: TestNamespace,
  name: string,
  args: readonly string[],
  devices: readonly string[],
  phase: "Succeeded" | "Failed" = "Succeeded",
): Promise<string> {
  const ip = await ns.kubectl(
    ...[`--namespace=${SYSTEM_NAMESPACE}`, "get", "pods", "--selector=app.kubernetes.io/component=controller"],
    "--output=jsonpath={.items[0].status.podIP}",
  );
  const claim = (name: string) => ({ name, persistentVolumeClaim: { claimName: name } });
  await ns.apply({
    ...{ apiVersion: "v1", kind: "Pod", metadata: { name } },
    spec: {
      restartPolicy: "Never",
      terminationGracePeriodSeconds: 1,
      hostAliases: [{ ip, hostnames: [SNAPSHOT_METADATA_HOST] }], // the rig has neither DNS nor Services
      containers: [{
        ...{ name: "backup", image: SNAPSHOT_METADATA_IMAGE, imagePullPolicy: "Never" },
        command: [SNAPSHOT_METADATA_PROGRAMS.backup, `-namespace=${ns.namespace}`, "-file=/backup/image", ...args],
        volumeMounts: [{ name: "backup", mountPath: "/backup" }],
        volumeDevices: devices.map((name) => ({ name, devicePath: `/dev/${name}` })),
      }],
      volumes: ["backup", ...devices].map(claim),
    },
  });
  const hasEnded = (phase: string | undefined) => phase === "Succeeded" || phase === "Failed";
  const pod = await ns.waitFor("Pod", name, (pod) => hasEnded(pod?.status?.phase), "has ended");
  const output = await ns.kubectl("logs", name);
  assertEquals(pod.status?.phase, phase, output);
  await ns.deleteAndWait("Pod", name);
  return output;
}

/** Parses what the program prints, beside warnings of its libraries. */
function parseBackup(output: string): Backup {
  return JSON.parse(output.split("\n").find((line) => line.startsWith("{"))!) as Backup;
}

/** Writes random bytes to parts of the volume. */
async function writeParts(ns: TestNamespace, parts: readonly number[]): Promise<void> {
  const write = `dd if=/dev/urandom of=/dev/data bs=${PART_KIB}k count=1 conv=notrunc,fsync`;
  await ns.exec("writer", `for part in ${parts.join(" ")}; do ${write} seek=$part 2>/dev/null || exit 1; done`);
}

for (const [kind, { parameters, sizeMiB }] of Object.entries(KINDS)) {
  Deno.test(`${kind}: a full backup and an incremental one are restored, and the second reads what changed`, async () => {
    await using snapshots = await SnapshotTestNamespace.open(`blocks-${kind}`);
    const { ns } = snapshots;
    const start = performance.now();
    const [ofKind, plain] = [
      await ns.createStorageClass("kind", { parameters, volumeBindingMode: "Immediate" }),
      await ns.createStorageClass("plain", { parameters: QUICK, volumeBindingMode: "Immediate" }),
    ];
    const snapshotClass = await snapshots.createSnapshotClass("class", { parameters: { snapSize: "100%" } });
    await allowBackups(ns);
    const block = { class: ofKind, size: `${sizeMiB}Mi`, volumeMode: "Block" } as const;
    const takeSnapshot = async (name: string) => {
      await snapshots.createSnapshot(name, { claim: "data", class: snapshotClass });
      await snapshots.waitUntilReady(name);
      await ns.createClaim({ ...block, name: `${name}-copy`, from: { kind: "VolumeSnapshot", name } });
    };

    await ns.createClaim({ ...block, name: "data" });
    await ns.createClaim({ name: "backup", class: plain, size: "640Mi" });
    await ns.createPod({ name: "writer", claims: [{ name: "data", devicePath: "/dev/data" }] });
    await ns.waitForRunning("writer");
    await ns.exec("writer", "dd if=/dev/urandom of=/dev/data bs=1M count=96 seek=16 conv=notrunc,fsync");
    await takeSnapshot("one");
    await writeParts(ns, CHANGED_PARTS);
    await takeSnapshot("two");
    await writeParts(ns, LATER_PARTS);

    const full = parseBackup(await runBackup(ns, "full", ["-snapshot=one", "-device=/dev/one-copy"], ["one-copy"]));
    assertEquals([full.capacity, full.file], [sizeMiB << 20, full.device]);
    const given = ["-snapshot=two", "-previous=one", "-device=/dev/two-copy"];
    const gone = await runBackup(ns, "gone", [...given, "-max-results=1", "-stop-after=1"], ["two-copy"], "Failed");
    assertStringIncludes(gone, "cancelled");
    await ns.createClaim({ ...block, name: "restored" });
    const more = ["-max-results=7", "-restore=/dev/restored"];
    const next = parseBackup(await runBackup(ns, "next", [...given, ...more], ["two-copy", "restored"]));
    assertEquals([next.capacity, next.file, next.restored], [sizeMiB << 20, next.device, next.device]);
    assert(next.device !== full.device);

    const changed = CHANGED_PARTS.length * PART_KIB * 1024;
    console.error(
      `${kind}, ${sizeMiB} MiB: full backup ${full.bytes} bytes in ${full.ranges} ranges; ${changed} bytes changed, ` +
        `incremental backup ${next.bytes} bytes in ${next.ranges} ranges, ${next.records} records and ` +
        `${next.seconds.toFixed(1)} s: ${(next.bytes / changed).toFixed(3)} of what changed`,
    );
    assert(next.bytes >= changed && next.bytes <= 1.1 * changed, `${next.bytes} of ${changed} bytes`);
    assert(next.records >= next.ranges / 7);
    await requireNothingHeld(ns);
    for (const name of ["one", "two"]) await ns.kubectl("delete", "volumesnapshot", name);
    await ns.deleteAndWait("Pod", "writer");
    for (const name of ["one-copy", "two-copy", "restored", "data", "backup"]) {
      await ns.deleteAndWait("PersistentVolumeClaim", name);
    }
    await ns.waitForCleanup();
    if (kind === "thin") await removePool(ns, QUICK.volumeGroup);
    console.error(`${kind}: ${((performance.now() - start) / 1000).toFixed(0)} s`);
  });
}

/** Gives the pods of a namespace the rights of a backup program. */
async function allowBackups(ns: TestNamespace): Promise<void> {
  await ns.apply({
    ...{ apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRoleBinding", metadata: { name: ns.namespace } },
    roleRef: {
      ...{ apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "denolith-snapshot-metadata-client" },
    },
    subjects: [{ kind: "ServiceAccount", name: "default", namespace: ns.namespace }],
  });
}

/** Makes sure that no list left a permission, or the metadata snapshot of a pool. */
async function requireNothingHeld(ns: TestNamespace): Promise<void> {
  const annotations = await ns.kubectl("get", "lvmsnapshots", "--output=jsonpath={.items[*].metadata.annotations}");
  assert(!annotations.includes("changed-blocks"), annotations);
  const status = await ns.runOnNode("dmsetup status --target thin-pool --noflush");
  for (const line of status.split("\n").filter((line) => line.includes("thin-pool"))) {
    assert(/ \d+\/\d+ \d+\/\d+ - /.test(line), line);
  }
}
