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

Deno.test("Helm takes over definitions that were applied, upgrades them, and keeps them when the release is uninstalled", async () => {
  await using ns = await TestNamespace.open("helm-crds");
  await using helm = await Helm.open();
  await using chart = await TempFolder.create("/tmp", "denolith-chart-");
  const { controlPlane } = ns.cluster;
  // the chart's definitions alone: the driver of this cluster stays as it is
  for (const file of ["Chart.yaml", "values.yaml", "templates/_helpers.tpl", "templates/crds"]) {
    await Deno.mkdir(chart.file("templates"), { recursive: true });
    await run(`copy ${file}`, "cp", ["-r", join(CHART, file), chart.file(file)]);
  }
  const asUser = (...args: string[]) =>
    helm.run([...args, "--namespace", ns.namespace], { KUBECONFIG: controlPlane.kubeconfig });
  const versions = async () => {
    const { items } = JSON.parse(await ns.kubectl("get", "crd", ...DEFINITIONS, "--output", "json"));
    return items.map(({ metadata }: KubernetesObject) => metadata.annotations?.[SCHEMA_ANNOTATION]);
  };
  try {
    await asUser("install", "definitions", chart.path, "--take-ownership", "--server-side=false");
    const helpers = chart.file("templates/_helpers.tpl");
    const text = await Deno.readTextFile(helpers);
    await Deno.writeTextFile(
      helpers,
      text.replace(`${SCHEMA_ANNOTATION}: "${SCHEMA_VERSION}"`, `${SCHEMA_ANNOTATION}: "99"`),
    );
    await asUser("upgrade", "definitions", chart.path);
    assertEquals(await versions(), DEFINITIONS.map(() => "99"));
    await asUser("uninstall", "definitions");
    assertEquals(await versions(), DEFINITIONS.map(() => "99"));
  } finally {
    await controlPlane.kubectl(["apply", "--filename", CRDS]);
  }
  assertEquals(await versions(), DEFINITIONS.map(() => `${SCHEMA_VERSION}`));
});

Deno.test("with definitions of an older version, the driver mounts volumes, creates none, and says why until they are upgraded", async () => {
  await using ns = await TestNamespace.open("definitions");
  await using driver = await DriverPods.open(ns.cluster);
  const cls = await ns.createStorageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "before", class: cls });
  await ns.waitForBound("before");
  const name = "lvmvolumes.lvm.denolith.dev";
  const setVersion = (version: number) =>
    ns.kubectl("annotate", "crd", name, `${SCHEMA_ANNOTATION}=${version}`, "--overwrite");
  const waitForCondition = (expected: "True" | "False") => {
    const isAsExpected = (node: LvmNode | undefined) =>
      node !== undefined && conditionOf(node, DEFINITIONS_CONDITION)?.status === expected;
    return ns.waitFor("LVMNode", ns.node.name, isAsExpected, `has ${DEFINITIONS_CONDITION}=${expected}`);
  };
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
});
