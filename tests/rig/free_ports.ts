/**
 * Ports of 127.0.0.1 that nobody listens on, all different. Another program may take one before its user does: then that one
 * fails to start, and says so.
 */
export function freePorts(count: number): number[] {
  const listeners = Array.from({ length: count }, () => Deno.listen({ hostname: "127.0.0.1", port: 0 }));
  try {
    return listeners.map((listener) => listener.addr.port);
  } finally {
    for (const listener of listeners) listener.close();
  }
}
