/**
 * Helpers of the suites of moves: a workload that writes a log, what it has written, and the command of the plugin.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { sha256Hex } from "../../../../base/sha256.ts";
import { pollUntil } from "../../../rig/poll_until.ts";
import { listDriverLvs } from "./driver_lvs.ts";
import { WAIT_MS } from "./object_watcher.ts";
import { COPY_NODE, SOURCE_NODE } from "./transfer_helpers.ts";
import { type ClaimSpec, isRunning, statefulSetObject } from "./objects.ts";
import { runPlugin } from "./plugin_command.ts";
import type { TestNamespace } from "./test_namespace.ts";

/** The nodes between which volumes move. */
export const NODES = [SOURCE_NODE, COPY_NODE] as const;

/** The size of the volume that moves. */
const SIZE = "420Mi";

/** The bytes of a line of the log. */
const LINE_BYTES = 32;

/** The pod that writes. */
export const WRITER = "store-0";

/**
 * The program of the writer: it goes on with the log where that ends. Each line has its number and a digest of it, and is
 * written through to the disk before the next one.
 */
const WRITE_LOG = `trap 'exit 0' TERM
n=$(( $(wc -c < /data/log 2>/dev/null || echo 0) / ${LINE_BYTES} ))
while :; do
  sum=$(printf %010d $n | sha256sum)
  printf '%010d %.16s ...\\n' $n "$sum" | dd of=/data/log bs=${LINE_BYTES} seek=$n conv=notrunc,fsync 2>/dev/null || exit 1
  n=$((n + 1))
  sleep .1
done`;

/**
 * Returns a StatefulSet that writes into a claim, or of each replica into a claim of its own.
 *
 * @param first lines that the shell of each container runs first
 */
export function writerOf(data: string | ClaimSpec, { replicas = 1, first = "" } = {}) {
  const volumeMounts = [{ name: "data", mountPath: "/data" }];
  const container = { command: ["sh", "-c", `${first}\n${WRITE_LOG}`], volumeMounts };
  return statefulSetObject({ container, data, replicas });
}

/** Waits until the writer runs on a node. */
export async function waitForWriter(ns: TestNamespace, node: string): Promise<void> {
  await ns.waitFor("Pod", WRITER, (pod) => isRunning(pod) && pod?.spec?.nodeName === node, `runs on ${node}`);
}

/** Returns the number of lines that are written through, at least. */
export async function writtenLines(ns: TestNamespace, pod = WRITER): Promise<number> {
  return Math.floor(Number(await ns.exec(pod, "wc -c < /data/log")) / LINE_BYTES) - 1; // the last may be in progress
}

/** Asserts that the log has all lines up to a number, and each its digest. */
export async function assertLog(ns: TestNamespace, atLeast: number, pod = WRITER): Promise<void> {
  // the last line may be in progress
  const lines = (await ns.exec(pod, "cat /data/log")).split("\n").slice(0, -1);
  assert(lines.length >= atLeast, `the log has ${lines.length} lines, and ${atLeast} were written`);
  const wrong = lines.findIndex((line, index) => {
    const number = String(index).padStart(10, "0");
    return line !== `${number} ${sha256Hex(number).slice(0, 16)} ...`;
  });
  assertEquals(lines[wrong], undefined, `line ${wrong} of ${lines.length}`);
}

/** Runs `kubectl denolith move` as an administrator does. @returns what it printed, as JSON */
export async function moveClaim(
  ns: TestNamespace,
  claim: string,
  to: string,
  flags: readonly string[] = [],
): Promise<Record<string, unknown>> {
  return await runPlugin(ns, "move", claim, "--to", to, "--evict", "--force", ...flags);
}

/** Makes a claim with a workload that writes, and data that it does not change. @returns the digest of the data */
export async function addWriter(ns: TestNamespace, className: string): Promise<string> {
  await ns.createClaim({ name: "data", class: className, size: SIZE });
  await ns.apply(writerOf("data"));
  await ns.waitForRunning(WRITER);
  await ns.exec(WRITER, "dd if=/dev/urandom of=/data/file bs=1M count=100 conv=fsync 2>/dev/null");
  return await ns.exec(WRITER, "sha256sum < /data/file");
}

/** Returns the node of the claim's volume, of which there is one LV alone. */
async function nodeOf(ns: TestNamespace): Promise<string> {
  const id = (await ns.volumeOf("data")).spec!.csi!.volumeHandle;
  const isAlone = async () => (await lvsOf(ns, id)).length === 1;
  await pollUntil(isAlone, { action: `wait for one LV of ${id}`, timeoutMs: WAIT_MS, intervalMs: 500 });
  const [lv] = await lvsOf(ns, id);
  assertEquals(lv!.tags.filter((tag) => /^denolith\.(?:from|copied|held|source)/.test(tag)), []);
  return lv!.node;
}

/** Returns the LVs with the id of a volume, on all nodes. */
export async function lvsOf(ns: TestNamespace, id: string) {
  return (await Promise.all(ns.cluster.nodes.map(listDriverLvs))).flat().filter(({ volume }) => volume === id);
}

/**
 * Moves the claim to the other node, and checks what the workload has there.
 *
 * @param during called when the move begins, with what reports whether it is over
 * @param flags more flags of the command
 * @returns what happened, in words
 */
export async function moveAndCheck(
  ns: TestNamespace,
  digest: string,
  during: (isOver: () => boolean) => Promise<void> = () => Promise.resolve(),
  flags: readonly string[] = [],
): Promise<string> {
  const from = await nodeOf(ns);
  const to = NODES.find((name) => name !== from)!;
  const { metadata: { name, uid } } = await ns.volumeOf("data");
  const written = await writtenLines(ns);
  let isOver = false;
  const moving = moveClaim(ns, "data", to, flags).finally(() => isOver = true);
  const [outcome] = await Promise.all([moving, during(() => isOver)]);
  assertEquals([outcome.state, outcome.sourceNode, outcome.targetNode], ["Complete", from, to]);
  await waitForWriter(ns, to);
  await assertLog(ns, written);
  assertEquals(await ns.exec(WRITER, "sha256sum < /data/file"), digest);
  assertEquals(await nodeOf(ns), to);
  const now = await ns.volumeOf("data");
  assertEquals([now.metadata.name, now.spec?.persistentVolumeReclaimPolicy], [name, "Delete"]);
  assert(now.metadata.uid !== uid, "it was made again");
  const { copyMode, differences, received, downtimeSeconds } = outcome;
  return `${copyMode}, ${SIZE} from ${from} to ${to}: ${received} were sent last, as difference ${differences}, and nobody could ` +
    `use it for ${downtimeSeconds} s`;
}

/** Removes the workload with its claim. */
export async function removeWriter(ns: TestNamespace): Promise<void> {
  await ns.kubectl("delete", "statefulset", "store");
  await ns.deleteAndWait("PersistentVolumeClaim", "data");
  await ns.waitForCleanup();
}
