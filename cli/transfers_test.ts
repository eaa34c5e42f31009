import { assertEquals, assertThrows } from "@std/assert";
import { type Flags, UsageError } from "./command_line.ts";
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

Deno.test("the first IPv4 address of a node counts, or with a domain of names the first IPv6 address", () => {
  const advertisedOf = (text: string, more: Flags = {}) =>
    transferOptions({ "transfer-address": ":9810", "transfer-advertise": text, ...more })?.advertised;
  const both = ["fd00::7,10.0.0.7,10.0.0.8", "10.0.0.7,fd00::7"];
  assertEquals([...both, "fd00::7"].map((text) => advertisedOf(text)), ["10.0.0.7", "10.0.0.7", undefined]);
  const domain = { "transfer-domain": "denolith-system.pod" };
  assertEquals(
    [...both, "fe80::1,fd00::7", "::1,fd00::", "::ffff:10.0.0.7"].map((text) => advertisedOf(text, domain)),
    [
      ...["10.0.0.7", "10.0.0.7", "fd00::7"],
      ...[undefined, undefined], // no names can be made of these
    ],
  );
  const at = (address: string) => advertisedOf("10.0.0.7,fd00::7", { ...domain, "transfer-address": address });
  assertEquals(["[fd00::7]:1", "10.0.0.7:1", "[::]:1", "0.0.0.0:1"].map(at), ["fd00::7", ...Array(3).fill("10.0.0.7")]);
  const ipv4Alone = { ...domain, "transfer-address": "0.0.0.0:1" };
  assertEquals(advertisedOf("fd00::7", ipv4Alone), undefined, "nobody listens there");
  assertEquals(transferHosts({ "transfer-address": ":9810", "transfer-advertise": "fd00::7" }), []);
});

Deno.test("the process may listen on and connect to one port alone", () => {
  const flags = { "transfer-address": ":9810", "transfer-advertise": "10.0.0.7" };
  assertEquals(transferHosts(flags), ["0.0.0.0/0:9810"]);
  const domain = { "transfer-domain": "denolith-system.pod" };
  assertEquals(transferHosts({ ...flags, ...domain }), ["0.0.0.0/0:9810", "*.denolith-system.pod:9810"]);
  const ipv6 = { ...flags, ...domain, "transfer-advertise": "fd00::7" };
  assertEquals(transferOptions(ipv6), {
    ...{ address: { host: "::", port: 9810 }, advertised: "fd00::7", domain: "denolith-system.pod" },
  });
  assertEquals(transferHosts(ipv6), ["0.0.0.0/0:9810", "*.denolith-system.pod:9810", "[::]:9810"]);
  assertEquals(transferHosts({ ...ipv6, "transfer-address": "[fd00::7]:1" }).at(-1), "[fd00::7]:1");
});

/** Returns which hosts a worker may reach or listen on that gets some. */
async function permitted(hosts: readonly string[], asked: readonly string[]): Promise<string[]> {
  const script = "onmessage = async ({ data }) => { const states = []; " +
    'for (const host of data) states.push((await Deno.permissions.query({ name: "net", host })).state); ' +
    "postMessage(states); }";
  const url = `data:application/javascript,${encodeURIComponent(script)}`;
  const worker = new Worker(url, { type: "module", deno: { permissions: { net: [...hosts] } } });
  try {
    const { promise, resolve, reject } = Promise.withResolvers<string[]>();
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = ({ message }) => reject(new Error(message));
    worker.postMessage(asked);
    const states = await promise;
    return asked.filter((_, index) => states[index] === "granted");
  } finally {
    worker.terminate();
  }
}

Deno.test("Deno gives these rights: one port of the names of pods, and of all IPv4 addresses, and no more", async () => {
  const flags = {
    "transfer-address": ":9810",
    "transfer-advertise": "fd00::7",
    "transfer-domain": "denolith-system.pod",
  };
  const own = ["10.0.0.7:9810", "fd00--7.denolith-system.pod:9810", "[::]:9810"];
  const others = [
    "10.0.0.7:9811",
    "fd00--7.denolith-system.pod:9811",
    "fd00--7.default.pod:9810",
    "[::]:9811",
    "[fd00::7]:9810",
  ];
  assertEquals(await permitted(transferHosts(flags), [...own, ...others]), own);
});

Deno.test("the controller may connect to the port of the agents, if it has one", () => {
  assertEquals([askedHosts({}), askedHosts({ "transfer-port": "9810" })], [[], ["0.0.0.0/0:9810"]]);
  const flags = { "transfer-port": "9810", "transfer-domain": "a.pod" };
  assertEquals(askedHosts(flags), ["0.0.0.0/0:9810", "*.a.pod:9810"]);
  for (const port of ["0", "65536", ":9810", "http"]) {
    assertThrows(() => askedHosts({ "transfer-port": port }), UsageError, "must be a port");
  }
});
