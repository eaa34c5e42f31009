import { assertEquals, assertRejects } from "@std/assert";
import { persistentVolumeClaims } from "../../k8s/api/objects.ts";
import { HttpClient } from "../../k8s/client/http_client.ts";
import { FakeApiServer } from "../fake/cluster/api_server.ts";
import { type AuthorizedRequest, missingPermission, type ProcessRole, roleInUserAgent } from "../fake/cluster/rbac.ts";

const claims = { group: "", resource: "persistentvolumeclaims", isWatch: false, namespace: "team", name: "data" };
const leases = { group: "coordination.k8s.io", resource: "leases", isWatch: false };

Deno.test.each<[ProcessRole, AuthorizedRequest, string | undefined]>([
  ["controller", { ...claims, method: "PATCH" }, undefined],
  ["controller", { ...claims, method: "PATCH", resource: "persistentvolumeclaims/status" }, undefined],
  ["controller", { ...claims, method: "DELETE" }, "controller: delete persistentvolumeclaims in a namespace"],
  ["controller", { ...leases, method: "GET", namespace: "storage", name: "l" }, undefined],
  ["controller", { ...leases, method: "GET" }, "controller: list coordination.k8s.io/leases"],
  ["node", { ...leases, method: "PATCH", namespace: "storage", name: "l" }, undefined],
  [
    "node",
    { ...leases, method: "PUT", namespace: "storage", name: "l" },
    "node: update coordination.k8s.io/leases in a namespace",
  ],
  ["controller", { ...leases, method: "PUT", name: "l" }, "controller: update coordination.k8s.io/leases"],
  ["node", { ...claims, method: "GET" }, "node: get persistentvolumeclaims in a namespace"],
  ["node", { method: "GET", isWatch: true, group: "lvm.denolith.dev", resource: "lvmvolumes" }, undefined],
  [
    "node",
    { method: "DELETE", isWatch: false, group: "lvm.denolith.dev", resource: "lvmnodes", name: "n1" },
    "node: delete lvm.denolith.dev/lvmnodes",
  ],
])("missingPermission() for %s: %j", (role, request, expected) => {
  assertEquals(missingPermission(role, request), expected);
});

Deno.test.each<[string, ProcessRole | undefined]>([
  ["denolith/1.2.3 (node)", "node"],
  ["denolith/test (controller) mover", "controller"],
  ["denolith/test (administrator)", undefined],
  ["binder", undefined],
])("roleInUserAgent() for %s is %j", (userAgent, role) => assertEquals(roleInUserAgent(userAgent), role));

Deno.test("a fake API server fails at its end when a process asked for what its role does not grant", async () => {
  const api = FakeApiServer.start();
  {
    using client = new HttpClient({ url: api.url }, { userAgent: "denolith/test (node)" });
    await assertRejects(() => client.get(persistentVolumeClaims, { namespace: "team", name: "data" }));
  }
  await assertRejects(
    () => api[Symbol.asyncDispose](),
    Error,
    "no role in deploy/manifests grants node: get persistentvolumeclaims in a namespace",
  );
});
