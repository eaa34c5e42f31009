/**
 * Looks back at what all suites did, so it comes last of all by its name.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { parseAll } from "@std/yaml";
import { Cluster } from "../../rig/cluster.ts";
import { SYSTEM_NAMESPACE } from "./helpers/driver_pods.ts";
import {
  deniedPermissions,
  grantedPermissions,
  type RbacObject,
  type RbacPermission,
  usedPermissions,
} from "./helpers/rbac_usage.ts";
import { CLUSTER_VARIABLE } from "./helpers/test_namespace.ts";

const MANIFESTS = new URL("../../../deploy/manifests/", import.meta.url);

/** The reason for what only imports use. */
const IMPORTS = "only where a volume of another driver is imported, in a cluster of its own";

/** Permissions that no run of the suite uses, with the reasons for them. */
const UNUSED_PERMISSIONS: Record<string, Record<RbacPermission, string>> = {
  "denolith-controller": {
    "patch events": "only for what happens again and again",
    "get persistentvolumeclaims": "only where a claim changed while it was resized",
    "patch snapshot.storage.k8s.io/volumesnapshots": "only for a finalizer that csi-provisioner left",
    "get storage.k8s.io/volumeattributesclasses": "only for claims that name one",
    "get lvm.denolith.dev/lvmvolumes": "only where the watch is behind",
    "get lvm.denolith.dev/lvmsnapshots": "only where the watch is behind",
    "get lvm.denolith.dev/lvmmoves": "only where a volume is moved, which takes two nodes",
    "patch lvm.denolith.dev/lvmmoves": "only where a volume is moved",
    "patch lvm.denolith.dev/lvmmoves/status": "only where a volume is moved",
    "delete lvm.denolith.dev/lvmmoves": "only where a volume that was moved is deleted",
    "get lvm.denolith.dev/lvmimports": IMPORTS,
    "patch lvm.denolith.dev/lvmimports": IMPORTS,
    "patch lvm.denolith.dev/lvmimports/status": IMPORTS,
    ...Object.fromEntries(
      ["get", "create", "delete"].map((verb) => [`${verb} storage.k8s.io/storageclasses`, IMPORTS]),
    ),
    ...Object.fromEntries(
      ["get", "patch", "delete"].flatMap((verb) => [
        [`${verb} local.openebs.io/lvmvolumes`, IMPORTS],
        [`${verb} topolvm.io/logicalvolumes`, IMPORTS],
      ]),
    ),
    "get lvm.denolith.dev/lvmnodes": "only where the controller asks agents for changed blocks",
  },
  "denolith-node": {
    "get lvm.denolith.dev/lvmnodes": "only where the watch is behind",
    "get lvm.denolith.dev/lvmsnapshots": "only where the watch is behind",
    "patch coordination.k8s.io/leases": "only where the LVMNode does not change for two minutes",
    "patch events": "only for what happens again and again",
  },
};

Deno.test("no request of the processes was refused, and they used the rights that the manifests grant", async () => {
  const cluster = await Cluster.open(Deno.env.get(CLUSTER_VARIABLE)!);
  const events = await cluster.controlPlane.auditEvents();
  const objects: RbacObject[] = [];
  for (const name of ["controller-rbac.yaml", "node-rbac.yaml"]) {
    objects.push(...parseAll(await Deno.readTextFile(new URL(name, MANIFESTS))) as RbacObject[]);
  }
  for (const [account, reasons] of Object.entries(UNUSED_PERMISSIONS)) {
    const user = `system:serviceaccount:${SYSTEM_NAMESPACE}:${account}`;
    const granted = grantedPermissions(account, objects);
    const used = usedPermissions(user, events);
    const unused = [...granted].filter((right) => !used.has(right) && !Object.hasOwn(reasons, right));
    assertEquals([...deniedPermissions(user, events)], [], `${account} was refused`);
    assertEquals(unused, [], `${account} may, and did not`);
    assertEquals(Object.keys(reasons).filter((right) => !granted.has(right)), [], `${account}: reasons for nothing`);
  }
});
