/**
 * The chart, as Helm takes it.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { parseAll } from "@std/yaml";
import { CHART, NAMESPACE, renderChart, type RenderOptions } from "../../../deploy/chart.ts";
import { type KubernetesObject, readObjects } from "../../../deploy/objects.ts";
import type { LvmNode } from "../../../k8s/api/lvm_objects.ts";
import {
  DEFINITIONS,
  DEFINITIONS_CONDITION,
  SCHEMA_ANNOTATION,
  SCHEMA_VERSION,
} from "../../../k8s/client/definitions.ts";
import { conditionOf } from "../../../plugin/problem.ts";
import { OTHER_VALUES, RENDERINGS } from "../../meta/chart_values.ts";
import { ensureHelm } from "../../rig/kubernetes.ts";
import { pollUntil } from "../../rig/poll_until.ts";
import { run } from "../../rig/process.ts";
import { TempFolder } from "../../rig/temp_folder.ts";
import { CRDS } from "../deploy.ts";
import { DriverPods } from "./helpers/driver_pods.ts";
import { QUICK } from "./helpers/objects.ts";
import { runPlugin } from "./helpers/plugin_command.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";

/** The flags for an image that is imported on each node. */
const IMPORTED = ["--set", "image.pullPolicy=Never"];

/** Kinds whose definitions come with other software. */
const FOREIGN_KINDS = ["PodMonitor", "PrometheusRule", "VolumeSnapshotClass"];

/** Helm on this machine, with its configuration and cache in a temporary folder. */
class Helm implements AsyncDisposable {
  readonly #folder: TempFolder;
  readonly #path: string;

  private constructor(folder: TempFolder, path: string) {
    this.#folder = folder;
    this.#path = path;
  }

  static async open(): Promise<Helm> {
    const path = await ensureHelm((line) => console.error(line));
    return new Helm(await TempFolder.create("/tmp", "denolith-helm-"), path);
  }

  /** Runs Helm. @returns its output @throws {Error} with its error output */
  async run(args: readonly string[], env: Record<string, string> = {}): Promise<string> {
    const homes = ["CACHE", "CONFIG", "DATA"].map((
      kind,
    ) => [`HELM_${kind}_HOME`, this.#folder.file(kind.toLowerCase())]);
    return await run(`run helm ${args[0]}`, this.#path, args, { env: { ...Object.fromEntries(homes), ...env } });
  }

  /** Renders the chart, by default for an image that is imported on each node. @returns its objects */
  async objects({ values = {}, namespace = NAMESPACE, apiVersions = [] }: RenderOptions): Promise<KubernetesObject[]> {
    const file = this.#folder.file("values.json");
    await Deno.writeTextFile(file, JSON.stringify({ image: { pullPolicy: "Never" }, ...values }));
    const versions = apiVersions.flatMap((version) => ["--api-versions", version]);
    const args = ["template", "denolith", CHART, "--namespace", namespace, "--values", file];
    return objectsOf([await this.run([...args, ...versions])]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#folder[Symbol.asyncDispose]();
  }
}

/** Returns the objects in texts, in an order that does not depend on the renderer. */
function objectsOf(texts: readonly string[]): KubernetesObject[] {
  const objects = texts.flatMap((text) => parseAll(text) as (KubernetesObject | null)[]).filter((one) => one !== null);
  return sorted(objects);
}

function sorted(objects: readonly KubernetesObject[]): KubernetesObject[] {
  const key = ({ kind, metadata: { name } }: KubernetesObject) => `${kind} ${name}`;
  return objects.toSorted((a, b) => key(a) < key(b) ? -1 : 1);
}

Deno.test("Helm makes of the chart the plain definitions and manifests, but for the namespace", async () => {
  await using helm = await Helm.open();
  const plain = [...readObjects("crds"), ...readObjects("manifests")].filter(({ kind }) => kind !== "Namespace");
  const made = await helm.objects({});
  // but for who manages them, and for the image, which Helm wants a registry for, or an import
  const known = (objects: readonly KubernetesObject[]) =>
    JSON.parse(
      JSON.stringify(objects),
      (key, value) => ["app.kubernetes.io/managed-by", "imagePullPolicy"].includes(key) ? undefined : value,
    );
  assertEquals(known(made), known(sorted(plain)));
});

Deno.test("Helm makes of the chart what task manifests does, whatever the values", async () => {
  await using helm = await Helm.open();
  for (const [title, rendering] of Object.entries(RENDERINGS)) {
    const values = { image: { pullPolicy: "Never" }, ...rendering.values };
    const made = objectsOf([...renderChart({ ...rendering, values }).values()]);
    assertEquals(await helm.objects(rendering), made, title);
  }
});

Deno.test("Helm accepts the chart, and refuses unknown values, and an image without a registry that is to be pulled", async () => {
  await using helm = await Helm.open();
  await helm.run(["lint", "--strict", CHART]);
  for (
    const [wrong, expectedMessage] of [
      ["kubeletdir=/x", "kubeletdir"],
      ["log.level=trace", "level"],
      ["image.repository=denolith", "set image.repository to where you pushed it"],
    ] as const
  ) {
    await assertRejects(() => helm.run(["template", "denolith", CHART, "--set", wrong]), Error, expectedMessage);
  }
});

Deno.test("the API server takes what the chart makes, and Helm could take over what was applied", async () => {
  await using ns = await TestNamespace.open("chart");
  await using helm = await Helm.open();
  const objects = await helm.objects({ values: OTHER_VALUES, namespace: ns.namespace });
  const known = objects.filter(({ kind }) => !FOREIGN_KINDS.includes(kind));
  assert(known.length < objects.length, "the test sees all kinds");
  await ns.cluster.controlPlane.kubectl(["apply", "--dry-run=server", "--filename", "-"], {
    stdin: known.map((object) => JSON.stringify(object)).join("\n---\n"),
  });
  const { kubeconfig } = ns.cluster.controlPlane;
  const install = ["install", "denolith", CHART, "--namespace", NAMESPACE, "--take-ownership", "--dry-run=server"]
    .concat(IMPORTED);
  const output = await helm.run(install, { KUBECONFIG: kubeconfig });
  assert(output.includes(`rollout status daemonset/denolith-node`), output.slice(-1000));
});

/** Lets definitions become older until it is disposed of, which the policy about them otherwise denies. */
async function allowOlderDefinitions({ controlPlane }: TestNamespace["cluster"]): Promise<AsyncDisposable> {
  const binding = "validatingadmissionpolicybinding.admissionregistration.k8s.io/denolith-definitions";
  const object = await controlPlane.kubectl(["get", binding, "--output", "json"]);
  const isAllowed = () =>
    controlPlane.kubectl([
      "annotate",
      "crd",
      DEFINITIONS[0]!,
      `${SCHEMA_ANNOTATION}=0`,
      "--overwrite",
      "--dry-run=server",
    ])
      .then(() => true, () => false);
  await controlPlane.kubectl(["delete", binding]);
  await pollUntil(isAllowed, { action: "allow older definitions", timeoutMs: 60_000 });
  return {
    [Symbol.asyncDispose]: async () => {
      const { apiVersion, kind, metadata: { name, labels }, spec } = JSON.parse(object);
      const stdin = JSON.stringify({ apiVersion, kind, metadata: { name, labels }, spec });
      await controlPlane.kubectl(["apply", "--filename", "-"], { stdin });
      const isDenied = async () => !(await isAllowed());
      await pollUntil(isDenied, { action: "deny older definitions", timeoutMs: 60_000 });
    },
  };
}

/** Releases of the chart's definitions alone: the driver of the cluster stays as it is. */
class DefinitionReleases implements AsyncDisposable {
  readonly #ns: TestNamespace;
  readonly #helm: Helm;
  readonly #folder: TempFolder;

  private constructor(ns: TestNamespace, helm: Helm, folder: TempFolder) {
    [this.#ns, this.#helm, this.#folder] = [ns, helm, folder];
  }

  static async open(ns: TestNamespace, helm: Helm): Promise<DefinitionReleases> {
    return new DefinitionReleases(ns, helm, await TempFolder.create("/tmp", "denolith-chart-"));
  }

  /** Makes a chart. @param version that of the schemas @returns its path */
  async chart(version: number): Promise<string> {
    const path = this.#folder.file(`${version}`);
    await Deno.mkdir(join(path, "templates"), { recursive: true });
    for (const file of ["Chart.yaml", "values.yaml", "templates/_helpers.tpl", "templates/crds"]) {
      await run(`copy ${file}`, "cp", ["-r", join(CHART, file), join(path, file)]);
    }
    const helpers = join(path, "templates/_helpers.tpl");
    const text = (await Deno.readTextFile(helpers)).replace(
      `${SCHEMA_ANNOTATION}: "${SCHEMA_VERSION}"`,
      `${SCHEMA_ANNOTATION}: "${version}"`,
    );
    await Deno.writeTextFile(helpers, text);
    return path;
  }

  /** Makes a chart with the definitions where Helm looks for them at an installation alone. @returns its path */
  async chartThatInstallsThem(): Promise<string> {
    const path = this.#folder.file("installs");
    await Deno.mkdir(path);
    await run("copy Chart.yaml", "cp", [join(CHART, "Chart.yaml"), path]);
    await run("copy CRDs", "cp", ["-r", CRDS, join(path, "crds")]);
    return path;
  }

  /** Runs Helm in the namespace of the test. */
  async helm(...args: string[]): Promise<void> {
    const { namespace, cluster: { controlPlane: { kubeconfig } } } = this.#ns;
    await this.#helm.run([...args, "--namespace", namespace], { KUBECONFIG: kubeconfig });
  }

  /** Requires that all definitions have a version. */
  async requireVersion(version: number): Promise<void> {
    const { items } = JSON.parse(await this.#ns.kubectl("get", "crd", ...DEFINITIONS, "--output", "json"));
    const versions = items.map(({ metadata }: KubernetesObject) => metadata.annotations?.[SCHEMA_ANNOTATION]);
    assertEquals(versions, DEFINITIONS.map(() => `${version}`));
  }

  /** Makes the definitions what they were before, those of kubectl. */
  async [Symbol.asyncDispose](): Promise<void> {
    const { cluster } = this.#ns;
    const { controlPlane } = cluster;
    {
      await using _ = await allowOlderDefinitions(cluster);
      await controlPlane.kubectl(["apply", "--filename", CRDS]);
    }
    const owner = ["release-name", "release-namespace"].map((key) => `meta.helm.sh/${key}-`);
    await controlPlane.kubectl(["annotate", "crd", ...DEFINITIONS, ...owner]);
    await controlPlane.kubectl(["label", "crd", ...DEFINITIONS, "app.kubernetes.io/managed-by-"]);
    await this.requireVersion(SCHEMA_VERSION);
    await this.#folder[Symbol.asyncDispose]();
  }
}

Deno.test("Helm takes over definitions that were applied, upgrades them, and keeps them when the release is uninstalled", async () => {
  await using ns = await TestNamespace.open("helm-crds");
  await using helm = await Helm.open();
  await using releases = await DefinitionReleases.open(ns, helm);
  const own = await releases.chart(SCHEMA_VERSION);
  await releases.helm("install", "definitions", own, "--take-ownership", "--server-side=false");
  await releases.helm("upgrade", "definitions", await releases.chart(98));
  await releases.requireVersion(98);
  await releases.helm("uninstall", "definitions");
  await releases.requireVersion(98);
});

Deno.test("Helm takes over definitions of a chart that only installed them, and of another release, and keeps what leaves a release", async () => {
  await using ns = await TestNamespace.open("helm-crds-dir");
  await using helm = await Helm.open();
  await using releases = await DefinitionReleases.open(ns, helm);
  const [own, later] = [await releases.chart(SCHEMA_VERSION), await releases.chart(98)];
  const isRefused = (text: string, ...args: string[]) => assertRejects(() => releases.helm(...args), Error, text);
  await releases.helm("install", "denolith", await releases.chartThatInstallsThem());
  const upgrade = ["upgrade", "denolith"];
  await isRefused("invalid ownership metadata", ...upgrade, own);
  await releases.helm(...upgrade, own, "--take-ownership");
  // somebody had applied them with kubectl
  await isRefused('conflict with "kubectl-client-side-apply"', ...upgrade, later);
  await releases.requireVersion(SCHEMA_VERSION);
  await releases.helm(...upgrade, later, "--force-conflicts");
  await releases.requireVersion(98);
  await releases.helm(...upgrade, await releases.chart(99));
  await releases.requireVersion(99);
  await releases.helm(...upgrade, later, "--set", "crds.enabled=false");
  await releases.requireVersion(99);

  const other = ["install", "other", await releases.chart(99)];
  await isRefused("invalid ownership metadata", ...other);
  await releases.helm(...other, "--take-ownership", "--force-conflicts");
  await releases.helm("uninstall", "denolith");
  await releases.helm("uninstall", "other");
  await releases.requireVersion(99);
});

Deno.test("no rollback and no kubectl makes definitions older, and an upgrade to an earlier chart without them works", async () => {
  await using ns = await TestNamespace.open("helm-rollback");
  await using helm = await Helm.open();
  await using releases = await DefinitionReleases.open(ns, helm);
  const own = await releases.chart(SCHEMA_VERSION);
  await releases.helm("install", "definitions", own, "--take-ownership", "--server-side=false");
  await releases.helm("upgrade", "definitions", await releases.chart(98));
  for (
    const makeOlder of [
      () => releases.helm("rollback", "definitions", "1"),
      () => releases.helm("upgrade", "definitions", own),
      () => ns.kubectl("apply", "--filename", CRDS),
    ]
  ) {
    await assertRejects(makeOlder, Error, "its schema would become older");
    await releases.requireVersion(98);
  }
  await releases.helm("upgrade", "definitions", own, "--set", "crds.enabled=false");
  await releases.requireVersion(98);
  await releases.helm("upgrade", "definitions", await releases.chart(99), "--set", "crds.enabled=true");
  await releases.requireVersion(99);
});

Deno.test("with definitions of an older version, the driver mounts volumes, creates none, and says why until they are upgraded", async () => {
  await using ns = await TestNamespace.open("definitions");
  await using driver = await DriverPods.open(ns.cluster);
  const cls = await ns.createStorageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "before", class: cls });
  await ns.waitForBound("before");
  const name = "lvmvolumes.lvm.denolith.dev";
  // another description is another schema, after which the API server ends watches
  const setVersion = (version: number) =>
    ns.kubectl(
      "patch",
      "crd",
      name,
      "--type=json",
      "--patch",
      JSON.stringify([
        { op: "replace", path: `/metadata/annotations/${SCHEMA_ANNOTATION.replace("/", "~1")}`, value: `${version}` },
        { op: "replace", path: "/spec/versions/0/schema/openAPIV3Schema/description", value: `Version ${version}.` },
      ]),
    );
  const waitForCondition = (expected: "True" | "False") => {
    const isAsExpected = (node: LvmNode | undefined) =>
      node !== undefined && conditionOf(node, DEFINITIONS_CONDITION)?.status === expected;
    return ns.waitFor("LVMNode", ns.node.name, isAsExpected, `has ${DEFINITIONS_CONDITION}=${expected}`);
  };
  await using _ = await allowOlderDefinitions(ns.cluster);
  await setVersion(SCHEMA_VERSION - 1);
  try {
    for (const role of ["controller", "node"] as const) await driver.killProcess(role);
    await waitForCondition("True");
    await ns.createClaim({ name: "new", class: cls });
    await ns.waitForEvent("PersistentVolumeClaim", "new", "ProvisioningFailed", /lvmvolumes.*\[DefinitionsOutdated\]$/);
    for (const command of [["status"], ["why", "new"]]) {
      const { problems } = await runPlugin(ns, ...command) as { problems: { reason: string; message: string }[] };
      const told = problems.find(({ reason }) => reason === "DefinitionsOutdated");
      assert(told?.message.includes(name), `${command}: ${JSON.stringify(problems)}`);
    }
    assertMatch(await driver.logs("controller"), /definitions are too old/);
    await ns.createPod({ name: "pod", claims: [{ name: "before", path: "/data" }] });
    await ns.waitForRunning("pod");
    assertEquals([driver.readyContainers("controller"), driver.readyContainers("node")], [[], []]);
  } finally {
    await setVersion(SCHEMA_VERSION);
  }
  await ns.waitForBound("new");
  await waitForCondition("False");
  for (const role of ["controller", "node"] as const) await driver.waitForReady(role);
  await setVersion(SCHEMA_VERSION - 1); // while the processes run
  try {
    await waitForCondition("True");
  } finally {
    await ns.kubectl("apply", "--filename", CRDS);
  }
  await waitForCondition("False");
  for (const role of ["controller", "node"] as const) await driver.waitForReady(role);
});
