/**
 * Returns different ports of 127.0.0.1 without listeners. Another program may take one before its user does: then that
 * one fails to start, with an error.
 */
export function freePorts(count: number): number[] {
  const listeners = Array.from({ length: count }, () => Deno.listen({ hostname: "127.0.0.1", port: 0 }));
  try {
    return listeners.map((listener) => listener.addr.port);
  } finally {
    for (const listener of listeners) listener.close();
  }
}
