/**
 * `kubectl denolith`, as an administrator runs it.
 *
 * @module
 */

import { dirname } from "@std/path";
import type { TestNamespace } from "./test_namespace.ts";

const ROOT = new URL("../../../../", import.meta.url).pathname;

/** The subcommands that are about the whole cluster. */
const OF_CLUSTER = ["adopt", "doctor", "forget-node", "status"];

/** Runs a subcommand, in the namespace where it has one. @returns what it printed, as JSON @throws {Error} when it fails */
export async function runPlugin(ns: TestNamespace, ...args: readonly string[]): Promise<Record<string, unknown>> {
  const { kubeconfig, programs } = ns.cluster.controlPlane;
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "--quiet", "--no-prompt", "--cached-only", "-P=kubectl-denolith", `--config=${ROOT}deno.json`],
      ...[
        `${ROOT}plugin/main.ts`,
        ...args,
        ...(OF_CLUSTER.includes(args[0]!) ? [] : ["--namespace", ns.namespace]),
      ],
      ...["--output", "json", "--kubeconfig", kubeconfig],
    ],
    env: { PATH: `${dirname(programs.kubectl)}:${Deno.env.get("PATH")}` },
  }).output();
  const [text, errors] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
  if (code !== 0) throw new Error(`${args.join(" ")}: exit status ${code}: ${text} ${errors}`);
  return JSON.parse(text!);
}
