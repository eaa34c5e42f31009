/** Returns the loopback addresses of this machine, as in URLs: that of IPv4, and that of IPv6 where the machine has it. */
export function loopbackAddresses(): readonly string[] {
  try {
    Deno.listen({ hostname: "::1", port: 0 }).close();
    return ["127.0.0.1", "[::1]"];
  } catch {
    return ["127.0.0.1"];
  }
}
