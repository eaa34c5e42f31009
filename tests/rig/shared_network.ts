import { run } from "./process.ts";
import { pollUntil } from "./poll_until.ts";
import type { RunFolder } from "./run_folder.ts";

/** The interface of a machine on the network that the guests of a cluster share. */
export const SHARED_INTERFACE = "shared0";

/** The process in whose network namespace the bridge between machines is. */
const PROCESS = "shared-network";

/** The bridge. */
const BRIDGE = "machines";

/** The time limit for the bridge to be there, in milliseconds. */
const TIMEOUT_MS = 60_000;

/** Makes the bridge in a namespace of its own, which ends with it. */
const MAKE_BRIDGE = `ip link add ${BRIDGE} type bridge && ip link set ${BRIDGE} up && exec sleep infinity`;

/** The place of a guest among those that share a network. */
export interface SharedPlace {
  /** Its number, from 1. */
  readonly number: number;
  /** The number of guests. */
  readonly of: number;
}

/** Returns the address of a guest on the network. */
export function sharedAddress(number: number): string {
  return `10.89.0.${number}`;
}

/** Returns the subnet of the pods of a guest. */
export function podSubnet(number: number): string {
  return `10.88.${number}.0/24`;
}

/** Starts the network of a cluster's guests: a bridge in a namespace, that no other program sees. */
export async function startSharedNetwork(folder: RunFolder): Promise<void> {
  await folder.start(PROCESS, "unshare", ["--net", "sh", "-c", MAKE_BRIDGE]);
  const isThere = async () => (await bridgeIsUp(folder)) || undefined;
  await pollUntil(isThere, { action: "start the network of guests", timeoutMs: TIMEOUT_MS, intervalMs: 20 });
}

/** Connects a machine that waits for it. The interface ends with the machine. */
export async function connectToSharedNetwork(folder: RunFolder, machine: string): Promise<void> {
  const [bridge, pid] = await Promise.all([PROCESS, machine].map((name) => folder.pid(name)));
  if (bridge === undefined || pid === undefined) throw new Error(`connect ${machine} to other guests: it has ended`);
  const port = `port${pid}`; // what an earlier machine of this name had may still be there
  await run(`connect ${machine} to other guests`, "ip", [
    ...["link", "add", "name", SHARED_INTERFACE, "netns", String(pid), "type", "veth"],
    ...["peer", "name", port, "netns", String(bridge)],
  ]);
  for (const setting of [["master", BRIDGE], ["up"]]) {
    await run(`connect ${machine} to other guests`, "nsenter", [
      ...[`--net=/proc/${bridge}/ns/net`, "ip", "link", "set", port, ...setting],
    ]);
  }
}

async function bridgeIsUp(folder: RunFolder): Promise<boolean> {
  const pid = await folder.pid(PROCESS);
  if (pid === undefined) return false;
  const args = [`--net=/proc/${pid}/ns/net`, "ip", "link", "show", "up", BRIDGE];
  return await run("look for the bridge", "nsenter", args).then((out) => out !== "", () => false);
}
