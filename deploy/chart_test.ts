import { assert, assertEquals, assertMatch } from "@std/assert";
import { join } from "@std/path";
import { parse, parseAll } from "@std/yaml";
import { CONTROLLER_NAMES } from "../cli/shared_flags.ts";
import manifest from "../deno.json" with { type: "json" };
import { DEFINITIONS, SCHEMA_ANNOTATION, SCHEMA_VERSION } from "../k8s/client/definitions.ts";
import {
  GROUP_SNAPSHOT_API,
  OPENSHIFT_API,
  OTHER_VALUES,
  RENDERINGS,
  SNAPSHOT_API,
} from "../tests/meta/chart_values.ts";
import { subcommandFlags } from "../tests/process/driver_command.ts";
import {
  CHART,
  chartTemplates,
  chartValues,
  NAMESPACE,
  renderChart,
  type RenderOptions,
  type Values,
} from "./chart.ts";
import { generatedFiles, NAMESPACE_FILE } from "./manifests.ts";
import type { KubernetesObject } from "./objects.ts";

const ROOT = join(import.meta.dirname!, "..");

/** A part of the schema of the values (JSON Schema, as far as it is used here). */
interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly pattern?: string;
  readonly minimum?: number;
  readonly minLength?: number;
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: false | Schema;
  readonly propertyNames?: Schema;
  readonly not?: Schema;
  readonly items?: Schema;
}

const schema: Schema & { readonly definitions: Readonly<Record<string, Schema>> } = JSON.parse(
  Deno.readTextFileSync(join(CHART, "values.schema.json")),
);

/** The keywords of JSON schema that {@linkcode violations} knows. */
const KEYWORDS = [
  ...["$schema", "$ref", "definitions", "type", "enum", "pattern", "minimum", "minLength", "required", "properties"],
  ...["additionalProperties", "items", "propertyNames", "not"],
];

function resolveRef({ $ref, ...rest }: Schema): Schema {
  return $ref === undefined ? rest : schema.definitions[$ref.replace("#/definitions/", "")]!;
}

function typeOf(value: unknown): string {
  if (Array.isArray(value)) return "array";
  return Number.isInteger(value) ? "integer" : typeof value;
}

/** Returns the paths at which a value violates the schema, with the reasons. */
function violations(value: unknown, by: Schema, path = ""): string[] {
  const {
    type,
    enum: values,
    pattern,
    minimum,
    minLength,
    required = [],
    properties = {},
    additionalProperties,
    items,
    propertyNames,
    not,
  } = resolveRef(by);
  const entries = Object.entries(typeOf(value) === "object" ? value as Values : {});
  const fits = (type === undefined || [type].flat().includes(typeOf(value))) &&
    (values?.includes(value) ?? true) &&
    (pattern === undefined || new RegExp(pattern, "u").test(String(value))) &&
    (minimum === undefined || Number(value) >= minimum) &&
    (minLength === undefined || String(value).length >= minLength) &&
    required.every((name) => entries.some(([key]) => key === name)) &&
    (not === undefined || violations(value, not).length > 0) &&
    (propertyNames === undefined || entries.every(([key]) => violations(key, propertyNames).length === 0));
  return [
    ...(fits ? [] : [path]),
    ...entries.flatMap(([name, below]) => {
      const known = Object.hasOwn(properties, name) ? properties[name] : additionalProperties;
      if (known === false) return [`${path}.${name}`];
      return known === undefined ? [] : violations(below, known, `${path}.${name}`);
    }),
    ...(Array.isArray(value) && items ? value.flatMap((item) => violations(item, items, `${path}[]`)) : []),
  ];
}

/** The templates that others include. */
const HELPERS = Deno.readTextFileSync(join(CHART, "templates/_helpers.tpl"));

/** Yields the paths of the values that a user can set: leaves, and objects whose fields Kubernetes defines. */
function* settings(by: Schema, path = ""): Generator<string> {
  const { properties, items } = resolveRef(by);
  const parts = properties ?? (items && resolveRef(items).properties);
  if (parts === undefined) return yield path;
  for (const [name, part] of Object.entries(parts)) {
    yield* settings(part, `${path}.${name}`);
  }
}

/** Returns the value at a path such as `.storageClasses.name`; for a list, the one in its first item. */
function valueAt(values: unknown, path: string): unknown {
  return path.split(".").slice(1).reduce((value, name) => {
    const below = Array.isArray(value) ? value[0] : value;
    return (below as Values | undefined)?.[name];
  }, values);
}

function objectsOf(rendering: RenderOptions): KubernetesObject[] {
  return [...renderChart(rendering).values()].flatMap((text) => parseAll(text) as (KubernetesObject | null)[])
    .filter((object) => object !== null);
}

function object(rendering: RenderOptions, kind: string, name = "denolith"): KubernetesObject {
  const found = objectsOf(rendering).find((one) => one.kind === kind && one.metadata.name.startsWith(name));
  assert(found !== undefined, `there is no ${kind} ${name}`);
  return found;
}

/** Returns the pods' specs: the controller's and the agent's. */
function pods(rendering: RenderOptions) {
  return ["Deployment", "DaemonSet"].map((kind) => object(rendering, kind).spec.template.spec);
}

const OTHER = RENDERINGS["every value another one"]!;

Deno.test("the plain manifests are what the chart becomes; if not: deno task manifests", () => {
  const made = generatedFiles();
  for (const [path, text] of made) assertEquals(Deno.readTextFileSync(join(ROOT, path)), text, path);
  for (const folder of ["crds", "manifests", "monitoring"]) {
    const there = [...Deno.readDirSync(join(ROOT, "deploy", folder))].map(({ name }) => `deploy/${folder}/${name}`);
    const more = there.filter((path) => !made.has(path));
    assertEquals(more, folder === "manifests" ? [`deploy/manifests/${NAMESPACE_FILE}`] : []);
  }
});

Deno.test("the namespace of the chart's documents is the one in namespace.yaml", () => {
  const { metadata } = parse(
    Deno.readTextFileSync(join(ROOT, "deploy/manifests", NAMESPACE_FILE)),
  ) as KubernetesObject;
  assertEquals(metadata.name, NAMESPACE);
});

Deno.test("the chart has the driver's version, which is its image's", () => {
  const { version, appVersion } = parse(Deno.readTextFileSync(join(CHART, "Chart.yaml"))) as Values;
  assertEquals([version, appVersion], [manifest.version, manifest.version]);
});

Deno.test("the schema names the values that there are, refuses others, and is understood by this test", () => {
  const named = [...settings(schema)];
  assert(named.length > 45, "the test sees the values");
  assertEquals(named.filter((path) => valueAt(chartValues(), path) === undefined), []);
  assertEquals(violations(chartValues(), schema), []);
  assertEquals(violations(OTHER_VALUES, schema), []);
  const keywords = (by: Schema): string[] => [
    ...Object.keys(by),
    ...[
      ...Object.values(by.properties ?? {}),
      ...[by.items, by.propertyNames, by.not].filter((part) => part !== undefined),
    ]
      .flatMap(keywords),
  ];
  assertEquals(new Set(keywords(schema)).difference(new Set(KEYWORDS)), new Set());
});

Deno.test.each([
  [{ kubeletdir: "/var/lib/kubelet" }, ".kubeletdir"],
  [{ kubeletDir: "/var/lib/kubelet/" }, ".kubeletDir"],
  [{ kubeletDir: "kubelet" }, ".kubeletDir"],
  [{ driverName: "Lvm" }, ".driverName"],
  [{ volumeGroups: "data" }, ".volumeGroups"],
  [{ volumeGroups: ["data,fast"] }, ".volumeGroups[]"],
  [{ log: { level: "trace" } }, ".log.level"],
  [{ node: { tolerations: {} } }, ".node.tolerations"],
  [{ controller: { replicas: "2" } }, ".controller.replicas"],
  [{ controller: { disableControllers: ["provisoner"] } }, ".controller.disableControllers[]"],
  [{ node: { extraArgs: ["node"] } }, ".node.extraArgs[]"],
  [{ lvm: { configDir: "" } }, ".lvm.configDir"],
  [{ lvm: { archiveDir: "archive" } }, ".lvm.archiveDir"],
  [{ lvm: { devicesFile: "../system.devices" } }, ".lvm.devicesFile"],
  [{ lvm: { systemId: 'a"b' } }, ".lvm.systemId"],
  [{ lvm: { settings: ["scan_lvs=0"] } }, ".lvm.settings[]"],
  [{ lvm: { settings: ["devices/scan_lvs=0\ndevices/dir=1"] } }, ".lvm.settings[]"],
  [{ hostPaths: { dev: "/dev" } }, ".hostPaths.dev"],
  [{ hostPaths: { cache: "cache" } }, ".hostPaths.cache"],
  [{ storageClasses: [{ parameters: {} }] }, ".storageClasses[]"],
  [{ storageClasses: [{ name: "a", fsType: "xfs" }] }, ".storageClasses[].fsType"],
  [{ storageClasses: [{ name: "a", parameters: { shared: false } }] }, ".storageClasses[].parameters.shared"],
  [{ commonLabels: { "app.kubernetes.io/name": "storage" } }, ".commonLabels"],
  [{ node: { podLabels: { "app.kubernetes.io/component": "x" } } }, ".node.podLabels"],
  [{ storageClasses: [{ name: "a", labels: { "helm.sh/chart": "x" } }] }, ".storageClasses[].labels"],
  [{ commonLabels: { "example.com/team": 1 } }, ".commonLabels.example.com/team"],
  [{ node: { serviceAccount: { name: "Nobody" } } }, ".node.serviceAccount.name"],
  [{ crds: { annotations: { "helm.sh/resource-policy": "delete" } } }, ".crds.annotations"],
  [{ crds: { annotations: { "lvm.denolith.dev/schema-version": "9" } } }, ".crds.annotations"],
])("the schema refuses %j", (values: Values, where: string) => {
  assertEquals(violations(values, schema), [where]);
});

Deno.test("each value is read by a template, and templates read none that there is not", () => {
  const text = [...chartTemplates().values(), HELPERS].join("\n");
  const read = [...text.matchAll(/\.Values((?:\.\w+)+)/g)].map(([, path]) => path!);
  assertEquals(read.filter((path) => valueAt(chartValues(), path) === undefined), []);
  const unread = [...settings(schema)].filter((path) => {
    if (read.includes(path)) return false;
    const over = read.find((known) => path.startsWith(`${known}.`));
    return over === undefined || !new RegExp(`\\{\\{[^}]*[ "]\\.?${path.slice(over.length + 1)}\\b`).test(text);
  });
  assertEquals(unread, []);
});

Deno.test("each value changes the rendered objects, and appears in them", () => {
  const words = (values: unknown): string[] =>
    typeof values === "object"
      ? Object.values(values ?? {}).flatMap(words)
      : typeof values === "string"
      ? [values]
      : [];
  const rendered = [...renderChart(OTHER).values()].join("\n");
  assertEquals(words(OTHER_VALUES).filter((word) => !rendered.includes(word)), []);
  const text = ({ values, ...rest }: RenderOptions) =>
    JSON.stringify(objectsOf({ ...OTHER, ...rest, values: values! }));
  const all = text({ values: OTHER_VALUES });
  for (const path of settings(schema)) {
    const names = path.split(".").slice(1);
    // what else an object has shows only while there is one, as there is by default
    const isCreation = /(?:[cC]lass|Constraints|serviceAccount)\.create$|^\.crds\.enabled$/.test(path);
    const before = isCreation ? false : valueAt(chartValues(), path);
    const back = (values: unknown, [name, ...rest]: string[]): unknown => {
      if (Array.isArray(values)) return [back(values[0], [name!, ...rest]), ...values.slice(1)];
      const below = (values as Values)[name!];
      return { ...values as Values, [name!]: rest.length === 0 ? before : back(below, rest) };
    };
    assert(text({ values: back(OTHER_VALUES, names) as Values }) !== all, path);
  }
});

Deno.test("flags that templates pass are flags of the subcommands, and loops those of the controller", async () => {
  for (const { containers: [{ args }] } of pods(OTHER)) {
    const there = await subcommandFlags(args[0]);
    const passed = args.slice(1).map((arg: string) => /^--([a-z-]+)(?:=|$)/.exec(arg)?.[1] ?? arg);
    assertEquals(passed.filter((flag: string) => !there.includes(flag)), []);
  }
  const { items } = schema.properties!["controller"]!.properties!["disableControllers"]!;
  assertEquals(items!.enum, CONTROLLER_NAMES);
});

Deno.test("another kubelet directory is everywhere: in the flag, the mount and the volume", () => {
  const root = "/var/snap/microk8s/common/var/lib/kubelet";
  const [, node] = pods({ values: { kubeletDir: root } });
  assert(node.containers[0].args.includes(`--kubelet-dir=${root}`));
  const named = <T extends { name: string }>(list: T[]) => list.find(({ name }) => name === "kubelet")!;
  assertEquals(named(node.containers[0].volumeMounts as { name: string; mountPath: string }[]).mountPath, root);
  assertEquals(named(node.volumes as { name: string; hostPath: { path: string } }[]).hostPath.path, root);
  const text = [...renderChart({ values: { kubeletDir: root } }).values()].join();
  assertEquals(text.replaceAll(root, "").match(/.*\/var\/lib\/kubelet.*/), null);
});

/** Returns the container of the agents, and the directories and files of the node that it has, by their paths in it. */
function agentOf(values: Values) {
  const [, { containers: [agent], volumes }] = pods({ values });
  const hostPaths = new Map(
    (volumes as { name: string; hostPath?: { path: string } }[]).map((v) => [v.name, v.hostPath]),
  );
  const mounts = (agent.volumeMounts as { name: string; mountPath: string }[])
    .map(({ name, mountPath }) => [mountPath, hostPaths.get(name)?.path]);
  const flag = (name: string) =>
    (agent.args as string[]).find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3);
  return { flag, hostPathOf: (path: string) => Object.fromEntries(mounts)[path] };
}

const CONTAINER_SETTINGS = "activation/udev_sync=0 activation/udev_rules=0 activation/monitoring=0";

Deno.test("LVM of the agents has the settings, locks and devices file of the host, unless values say otherwise", () => {
  const { flag, hostPathOf } = agentOf({});
  assertEquals([flag("lvm-config"), flag("lvm-devices-file")], [CONTAINER_SETTINGS, "auto"]);
  assertEquals([hostPathOf("/etc/lvm"), hostPathOf("/run/lock/lvm")], ["/etc/lvm", "/run/lock/lvm"]);
  assertEquals([hostPathOf("/var/lib/lvm"), hostPathOf("/etc/machine-id")], [undefined, undefined]);
  assertEquals(agentOf({ lvm: { devicesFile: "" } }).flag("lvm-devices-file"), undefined);
});

Deno.test("where /etc is read-only, LVM's settings and archives can be elsewhere", () => {
  const { flag, hostPathOf } = agentOf({
    lvm: { configDir: "/var/lib/lvm-settings", archiveDir: "/var/lib/lvm-archive" },
  });
  assertEquals([hostPathOf("/etc/lvm"), hostPathOf("/var/lib/lvm")], ["/var/lib/lvm-settings", "/var/lib/lvm-archive"]);
  const archive =
    'backup/backup=1 backup/archive=1 backup/backup_dir="/var/lib/lvm/backup" backup/archive_dir="/var/lib/lvm/archive"';
  assertEquals(flag("lvm-config"), `${CONTAINER_SETTINGS} ${archive}`);
});

Deno.test("LVM's system id can be the name of the node, or come from the machine id", () => {
  const { flag } = agentOf({ lvm: { systemId: "$(NODE_NAME)", settings: ['a/b=["c: #", "d"]', "e/f='g'"] } });
  const id = 'global/system_id_source="lvmlocal" local/system_id="$(NODE_NAME)"';
  assertEquals(flag("lvm-config"), `${CONTAINER_SETTINGS} ${id} a/b=["c: #", "d"] e/f='g'`);
  assertEquals(
    agentOf({ hostPaths: { machineId: "/etc/machine-id" } }).hostPathOf("/etc/machine-id"),
    "/etc/machine-id",
  );
});

Deno.test("mounts with SELinux contexts need what mount(8) must see, with selinuxfs writable", () => {
  const seLinux = { seLinux: { mount: true } };
  const isRequested = (values: Values) => object({ values }, "CSIDriver", "lvm").spec.seLinuxMount;
  assertEquals([isRequested({}), isRequested(seLinux)], [false, true]);
  for (const [values, path] of [[{}, undefined], [seLinux, "/sys/fs/selinux"]] as const) {
    assertEquals(agentOf(values).hostPathOf("/sys/fs/selinux"), path);
  }
  assertEquals(agentOf(seLinux).hostPathOf("/etc/selinux"), "/etc/selinux");
  const [, { containers: [agent] }] = pods({ values: seLinux });
  const mounts = agent.volumeMounts as { name: string; readOnly?: boolean }[];
  assertEquals(mounts.find(({ name }) => name === "selinux")?.readOnly, undefined);
});

Deno.test("the agents' SecurityContextConstraints allow what their pods have, and only where there is that kind", () => {
  const isMade = (rendering: RenderOptions) =>
    objectsOf(rendering).some(({ kind }) => kind === "SecurityContextConstraints");
  const openShift = { apiVersions: [OPENSHIFT_API] };
  assertEquals([isMade({}), isMade(openShift)], [false, true]);
  assert(!isMade({ ...openShift, values: { securityContextConstraints: { create: false } } }));

  const { metadata, volumes, readOnlyRootFilesystem, allowPrivilegedContainer } = object(
    { ...openShift, values: OTHER_VALUES },
    "SecurityContextConstraints",
  ) as KubernetesObject & Record<string, unknown>;
  const [, agent] = pods({ ...openShift, values: OTHER_VALUES });
  const kinds = (agent.volumes as Record<string, unknown>[]).map((volume) =>
    Object.keys(volume).find((key) => key !== "name")
  );
  assertEquals(kinds.filter((kind) => !(volumes as string[]).includes(kind!)), []);
  const { privileged, readOnlyRootFilesystem: readOnly } = agent.containers[0].securityContext;
  assertEquals([privileged, readOnly], [allowPrivilegedContainer, readOnlyRootFilesystem]);
  const role = object(openShift, "Role", "denolith-node-security") as KubernetesObject & {
    rules: { resourceNames: string[] }[];
  };
  assertEquals(role.rules[0]!.resourceNames, [metadata.name]);
  const bindings = objectsOf(openShift).filter(({ kind, metadata: { name } }) =>
    kind === "RoleBinding" && /-security$/.test(name)
  );
  const users = bindings.map((one) => (one as unknown as { subjects: { name: string }[] }).subjects[0]!.name);
  assertEquals(users, pods({}).map(({ serviceAccountName }) => serviceAccountName).reverse());
});

Deno.test("another driver name and another namespace replace the default ones everywhere", () => {
  const values = { driverName: "storage.example", crds: { enabled: false } };
  const left = JSON.stringify(objectsOf({ values, namespace: "storage" })).replaceAll(SCHEMA_ANNOTATION, "")
    .match(/"[^"]*(?:denolith-system|lvm\.denolith\.dev)[^"]*"/g);
  const ofDefinitions = ["lvm.denolith.dev", ...DEFINITIONS].map((name) => `"${name}"`);
  assertEquals(new Set(left), new Set(ofDefinitions), "the group of the definitions alone, and their names");
  const { provisioner } = object({ values: { driverName: "storage.example" } }, "StorageClass");
  assertEquals(provisioner, "storage.example");
});

Deno.test("all objects and pods have the recommended labels and the common ones, also where the version has a +", () => {
  const rendering = { ...OTHER, version: "0.2.0+build.1" };
  const objects = objectsOf(rendering);
  const expected = {
    "app.kubernetes.io/name": "denolith",
    "app.kubernetes.io/instance": "denolith",
    "app.kubernetes.io/version": "0.2.0_build.1",
    "app.kubernetes.io/managed-by": "Helm",
    "helm.sh/chart": "denolith-0.2.0_build.1",
    ...OTHER_VALUES["commonLabels"] as object,
  };
  const templates = objects.flatMap(({ kind, spec }) =>
    spec?.template === undefined ? [] : [{ kind: `pods of the ${kind}`, metadata: spec.template.metadata }]
  );
  assertEquals(templates.length, 2);
  for (const { kind, metadata: { labels } } of [...objects, ...templates]) {
    assertEquals({ ...labels, ...expected }, labels, kind);
  }
});

Deno.test("accounts that others create have the rights, and the agents' one only over objects of its node", () => {
  const accountOf = (name: string) => ({ serviceAccount: { create: false, name } });
  const rendering = { ...OTHER, values: { node: accountOf("theirs"), controller: accountOf("theirs-too") } };
  const objects = objectsOf(rendering);
  assertEquals(objects.filter(({ kind }) => kind === "ServiceAccount"), []);
  const bindings = objects.filter(({ kind }) => /RoleBinding$/.test(kind));
  assert(bindings.length >= 6);
  for (const { metadata, subjects } of bindings) {
    const names = /controller/.test(metadata.name) ? ["theirs-too"] : ["theirs"];
    assertEquals(subjects.map(({ name }: { name: string }) => name), names, metadata.name);
  }
  assertEquals(pods(rendering).map(({ serviceAccountName }) => serviceAccountName), ["theirs-too", "theirs"]);
  const { spec } = object(rendering, "ValidatingAdmissionPolicy", "denolith-node");
  assertMatch(spec.matchConditions[0].expression, /'system:serviceaccount:storage:theirs'/);
});

Deno.test("the definitions come with the chart unless values say otherwise, and stay when the release is uninstalled", () => {
  const definitionsOf = (values: Values) =>
    objectsOf({ values }).filter(({ kind }) => kind === "CustomResourceDefinition");
  assertEquals(definitionsOf({ crds: { enabled: false } }), []);
  const made = definitionsOf({});
  assertEquals(made.map(({ metadata }) => metadata.name).sort(), [...DEFINITIONS]);
  for (const { metadata } of made) {
    assertEquals(metadata.annotations, {
      [SCHEMA_ANNOTATION]: `${SCHEMA_VERSION}`,
      "helm.sh/resource-policy": "keep",
      "argocd.argoproj.io/sync-options": "Prune=false",
    });
  }
});

Deno.test("a class of which only the name is given is one like the chart's own", () => {
  const [own] = objectsOf({}).filter(({ kind }) => kind === "StorageClass");
  const { parameters: _, metadata: { labels }, ...rest } = own!;
  const plain = object({ values: { storageClasses: [{ name: "plain" }] } }, "StorageClass", "plain");
  assertEquals(plain, { ...rest, metadata: { name: "plain", labels } } as unknown as KubernetesObject);
});

for (
  const [className, value, api] of [
    ["VolumeSnapshotClass", "snapshotClass", SNAPSHOT_API],
    ["VolumeGroupSnapshotClass", "groupSnapshotClass", GROUP_SNAPSHOT_API],
  ] as const
) {
  Deno.test(`a ${className} is rendered only if the cluster has that kind and the values request it`, () => {
    const isMade = (rendering: RenderOptions) => objectsOf(rendering).some(({ kind }) => kind === className);
    assert(!isMade({}));
    assert(isMade({ apiVersions: [api] }));
    assert(!isMade({ values: { [value]: { create: false } }, apiVersions: [api] }));
  });
}

Deno.test("whatever the values, all is in the namespace, and selectors are those of the pods, and the same", () => {
  const selectors = new Set<string>(); // that of a workload cannot be changed, so an upgrade would fail
  for (const [title, rendering] of Object.entries(RENDERINGS)) {
    const objects = objectsOf(rendering);
    const { namespace = NAMESPACE } = rendering;
    const namespaced = objects.filter(({ metadata }) => metadata.namespace !== undefined);
    assertEquals(new Set(namespaced.map(({ metadata }) => metadata.namespace)), new Set([namespace]), title);
    const workloads = objects.filter(({ kind }) => /^(?:Deployment|DaemonSet)$/.test(kind));
    selectors.add(JSON.stringify(workloads.map(({ kind, spec }) => [kind, spec.selector])));
    const { labels } = object(rendering, "Deployment").spec.template.metadata;
    for (const { spec, kind } of objects.filter(({ kind }) => /^Pod/.test(kind))) {
      assertEquals({ ...labels, ...spec.selector.matchLabels }, labels, kind);
    }
  }
  assertEquals(selectors.size, 1);
});
