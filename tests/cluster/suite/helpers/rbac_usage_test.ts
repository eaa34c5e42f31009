import { assertEquals } from "@std/assert";
import type { AuditEvent } from "../../../rig/control_plane.ts";
import {
  deniedPermissions,
  grantedPermissions,
  peakPerSecond,
  type RbacObject,
  TEST_USER_AGENT,
  usedPermissions,
} from "./rbac_usage.ts";

const OBJECTS: RbacObject[] = [
  {
    kind: "ClusterRole",
    metadata: { name: "one" },
    rules: [
      { apiGroups: [""], resources: ["pods", "pods/status"], verbs: ["get"] },
      { apiGroups: ["apps"], resources: ["deployments"], verbs: ["list", "watch"] },
    ],
  },
  {
    kind: "Role",
    metadata: { name: "one" },
    rules: [{ apiGroups: [""], resources: ["secrets"], verbs: ["get"] }],
  },
  {
    kind: "ClusterRoleBinding",
    metadata: { name: "b" },
    roleRef: { kind: "ClusterRole", name: "one" },
    subjects: [{ kind: "ServiceAccount", name: "me", namespace: "n" }],
  },
  {
    kind: "RoleBinding",
    metadata: { name: "b" },
    roleRef: { kind: "Role", name: "one" },
    subjects: [{ kind: "ServiceAccount", name: "other", namespace: "n" }],
  },
];

function event(verb: string, objectRef: AuditEvent["objectRef"], rest: Partial<AuditEvent> = {}): AuditEvent {
  return {
    auditID: "",
    verb,
    requestURI: "",
    user: { username: "me" },
    requestReceivedTimestamp: "2026-01-01T00:00:00.000000Z",
    responseStatus: { code: 200 },
    ...(objectRef === undefined ? {} : { objectRef }),
    ...rest,
  };
}

Deno.test("grantedPermissions() returns what roles grant the account that they are bound to", () => {
  assertEquals([...grantedPermissions("me", OBJECTS)], [
    "get pods",
    "get pods/status",
    "list apps/deployments",
    "watch apps/deployments",
  ]);
  assertEquals([...grantedPermissions("nobody", OBJECTS)], []);
});

Deno.test("usedPermissions() returns what one user's requests needed, with subresources, without health checks and tests", () => {
  const events = [
    event("get", { resource: "pods", subresource: "status" }),
    event("create", { resource: "events" }, {
      responseStatus: {
        code: 403,
        message: 'forbidden: unable to create new content in namespace "x" because it is being terminated',
      },
    }),
    event("list", { resource: "deployments", apiGroup: "apps" }, { responseStatus: { code: 403 } }),
    event("get", undefined),
    event("get", { resource: "secrets" }, { user: { username: "other" } }),
    event("delete", { resource: "pods" }, { userAgent: TEST_USER_AGENT, responseStatus: { code: 403 } }),
  ];
  assertEquals([...usedPermissions("me", events)], ["get pods/status", "create events", "list apps/deployments"]);
  assertEquals([...deniedPermissions("me", events)], ["list apps/deployments"]);
});

Deno.test("the peak is the most requests within any second", () => {
  const at = (ms: number) =>
    event("get", undefined, { requestReceivedTimestamp: new Date(Date.UTC(2026, 0, 1) + ms).toISOString() });
  assertEquals(peakPerSecond([]), 0);
  assertEquals(peakPerSecond([at(0), at(1500), at(700), at(999), at(1699)]), 4);
  assertEquals(peakPerSecond([at(0), at(1000)]), 1);
});
