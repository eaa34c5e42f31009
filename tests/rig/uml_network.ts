import type { PortForward } from "./machine.ts";
import { pollUntil } from "./poll_until.ts";
import type { RunFolder } from "./run_folder.ts";

/** The address of the guest on its network. The machine that it runs on is 10.0.2.2. */
export const GUEST_ADDRESS = "10.0.2.15";

/** How long, and how often, each step is waited for. */
const WAIT = { timeoutMs: 60_000, intervalMs: 20 };

/** Options of {@linkcode startUmlNetwork}. */
export interface UmlNetworkOptions {
  readonly folder: RunFolder;
  /** The name of the machine's process in the folder. */
  readonly machine: string;
  /** The file that the machine makes when its namespace is there. */
  readonly ready: string;
  readonly forward: readonly PortForward[];
}

/** Returns the name of the process that is the network of a machine. */
export function networkProcess(machine: string): string {
  return `network-of-${machine}`;
}

/**
 * Connects a machine that was just started to this one, by slirp4netns: the guest reaches this machine as 10.0.2.2, and ports
 * of this machine lead into the guest.
 *
 * @throws {Error} when slirp4netns does not come up, or a port cannot be taken
 */
export async function startUmlNetwork({ folder, machine, ready, forward }: UmlNetworkOptions): Promise<void> {
  const exists = (path: string) => Deno.stat(path).then(() => true, () => false);
  await pollUntil(() => exists(ready), { ...WAIT, action: `wait for the namespace of ${machine}` });
  const pid = await folder.pid(machine);
  if (pid === undefined) throw new Error(`connect ${machine}: it has ended`);
  const socket = folder.file(`${machine}/network.sock`);
  await Deno.remove(socket).catch(() => {});
  const options = ["--mtu=1500", `--api-socket=${socket}`, "--netns-type=path", `/proc/${pid}/ns/net`, "tap0"];
  await folder.start(networkProcess(machine), "slirp4netns", options);
  for (const { host, hostPort, guestPort } of forward) {
    const error = await call(socket, machine, {
      execute: "add_hostfwd",
      arguments: {
        proto: "tcp",
        host_addr: host,
        host_port: hostPort,
        guest_addr: GUEST_ADDRESS,
        guest_port: guestPort,
      },
    });
    if (error !== undefined) throw new Error(`lead port ${hostPort} into ${machine}: ${error}`);
  }
}

/** Calls slirp4netns, whose socket is there a moment before it listens. @returns its error, if it answers one */
async function call(socket: string, machine: string, request: unknown): Promise<string | undefined> {
  const connect = () => Deno.connect({ transport: "unix", path: socket }).catch(() => undefined);
  using connection = await pollUntil(connect, { ...WAIT, action: `wait for the network of ${machine}` });
  await connection.write(new TextEncoder().encode(JSON.stringify(request)));
  await connection.closeWrite();
  const answer = JSON.parse(await new Response(connection.readable).text()) as { error?: { desc?: string } };
  return answer.error === undefined ? undefined : answer.error.desc ?? JSON.stringify(answer.error);
}
