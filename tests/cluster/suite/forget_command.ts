/**
 * `denolith forget-node`, as an administrator runs it.
 *
 * @module
 */

import { DRIVER_FLAGS } from "../../process/driver_command.ts";
import type { TestNamespace } from "./test_namespace.ts";

const MAIN = new URL("../../../main.ts", import.meta.url).pathname;

/** Runs the command with the administrator's kubeconfig. */
export async function forgetNode({ cluster: { controlPlane } }: TestNamespace, ...args: string[]) {
  const command = ["run", ...DRIVER_FLAGS, MAIN, "forget-node", ...args, "--kubeconfig", controlPlane.kubeconfig];
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: command,
    env: { NO_COLOR: "1" },
  }).output();
  return { code, out: new TextDecoder().decode(stdout), err: new TextDecoder().decode(stderr) };
}
