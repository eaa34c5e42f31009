/** Ports on loopback. @module */

/** The range of ports. It is below those that Linux gives to connections (ip_local_port_range, ip(7)). */
const [FIRST, LAST] = [20_000, 29_999];

/**
 * Returns different ports of 127.0.0.1 without listeners. They stay free while the server on one is restarted: no
 * connection gets one of them in the meantime. If another program takes one, its user fails to start, with an error.
 */
export function freePorts(count: number): number[] {
  const listeners: Deno.Listener[] = [];
  while (listeners.length < count) {
    const port = FIRST + Math.floor(Math.random() * (LAST - FIRST + 1));
    try {
      listeners.push(Deno.listen({ hostname: "127.0.0.1", port }));
    } catch (error) {
      if (!(error instanceof Deno.errors.AddrInUse)) throw error;
    }
  }
  const ports = listeners.map(({ addr }) => (addr as Deno.NetAddr).port);
  for (const listener of listeners) listener.close();
  return ports;
}
