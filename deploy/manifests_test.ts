import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { volumeIdOf } from "../base/ids.ts";
import { DEFINITIONS } from "../k8s/client/definitions.ts";
import { subcommandFlags } from "../tests/process/driver_command.ts";
import { IMAGE } from "./image/archive.ts";
import { DRIVER_FOLDER, IMAGE_START } from "./image/driver.ts";
import { MODULE, WORKER_MODULE } from "./launch.ts";
import { type KubernetesObject, readObjects } from "./objects.ts";

const NAMESPACE = "denolith-system";
const DRIVER = "lvm.denolith.dev";
const TOPOLOGY_KEY = "topology.lvm.denolith.dev/node";

const manifests = readObjects("manifests");
const examples = readObjects("examples");
const crds = readObjects("crds");

/** Resources that the roles name, by group: those of Kubernetes, and ours. */
const RESOURCES: Readonly<Record<string, readonly string[]>> = {
  "": [
    ...["persistentvolumes", "persistentvolumeclaims", "persistentvolumeclaims/status", "nodes", "pods", "events"],
    "pods/eviction",
    "namespaces",
  ],
  "coordination.k8s.io": ["leases"],
  apps: ["statefulsets"],
  "apiextensions.k8s.io": ["customresourcedefinitions"],
  "storage.k8s.io": ["storageclasses", "csinodes", "volumeattributesclasses", "csistoragecapacities"],
  "snapshot.storage.k8s.io": [
    ...["volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshotcontents/status", "volumesnapshots"],
  ],
  "groupsnapshot.storage.k8s.io": [
    ...["volumegroupsnapshotclasses", "volumegroupsnapshotcontents", "volumegroupsnapshotcontents/status"],
    "volumegroupsnapshots",
  ],
  "lvm.denolith.dev": crds.flatMap(({ spec: { names: { plural } } }) => [plural, `${plural}/status`]),
  // those of other drivers, whose volumes are imported
  "local.openebs.io": ["lvmvolumes"],
  "topolvm.io": ["logicalvolumes"],
};

const VERBS = ["get", "list", "watch", "create", "update", "patch", "delete"];

interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
  readonly resourceNames?: readonly string[];
}

function object(kind: string, name: string): KubernetesObject {
  const found = manifests.find((one) => one.kind === kind && one.metadata.name === name);
  assert(found !== undefined, `there is no ${kind} ${name}`);
  return found;
}

const workloads = [object("Deployment", "denolith-controller"), object("DaemonSet", "denolith-node")];
const [controller, node] = workloads.map(({ spec }) => spec.template.spec);

function rulesOf(name: string): Rule[] {
  return manifests.filter(({ kind, metadata }) => /Role$/.test(kind) && metadata.name === name).flatMap(({ rules }) =>
    rules
  );
}

/** Returns the flags of a container's arguments by name, after the subcommand. */
function flagsOf(args: readonly string[]): Map<string, string> {
  return new Map(args.slice(1).map((arg) => /^--([a-z-]+)=(.*)$/.exec(arg)!.slice(1) as [string, string]));
}

Deno.test("everything is in the namespace that comes first, which permits privileged pods", () => {
  assertEquals([manifests[0]!.kind, manifests[0]!.metadata.name], ["Namespace", NAMESPACE]);
  assertEquals(manifests[0]!.metadata.labels?.["pod-security.kubernetes.io/enforce"], "privileged");
  const namespaced = manifests.filter(({ kind }) =>
    /^(?:ServiceAccount|Role|RoleBinding|Deployment|DaemonSet)$/.test(kind)
  );
  assertEquals([...new Set(namespaced.map(({ metadata }) => metadata.namespace))], [NAMESPACE]);
  const names = manifests.map(({ kind, metadata }) => `${kind} ${metadata.name}`);
  assertEquals(names.length, new Set(names).size);
});

Deno.test("pods have a service account, and that has a role", () => {
  for (const { metadata, spec } of workloads) {
    const account = spec.template.spec.serviceAccountName;
    assertEquals(account, metadata.name);
    object("ServiceAccount", account);
    for (const kind of metadata.name === "denolith-node" ? ["ClusterRole"] : ["ClusterRole", "Role"]) {
      const binding = object(`${kind}Binding`, account);
      assertEquals([binding.roleRef.kind, binding.roleRef.name], [kind, account]);
      assertEquals(binding.subjects, [{ kind: "ServiceAccount", name: account, namespace: NAMESPACE }]);
      object(kind, account);
    }
    const { labels } = spec.template.metadata;
    assertEquals({ ...labels, ...spec.selector.matchLabels }, labels);
  }
});

Deno.test("roles name resources and verbs that there are, one by one", () => {
  const names = ["denolith-controller", "denolith-node", "denolith-view", "denolith-operate"];
  const rules = names.flatMap(rulesOf);
  assert(rules.length > 10, "the test sees the rules");
  for (const { apiGroups, resources, verbs } of rules) {
    assertEquals(apiGroups.length, 1);
    const known = RESOURCES[apiGroups[0]!] ?? [];
    assertEquals([resources.filter((name) => !known.includes(name)), verbs.filter((verb) => !VERBS.includes(verb))], [
      [],
      [],
    ]);
  }
});

Deno.test("processes may read the definitions of their kinds, and no others", () => {
  for (const name of ["denolith-controller", "denolith-node"]) {
    const rules = rulesOf(name).filter(({ apiGroups }) => apiGroups.includes("apiextensions.k8s.io"));
    assertEquals(rules.map(({ resourceNames, verbs }) => [resourceNames, verbs]), [[[...DEFINITIONS], ["get"]]]);
  }
});

Deno.test("an agent may not change claims, PersistentVolumes, pods or secrets, nor create or delete volumes or snapshots", () => {
  const rules = rulesOf("denolith-node");
  const resources = rules.flatMap(({ resources }) => resources);
  assertEquals(resources.filter((name) => /^(?:persistent|secrets|pods)/.test(name)), []);
  const leaseVerbs = rules.filter(({ resources }) => resources.includes("leases")).flatMap(({ verbs }) => verbs);
  assertEquals(leaseVerbs, ["patch"], "the policy limits them to the agent's own");
  for (const resource of ["lvmvolumes", "lvmsnapshots"]) {
    const verbs = rules.filter(({ resources }) => resources.includes(resource)).flatMap(({ verbs }) => verbs);
    assertEquals(verbs, ["get", "list", "watch", "patch"], resource);
  }
  const deleting = rules.filter(({ verbs }) => verbs.includes("delete"));
  assertEquals(deleting, []);
});

Deno.test("the role of people who look reads alone, and both reach nothing that runs programs or has secrets", () => {
  const [view, operate] = [rulesOf("denolith-view"), rulesOf("denolith-operate")];
  const verbs = view.flatMap(({ verbs }) => verbs);
  assertEquals([...new Set(verbs)].sort(), ["get", "list", "watch"]);
  const resources = [...view, ...operate].flatMap(({ resources }) => resources);
  assertEquals(
    resources.filter((name) => /^secrets|\/(?:exec|attach|portforward|proxy|ephemeralcontainers)$/.test(name)),
    [],
  );
});

Deno.test("both roles run the image that deno task image makes, under its name", () => {
  assertEquals(
    [controller, node].flatMap(({ initContainers = [], containers }) =>
      [...initContainers, ...containers].map(({ image }: { image: string }) => image)
    ),
    [IMAGE, IMAGE, IMAGE, IMAGE],
  );
  for (const { containers } of [controller, node]) assertEquals(containers[0].imagePullPolicy, "IfNotPresent");
});

Deno.test("the modules of the image are cached before both roles start, where they look for them", () => {
  const files = ["deno.json", MODULE, WORKER_MODULE].map((name) => `${DRIVER_FOLDER}/${name}`);
  const env: readonly string[] = IMAGE_START.Env;
  for (const { initContainers: [{ command, args, volumeMounts }], containers } of [controller, node]) {
    assertEquals(command, ["/usr/bin/deno", "cache", "--quiet", "--no-remote", "--no-npm"]);
    assertEquals(args, [`--config=${files[0]}`, ...files.slice(1)]);
    assert(env.includes(`DENO_DIR=${volumeMounts[0].mountPath}`));
    assert(containers[0].volumeMounts.some(({ name }: { name: string }) => name === volumeMounts[0].name));
  }
});

Deno.test("the flags are those of the subcommands", async () => {
  for (const { containers: [{ args }] } of [controller, node]) {
    const [subcommand] = args as string[];
    const known = await subcommandFlags(subcommand!);
    assertEquals([...flagsOf(args).keys()].filter((flag) => !known.includes(flag)), []);
  }
});

Deno.test("addresses, ports and probes agree", () => {
  for (const { spec: { template: { metadata, spec: { containers: [container] } } } } of workloads) {
    const port = Number(flagsOf(container.args).get("http-address")!.replace(":", ""));
    assertEquals(container.ports, [{ name: "http", containerPort: port }]);
    assertEquals(metadata.annotations["prometheus.io/port"], String(port));
    assertEquals(container.startupProbe.httpGet, { path: "/livez", port: "http" });
    assertEquals(container.livenessProbe.httpGet, { path: "/livez", port: "http" });
    assertEquals(container.readinessProbe.httpGet, { path: "/readyz", port: "http" });
    const variables = new Set(container.env.map(({ name }: { name: string }) => name));
    const used = container.args.flatMap((arg: string) => [...arg.matchAll(/\$\((\w+)\)/g)].map(([, name]) => name));
    assertEquals(new Set(used), variables.difference(new Set(["DENO_V8_FLAGS"])));
  }
});

Deno.test("agents are replaced by a share of the nodes at a time, so that large clusters take minutes and not days", () => {
  const { type, rollingUpdate } = object("DaemonSet", "denolith-node").spec.updateStrategy;
  assertEquals([type, rollingUpdate], ["RollingUpdate", { maxUnavailable: "10%" }]);
});

Deno.test("the agent has the host's paths that LVM needs, kubelet's for its mounts, its cache, and no namespace of the host", () => {
  const paths = Object.fromEntries(
    node.volumes.filter(({ hostPath }: { hostPath?: unknown }) => hostPath).map((
      { name, hostPath }: { name: string; hostPath: { path: string } },
    ) => [name, hostPath.path]),
  );
  const root = flagsOf(node.containers[0].args).get("kubelet-dir");
  assertEquals(
    Object.values(paths).sort(),
    [
      ...["/dev", "/etc/lvm", "/run/cryptsetup", "/run/lock/lvm", "/run/udev", "/sys/fs/cgroup", "/var/cache/denolith"],
      root,
    ].sort(),
  );
  const cgroups = flagsOf(node.containers[0].args).get("cgroup-root");
  for (const { name, mountPath, mountPropagation } of node.containers[0].volumeMounts) {
    // Deno refuses /sys
    if (paths[name] === "/sys/fs/cgroup") assertEquals(mountPath, cgroups);
    // the driver gives paths to kubelet, and to LVM of the host's records: they are the same on both sides
    else if (paths[name] !== undefined) assertEquals(mountPath, paths[name]);
    assertEquals(mountPropagation, mountPath === root ? "Bidirectional" : undefined);
  }
  assertEquals([node.hostPID, node.hostNetwork, node.hostIPC], [undefined, undefined, undefined]);
  assert(node.terminationGracePeriodSeconds >= 120);
  assertEquals(node.tolerations, [{ operator: "Exists" }]);
  assertEquals([node.priorityClassName, node.nodeSelector], ["system-node-critical", { "kubernetes.io/os": "linux" }]);
});

Deno.test("the controller runs as `restricted` demands, with its socket in a folder of its own", () => {
  const [{ args, volumeMounts }] = controller.containers;
  for (const { securityContext } of [...controller.initContainers, ...controller.containers]) {
    assertEquals(securityContext, {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    });
  }
  assertEquals(controller.securityContext.runAsNonRoot, true);
  assertEquals(controller.securityContext.seccompProfile, { type: "RuntimeDefault" });
  assert(controller.volumes.every((volume: { emptyDir?: unknown }) => volume.emptyDir !== undefined));
  const socket = flagsOf(args).get("endpoint")!.replace("unix://", "");
  assert(volumeMounts.some(({ mountPath }: { mountPath: string }) => socket === `${mountPath}/csi.sock`), socket);
});

Deno.test("pods mount volumes that they have, and each that they have", () => {
  const pods = [controller, node, ...examples.filter(({ kind }) => kind === "Pod").map(({ spec }) => spec)];
  for (const { volumes, containers: [container] } of pods) {
    const used = [...container.volumeMounts ?? [], ...container.volumeDevices ?? []].map(({ name }) => name);
    assertEquals(used.sort(), volumes.map(({ name }: { name: string }) => name).sort());
  }
});

Deno.test("the driver has one name", () => {
  object("CSIDriver", DRIVER);
  const classes = [...manifests, ...examples].filter(({ kind }) => kind === "StorageClass");
  const all = (names: readonly string[]) => assertEquals([...new Set(names)], [DRIVER]);
  all(classes.map(({ provisioner }) => provisioner));
  const volumes = examples.filter(({ kind }) => kind === "PersistentVolume");
  assertEquals(volumes.map(({ spec }) => spec.csi.driver), [DRIVER]);
  const kinds = ["VolumeSnapshotClass", "VolumeGroupSnapshotClass"];
  const snapshotClasses = examples.filter(({ kind }) => kinds.includes(kind));
  all(snapshotClasses.map(({ driver }) => driver));
  all(examples.filter(({ kind }) => kind === "VolumeAttributesClass").map(({ driverName }) => driverName));
});

Deno.test("the scheduler uses published capacity, and the controller may publish it only in its own namespace", () => {
  assertEquals(object("CSIDriver", DRIVER).spec.storageCapacity, true);
  const granting = manifests.filter(({ rules }) =>
    rules?.some(({ resources, verbs }: Rule) => resources.includes("csistoragecapacities") && verbs.includes("create"))
  );
  assertEquals(granting.map(({ kind, metadata }) => [kind, metadata.name, metadata.namespace]), [
    ["Role", "denolith-controller", NAMESPACE],
  ]);
});

Deno.test("examples have a README, claims whose class exists, and pods whose claim exists", () => {
  for (const { name, isDirectory } of Deno.readDirSync(join(import.meta.dirname!, "examples"))) {
    if (!isDirectory) continue;
    const objects = readObjects(join("examples", name));
    const readme = Deno.readTextFileSync(join(import.meta.dirname!, "examples", name, "README.md"));
    assert(readme.includes(`kubectl apply -f deploy/examples/${name}\n`), name);
    const claims = objects.filter(({ kind }) => kind === "PersistentVolumeClaim");
    const templates = objects.flatMap(({ spec }) => [
      ...(spec?.volumeClaimTemplates ?? []),
      ...(spec?.volumes ?? []).flatMap(({ ephemeral }: { ephemeral?: { volumeClaimTemplate: unknown } }) =>
        ephemeral?.volumeClaimTemplate ?? []
      ),
    ]);
    const named = (kind: string) =>
      [...manifests, ...examples].filter((one) => one.kind === kind).map(({ metadata }) => metadata.name);
    for (const { spec: { storageClassName, volumeAttributesClassName } } of [...claims, ...templates]) {
      if (storageClassName !== "") assert(named("StorageClass").includes(storageClassName), name);
      if (volumeAttributesClassName === undefined) continue;
      assert(named("VolumeAttributesClass").includes(volumeAttributesClassName), name);
    }
    const names = claims.map(({ metadata }) => metadata.name);
    for (const { spec } of objects.filter(({ kind }) => kind === "Pod")) {
      for (const { persistentVolumeClaim, ephemeral } of spec.volumes) {
        assert(ephemeral !== undefined || names.includes(persistentVolumeClaim.claimName), name);
      }
    }
  }
});

Deno.test("the examples of snapshots name classes and claims that there are", () => {
  const named = (kind: string) => examples.filter((one) => one.kind === kind).map(({ metadata }) => metadata.name);
  const snapshots = examples.filter(({ kind }) => kind === "VolumeSnapshot");
  assert(snapshots.length > 0, "the test sees them");
  for (const { spec: { volumeSnapshotClassName, source: { persistentVolumeClaimName } } } of snapshots) {
    assert(named("VolumeSnapshotClass").includes(volumeSnapshotClassName), volumeSnapshotClassName);
    assert(named("PersistentVolumeClaim").includes(persistentVolumeClaimName), persistentVolumeClaimName);
  }
});

Deno.test("the example of a group snapshot names a class and labels of claims that there are", () => {
  const named = (kind: string) => examples.filter((one) => one.kind === kind);
  const [group] = named("VolumeGroupSnapshot");
  const { volumeGroupSnapshotClassName, source: { selector: { matchLabels } } } = group!.spec;
  assertEquals(named("VolumeGroupSnapshotClass").map(({ metadata }) => metadata.name), [volumeGroupSnapshotClassName]);
  const claims = named("PersistentVolumeClaim").filter(({ metadata }) => metadata.labels?.app === matchLabels.app);
  assert(claims.length > 1);
});

Deno.test("the example of an existing volume names one volume, one node and one size", () => {
  const [volume, pv] = ["LVMVolume", "PersistentVolume"].map((kind) => examples.find((one) => one.kind === kind)!);
  assertEquals(pv!.spec.csi.volumeHandle, volume!.metadata.name);
  assertEquals(volume!.metadata.name, volumeIdOf(volume!.spec.requestName));
  const readme = Deno.readTextFileSync(join(import.meta.dirname!, "examples/existing-volume/README.md"));
  assert(readme.includes(volume!.metadata.name));
  const [expression] = pv!.spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions;
  assertEquals(expression, { key: TOPOLOGY_KEY, operator: "In", values: [volume!.spec.nodeName] });
  assertEquals(pv!.spec.capacity.storage, volume!.spec.size);
});

Deno.test("LVM of an agent does not wait for udev, and leaves monitoring to the driver", () => {
  const settings = flagsOf(node.containers[0].args).get("lvm-config")!.split(" ").sort();
  assertEquals(settings, ["activation/monitoring=0", "activation/udev_rules=0", "activation/udev_sync=0"]);
});
