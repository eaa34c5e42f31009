/**
 * The rules by which the manifests restrict the agents and the controller. These tests check that they cover all
 * resources; a test in a cluster (tests/cluster/suite/node_isolation_suite.ts) checks that the API server applies them.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { type KubernetesObject, readObjects } from "./objects.ts";

const manifests = readObjects("manifests");
const crds = readObjects("crds");

const POLICY = "ValidatingAdmissionPolicy";

function requireSingle(kind: string): KubernetesObject {
  const [object, ...more] = manifests.filter((one) => one.kind === kind && one.metadata.name === "denolith-node");
  assertEquals(more, [], `one ${kind}`);
  assert(object !== undefined, `there is a ${kind}`);
  return object;
}

const { metadata: { name: policyName }, spec: policy } = requireSingle(POLICY);

/** Reports whether a rule covers a resource or subresource, as the API server matches admission rules. */
function covers(resources: readonly string[], resource: string): boolean {
  const [name, subresource = ""] = resource.split("/");
  return resources.some((rule) => {
    const [ruleName, ruleSubresource = ""] = rule.split("/");
    return [name, "*"].includes(ruleName) && [subresource, "*"].includes(ruleSubresource);
  });
}

Deno.test("the policy is bound, denies, and denies what cannot be decided", () => {
  const { spec } = requireSingle(`${POLICY}Binding`);
  assertEquals(spec, { policyName, validationActions: ["Deny"] });
  assertEquals(policy.failurePolicy, "Fail");
  for (const { reason, message } of policy.validations) {
    assertEquals([reason, message.length > 20], ["Forbidden", true]);
  }
});

Deno.test("the policy is about every kind of the group, its status, and each change and deletion", () => {
  assert(crds.length >= 3, "the test sees the kinds");
  for (const { spec: { group, names: { plural }, versions } } of crds) {
    const rules = policy.matchConstraints.resourceRules.filter(({ apiGroups, apiVersions }: Record<string, string[]>) =>
      apiGroups!.includes(group) &&
      (apiVersions!.includes("*") || versions.every(({ name }: { name: string }) => apiVersions!.includes(name)))
    );
    for (const resource of [plural, `${plural}/status`]) {
      const covering = rules.filter(({ resources }: { resources: string[] }) => covers(resources, resource));
      const operations = covering.flatMap(({ operations }: { operations: string[] }) => operations);
      assertEquals(operations.sort(), ["CREATE", "DELETE", "UPDATE"], resource);
    }
  }
  assertEquals(policy.matchConstraints.excludeResourceRules, undefined);
  for (const { spec: { scope } } of crds) assertEquals(scope, "Cluster", "a namespace selector leaves it out");
});

Deno.test("the policy is about the namespace in which the agents may write Leases, and about no other", () => {
  const account = requireSingle("DaemonSet").spec.template.spec.serviceAccountName;
  const roles = manifests.filter(({ kind, metadata }) => kind === "Role" && metadata.name === account);
  assertEquals(roles.map(({ metadata }) => ({ "kubernetes.io/metadata.name": metadata.namespace })), [
    policy.matchConstraints.namespaceSelector.matchLabels,
  ]);
});

Deno.test("the policy is about every resource beside events that the agents may write", () => {
  const account = requireSingle("DaemonSet").spec.template.spec.serviceAccountName;
  const rules = manifests.filter(({ kind, metadata }) => /Role$/.test(kind) && metadata.name === account)
    .flatMap(({ rules }) => rules);
  const writing = rules.filter(({ verbs }: { verbs: string[] }) =>
    verbs.some((verb) => !["get", "list", "watch"].includes(verb))
  );
  const written = writing.flatMap(({ apiGroups, resources }: Record<string, string[]>) =>
    resources!.map((resource) => ({ group: apiGroups![0]!, resource }))
  ).filter(({ resource }) => resource !== "events");
  assert(written.length >= 6, "the test sees the rules");
  for (const { group, resource } of written) {
    const isCovered = policy.matchConstraints.resourceRules.some(({ apiGroups, resources }: Record<string, string[]>) =>
      apiGroups!.includes(group) && covers(resources!, resource)
    );
    assert(isCovered, `${group}/${resource}`);
  }
});

Deno.test("the policy finds the node of each kind: in spec.nodeName, or in the name, where it says so", () => {
  const nodes = policy.variables.find(({ name }: { name: string }) => name === "nodes").expression;
  for (const { spec: { names: { plural }, versions } } of crds) {
    if (["lvmmoves", "lvmimports"].includes(plural)) continue; // of no node, so no agent may write them
    const byName = nodes.includes(`request.resource.resource == '${plural}' ? one.metadata.name`);
    for (const { schema: { openAPIV3Schema: { properties: { spec } } } } of versions) {
      assertEquals(spec.required?.includes("nodeName") ?? false, !byName, plural);
    }
  }
});

Deno.test("the policy applies to the account of the agents' pods, and to no other", () => {
  const daemonSet = requireSingle("DaemonSet");
  const account =
    `system:serviceaccount:${daemonSet.metadata.namespace}:${daemonSet.spec.template.spec.serviceAccountName}`;
  assertEquals(policy.matchConditions.map(({ expression }: { expression: string }) => expression), [
    `request.userInfo.username == '${account}'`,
  ]);
});

Deno.test("the policy is there before the agents", () => {
  const kinds = manifests.map(({ kind }) => kind);
  assert(kinds.lastIndexOf(`${POLICY}Binding`) < kinds.indexOf("DaemonSet"));
});

Deno.test("no role grants reading secrets, except a Role that an administrator writes", () => {
  const rules = manifests.filter(({ kind }) => /Role$/.test(kind)).flatMap(({ rules }) => rules);
  assert(rules.length > 10, "the test sees the rules");
  const granting = rules.filter(({ resources }: { resources: string[] }) =>
    resources.some((resource) => /^(?:secrets\b|\*)/.test(resource))
  );
  assertEquals(granting, []);
});
