import { assert } from "@std/assert";
import { Identity } from "../../csi/proto/csi_pb.ts";
import { callOverFetch } from "../contract/csi_client.ts";
import { kibOf } from "../bench/proc.ts";
import { DriverProcess } from "../demo/driver_process.ts";
import { DRIVER_FLAGS } from "./driver_command.ts";

const MAIN = new URL("../../main.ts", import.meta.url).pathname;

/** The memory that a connection may cost after it is closed, in KiB: node:http2 kept 20. */
const MAX_KIB = 6;

const CONNECTIONS = 1_500;

/** Returns the anonymous memory of a process, in KiB. */
async function anonymousKib(pid: number): Promise<number> {
  return kibOf(await Deno.readTextFile(`/proc/${pid}/status`), "RssAnon")!;
}

Deno.test("the driver keeps nothing of connections that were closed: kubelet opens one for each call", async () => {
  const folder = await Deno.makeTempDir();
  const socket = `${folder}/csi.sock`;
  const flags = ["--endpoint", socket, "--mount-roots", folder, "--volume-groups", "none", "--node-id", "n"];
  const command = [Deno.execPath(), "run", ...DRIVER_FLAGS, MAIN, "standalone", ...flags];
  try {
    await using driver = await DriverProcess.start({ command, socket });
    const connect = async (count: number) => {
      for (let n = 0; n < count; n++) await callOverFetch(socket, Identity.method.getPluginInfo, {});
      return await anonymousKib(driver.pid);
    };
    const before = await connect(CONNECTIONS / 3); // what it takes once
    const perConnection = (await connect(CONNECTIONS) - before) / CONNECTIONS;
    assert(perConnection < MAX_KIB, `each left ${perConnection} KiB`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
