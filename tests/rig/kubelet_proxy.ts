/**
 * Leads the API server to kubelets: it asks for the address of a guest, and gets the port of this machine that leads there.
 *
 * The API server refuses to pass on a request (`nodes/proxy`) to a loopback address (ErrAddressNotAllowed of
 * k8s.io/apimachinery), and to nodes it connects by this proxy (KEP 1281, network proxy). Usage: `kubelet_proxy.ts SOCKET`.
 *
 * @module
 */

import { GUEST_ADDRESS } from "./uml_network.ts";

/** The number of bytes within which a request ends. */
const MAX_REQUEST = 4_096;

/** Returns the port of this machine for a request to connect; `undefined` for one that is not to a guest. */
export function portOf(request: string): number | undefined {
  const [, host, port] = /^CONNECT ([^:\s]+):(\d+) HTTP\/1\.1\r\n/.exec(request) ?? [];
  return host === GUEST_ADDRESS ? Number(port) : undefined;
}

/** Serves on a socket until the listener is closed. */
export async function serveKubeletProxy(listener: Deno.UnixListener): Promise<void> {
  for await (const connection of listener) {
    tunnel(connection).catch(() => {}).finally(() => close(connection));
  }
}

async function tunnel(from: Deno.UnixConn): Promise<void> {
  const port = portOf(await readRequest(from));
  const to = port === undefined ? undefined : await Deno.connect({ hostname: "127.0.0.1", port }).catch(() => {});
  const status = to ? "200 Connection established" : "502 Bad Gateway";
  await from.write(new TextEncoder().encode(`HTTP/1.1 ${status}\r\n\r\n`));
  if (!to) return;
  try {
    await Promise.all([from.readable.pipeTo(to.writable), to.readable.pipeTo(from.writable)]);
  } finally {
    close(to);
  }
}

/** Reads to the empty line: what follows is TLS, for which the API server waits for the answer. */
async function readRequest(from: Deno.UnixConn): Promise<string> {
  const buffer = new Uint8Array(MAX_REQUEST);
  let text = "";
  while (!text.includes("\r\n\r\n") && text.length < MAX_REQUEST) {
    const read = await from.read(buffer);
    if (read === null) break;
    text += new TextDecoder().decode(buffer.subarray(0, read));
  }
  return text;
}

function close(connection: Deno.Conn | Deno.UnixConn): void {
  try {
    connection.close();
  } catch { /* its streams have closed it */ }
}

if (import.meta.main) await serveKubeletProxy(Deno.listen({ transport: "unix", path: Deno.args[0]! }));
