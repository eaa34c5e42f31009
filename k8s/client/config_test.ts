import { assertEquals, assertThrows } from "@std/assert";
import { accessOf, inClusterServer } from "./config.ts";

Deno.test("inClusterServer() returns the server that the pod's variables name, with an IPv6 address in brackets", () => {
  const urlOf = (host: string) => inClusterServer((name) => name === "KUBERNETES_SERVICE_HOST" ? host : "443").url;
  assertEquals([urlOf("10.96.0.1"), urlOf("fd00::1")], ["https://10.96.0.1:443", "https://[fd00::1]:443"]);
  assertThrows(() => inClusterServer(() => undefined), Error, "finding the API server: not in a pod");
});

Deno.test("accessOf() returns the host with its port, and the files that are read", () => {
  const account = "/var/run/secrets/kubernetes.io/serviceaccount";
  assertEquals(accessOf(inClusterServer((name) => name.endsWith("HOST") ? "fd00::1" : "6443")), {
    hosts: ["[fd00::1]:6443"],
    files: [`${account}/ca.crt`, `${account}/token`],
  });
  const token = { text: "t" };
  assertEquals(accessOf({ url: "https://example.com", token }), { hosts: ["example.com:443"], files: [] });
});
