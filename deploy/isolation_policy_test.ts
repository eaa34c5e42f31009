/**
 * The policy that isolates nodes, evaluated as the API server evaluates it. A test in a cluster
 * (tests/cluster/suite/node_isolation_suite.ts) does the same with the real one.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { agentLeaseName } from "../k8s/api/agent_leases.ts";
import { controllerLeaseName, type Sidecar, sidecarLeaseName } from "../k8s/runtime/leader.ts";
import { admissionPolicy } from "../tests/fake/cluster/admission_policy.ts";

const AGENT = "system:serviceaccount:denolith-system:denolith-node";
const DRIVER = "lvm.denolith.dev";
const SIDECARS: readonly Sidecar[] = ["csi-provisioner", "csi-resizer", "csi-snapshotter", "snapshot-controller"];
const policy = admissionPolicy("denolith-node");

/** An object, as far as the policy reads it. */
interface AdmittedObject {
  readonly metadata: { readonly name: string };
  readonly spec?: { readonly nodeName?: string; readonly acceptedDisks?: readonly object[] };
}

/** A request for admission, as far as the policy reads it. */
interface AdmissionRequest {
  readonly username?: string;
  /** The node in the token of the user; none by default. */
  readonly node?: string;
  readonly resource?: string;
  readonly before?: AdmittedObject;
  readonly after?: AdmittedObject;
}

/** Returns the messages of the validations that fail; `undefined` when the policy is not about the request. */
function deny({ username = AGENT, node, resource = "lvmvolumes", before, after }: AdmissionRequest) {
  const extra = { "authentication.kubernetes.io/node-name": [node] };
  const userInfo = { username, ...(node === undefined ? {} : { extra }) };
  return policy({ request: { userInfo, resource: { resource } }, oldObject: before ?? null, object: after ?? null });
}

/** Returns a volume of a node. */
function volumeOf(nodeName?: string): AdmittedObject {
  return { metadata: { name: "v1-1" }, spec: nodeName === undefined ? {} : { nodeName } };
}

/** Returns the LVMNode of a node. */
function nodeObject(name: string): AdmittedObject {
  return { metadata: { name } };
}

const OTHERS = ["the agent of node a may only write the objects of that node"];

Deno.test.each<[string, AdmissionRequest, readonly string[]]>([
  ["creates", { after: volumeOf("a") }, []],
  ["changes", { before: volumeOf("a"), after: volumeOf("a") }, []],
  ["deletes", { before: volumeOf("a") }, []],
  ["creates that of another node", { after: volumeOf("b") }, OTHERS],
  ["changes that of another node", { before: volumeOf("b"), after: volumeOf("b") }, OTHERS],
  ["deletes that of another node", { before: volumeOf("b") }, OTHERS],
  ["gives away", { before: volumeOf("a"), after: volumeOf("b") }, OTHERS],
  ["takes over", { before: volumeOf("b"), after: volumeOf("a") }, OTHERS],
  ["changes one without a node", { before: volumeOf(), after: volumeOf() }, OTHERS],
])("the policy decides when an agent %s an object: %j", (_name, request, messages) => {
  assertEquals(deny({ node: "a", ...request }), messages);
});

Deno.test("the policy finds the node of an LVMNode in its name", () => {
  const ofNode = { node: "a", resource: "lvmnodes" };
  assertEquals(deny({ ...ofNode, after: nodeObject("a") }), []);
  assertEquals(deny({ ...ofNode, before: nodeObject("b"), after: nodeObject("b") }), OTHERS);
  const forged = { metadata: { name: "b" }, spec: { nodeName: "a" } };
  assertEquals(deny({ ...ofNode, before: forged, after: forged }), OTHERS);
});

Deno.test("the policy denies an agent that accepts disks, in its own LVMNode, too", () => {
  const ofNode = { node: "a", resource: "lvmnodes" };
  const withDisks = (...names: string[]): AdmittedObject => ({
    metadata: { name: "a" },
    spec: { acceptedDisks: names.map((name) => ({ name, volumeGroup: "data", identity: "1" })) },
  });
  const refused = ["an agent cannot accept disks"];
  assertEquals(deny({ ...ofNode, after: withDisks("x") }), refused, "creates it");
  assertEquals(deny({ ...ofNode, before: nodeObject("a"), after: withDisks("x") }), refused);
  assertEquals(deny({ ...ofNode, before: withDisks("x"), after: withDisks("x", "y") }), refused);
  assertEquals(deny({ ...ofNode, before: withDisks("x"), after: withDisks("y") }), refused);
  assertEquals(deny({ ...ofNode, before: withDisks("x"), after: nodeObject("a") }), refused, "withdraws one");
  assertEquals(deny({ ...ofNode, before: withDisks("x"), after: withDisks("x") }), [], "the status");
  assertEquals(deny({ ...ofNode, before: withDisks("x") }), [], "deletes it");
  assertEquals(deny({ ...ofNode, username: "alice", before: nodeObject("a"), after: withDisks("x") }), undefined);
  assertEquals(deny({ ...ofNode, node: "b", after: withDisks("x") })?.length, 2, "of another node");
});

Deno.test("the policy lets an agent renew its own Lease, and touch no other one", () => {
  const lease = (name: string, spec = {}): AdmittedObject => ({ metadata: { name }, spec });
  const ofLease = (name: string) => ({ node: "a", resource: "leases", before: lease(name), after: lease(name) });
  assertEquals(deny(ofLease(agentLeaseName("a"))), []);
  assertEquals(deny({ ...ofLease(agentLeaseName("a.b")), node: "a.b" }), []);
  const controllers = [
    ...SIDECARS.map((name) => sidecarLeaseName(name, DRIVER)),
    controllerLeaseName("capacity", DRIVER),
  ];
  for (const name of [agentLeaseName("b"), agentLeaseName("a.b"), "a", "agent.", "xagent.a", ...controllers]) {
    assertEquals(deny(ofLease(name)), OTHERS, name);
  }
  const [other] = [lease(agentLeaseName("b"), { nodeName: "a" })];
  assertEquals(deny({ node: "a", resource: "leases", after: other! }), OTHERS);
  assertEquals(deny({ node: "a", resource: "leases", before: other! }), OTHERS);
  assertEquals(deny({ ...ofLease("x"), username: "system:node:b" }), undefined);
});

Deno.test("the policy denies an agent whose token names no node, and is not about other users", () => {
  const [message] = deny({ after: volumeOf("a") }) as readonly string[];
  assert(message!.startsWith("the token names no node"), message);
  assertEquals(deny({ node: "", after: volumeOf("") }), [message]);
  assertEquals(deny({ username: "system:serviceaccount:denolith-system:denolith-controller" }), undefined);
});
