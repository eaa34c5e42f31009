import { assertEquals, assertThrows } from "@std/assert";
import { UsageError } from "./command_line.ts";
import { askedHosts, transferHosts, transferOptions } from "./transfers.ts";

Deno.test("transfers are off without an address, and need one at which others reach this agent", () => {
  assertEquals([transferOptions({}), transferHosts({})], [undefined, []]);
  assertThrows(() => transferOptions({ "transfer-address": ":9810" }), UsageError, "--transfer-advertise");
  const flags = { "transfer-address": ":9810", "transfer-advertise": "10.0.0.7" };
  assertEquals(transferOptions(flags), { address: { host: "0.0.0.0", port: 9810 }, advertised: "10.0.0.7" });
  assertEquals(transferOptions({ ...flags, "transfer-address": "10.0.0.7:1", "transfer-bandwidth": "100Mi" }), {
    ...{ address: { host: "10.0.0.7", port: 1 }, advertised: "10.0.0.7" },
    bytesPerSecond: 100n << 20n,
  });
});

Deno.test("the first IPv4 address of a node counts, and a node without one takes no part", () => {
  const advertisedOf = (text: string) =>
    transferOptions({ "transfer-address": ":9810", "transfer-advertise": text })?.advertised;
  assertEquals(["fd00::7,10.0.0.7,10.0.0.8", "10.0.0.7,fd00::7", "fd00::7"].map(advertisedOf), [
    ...["10.0.0.7", "10.0.0.7"],
    undefined,
  ]);
  assertEquals(transferHosts({ "transfer-address": ":9810", "transfer-advertise": "fd00::7" }), []);
});

Deno.test("the process may listen on and connect to one port alone", () => {
  const flags = { "transfer-address": ":9810", "transfer-advertise": "10.0.0.7" };
  assertEquals(transferHosts(flags), ["0.0.0.0/0:9810"]);
});

Deno.test("the controller may connect to the port of the agents, if it has one", () => {
  assertEquals([askedHosts({}), askedHosts({ "transfer-port": "9810" })], [[], ["0.0.0.0/0:9810"]]);
  for (const port of ["0", "65536", ":9810", "http"]) {
    assertThrows(() => askedHosts({ "transfer-port": port }), UsageError, "must be a port");
  }
});
