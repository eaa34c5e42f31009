/**
 * Helpers of the suites of moves: a workload that writes a log, what it has written, and the command of the plugin.
 *
 * @module
 */

import { dirname } from "@std/path";
import { assert, assertEquals } from "@std/assert";
import { sha256Hex } from "../../../lvm/sha256.ts";
import { BUSYBOX_IMAGE } from "../../rig/pod_image.ts";
import { isRunning } from "./objects.ts";
import type { TestNamespace } from "./test_namespace.ts";

const ROOT = new URL("../../../", import.meta.url).pathname;

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

/** Returns a StatefulSet of one replica that writes into a claim. */
export function writerOf(claimName: string) {
  const labels = { app: "store" };
  return {
    apiVersion: "apps/v1",
    kind: "StatefulSet",
    metadata: { name: "store" },
    spec: {
      replicas: 1,
      selector: { matchLabels: labels },
      template: {
        metadata: { labels },
        spec: {
          terminationGracePeriodSeconds: 1,
          automountServiceAccountToken: false,
          containers: [{
            name: "main",
            image: BUSYBOX_IMAGE,
            imagePullPolicy: "Never",
            command: ["sh", "-c", WRITE_LOG],
            volumeMounts: [{ name: "data", mountPath: "/data" }],
          }],
          volumes: [{ name: "data", persistentVolumeClaim: { claimName } }],
        },
      },
    },
  };
}

/** Waits until the writer runs on a node. */
export async function waitForWriter(ns: TestNamespace, node: string): Promise<void> {
  await ns.waitFor("Pod", WRITER, (pod) => isRunning(pod) && pod?.spec?.nodeName === node, `runs on ${node}`);
}

/** Returns the number of lines that are written through, at least. */
export async function writtenLines(ns: TestNamespace): Promise<number> {
  return Math.floor(Number(await ns.exec(WRITER, "wc -c < /data/log")) / LINE_BYTES) - 1; // the last may be in progress
}

/** Asserts that the log has all lines up to a number, and each its digest. */
export async function assertLog(ns: TestNamespace, atLeast: number): Promise<void> {
  // the last line may be in progress
  const lines = (await ns.exec(WRITER, "cat /data/log")).split("\n").slice(0, -1);
  assert(lines.length >= atLeast, `the log has ${lines.length} lines, and ${atLeast} were written`);
  const wrong = lines.findIndex((line, index) => {
    const number = String(index).padStart(10, "0");
    return line !== `${number} ${sha256Hex(number).slice(0, 16)} ...`;
  });
  assertEquals(lines[wrong], undefined, `line ${wrong} of ${lines.length}`);
}

/** Runs `kubectl denolith move` as an administrator does. @returns what it printed, as JSON */
export async function moveClaim(ns: TestNamespace, claim: string, to: string): Promise<Record<string, unknown>> {
  const { kubeconfig, programs } = ns.cluster.controlPlane;
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "--quiet", "--no-prompt", "--cached-only", "-P=kubectl-denolith", `--config=${ROOT}deno.json`],
      ...[`${ROOT}kubectl_denolith.ts`, "move", claim, "--namespace", ns.namespace, "--to", to, "--evict"],
      ...["--output", "json", "--kubeconfig", kubeconfig],
    ],
    env: { PATH: `${dirname(programs.kubectl)}:${Deno.env.get("PATH")}` },
  }).output();
  const [text, errors] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
  if (code !== 0) throw new Error(`move ${claim} to ${to}: exit status ${code}: ${text} ${errors}`);
  return JSON.parse(text!);
}
