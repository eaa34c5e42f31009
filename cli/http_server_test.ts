import { assertEquals, assertThrows } from "@std/assert";
import { httpAddress } from "./api_access.ts";
import { serveHttp } from "./http_server.ts";
import { loopbackAddresses } from "../tests/fake/loopback.ts";

const LOCAL = { hosts: ["127.0.0.1"], port: 0 };

async function get(port: number, path: string, host = "127.0.0.1"): Promise<[number, string, string | null]> {
  const response = await fetch(`http://${host}:${port}${path}`);
  return [response.status, await response.text(), response.headers.get("content-type")];
}

const TEXT = "text/plain; charset=utf-8";

Deno.test("serveHttp(): /livez always answers 200, and /readyz does when there is no reason against it", async () => {
  const reasons: string[] = ["LVM has not answered yet", "registration: not asked"];
  await using http = serveHttp(LOCAL, { notReadyReasons: () => reasons, metrics: () => Promise.resolve("") });
  assertEquals(await get(http.port, "/livez"), [200, "ok\n", TEXT]);
  assertEquals(await get(http.port, "/readyz"), [503, "LVM has not answered yet\nregistration: not asked\n", TEXT]);
  reasons.length = 0;
  assertEquals(await get(http.port, "/readyz?verbose"), [200, "ok\n", TEXT]);
  assertEquals(await get(http.port, "/"), [404, "not found; the paths are /livez, /readyz and /metrics\n", TEXT]);
});

Deno.test("serveHttp(): /metrics has the text format of Prometheus; metrics that cannot be read are an error", async () => {
  let metricsText: () => Promise<string> = () => Promise.resolve("up 1\n");
  await using http = serveHttp(LOCAL, { notReadyReasons: () => [], metrics: () => metricsText() });
  assertEquals(await get(http.port, "/metrics"), [200, "up 1\n", "text/plain; version=0.0.4; charset=utf-8"]);
  metricsText = () => Promise.reject(new Error("no metrics"));
  assertEquals(await get(http.port, "/metrics"), [500, "Error: no metrics\n", TEXT]);
});

Deno.test("serveHttp(): a port that is taken is an error, and is free when the server is disposed of", async () => {
  const options = { notReadyReasons: () => [], metrics: () => Promise.resolve("") };
  const { port } = await (async () => {
    await using http = serveHttp(LOCAL, options);
    assertThrows(() => serveHttp({ ...LOCAL, port: http.port }, options), Deno.errors.AddrInUse);
    return http;
  })();
  await using second = serveHttp({ ...LOCAL, port }, options);
  assertEquals(second.port, port);
});

Deno.test("serveHttp(): without a host, answers over IPv4 and over IPv6", async () => {
  const address = httpAddress({ "http-address": ":0" })!;
  await using http = serveHttp(address, { notReadyReasons: () => [], metrics: () => Promise.resolve("") });
  for (const host of loopbackAddresses()) {
    assertEquals(await get(http.port, "/livez", host), [200, "ok\n", TEXT], host);
  }
});

Deno.test("serveHttp(): listens on the next host when the machine does not have the first one", async () => {
  const address = { hosts: ["2001:db8::1", "127.0.0.1"], port: 0 };
  await using http = serveHttp(address, { notReadyReasons: () => [], metrics: () => Promise.resolve("") });
  assertEquals([http.host, await get(http.port, "/livez")], ["127.0.0.1", [200, "ok\n", TEXT]]);
});

Deno.test("serveHttp(): a port that is taken is an error, even if it is free on the next host", async () => {
  const options = { notReadyReasons: () => [], metrics: () => Promise.resolve("") };
  await using taken = serveHttp(LOCAL, options);
  const address = { hosts: ["127.0.0.1", "127.0.0.2"], port: taken.port };
  assertThrows(() => serveHttp(address, options), Deno.errors.AddrInUse);
});
