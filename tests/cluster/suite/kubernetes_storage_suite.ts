/**
 * Kubernetes' own storage tests, with the driver as an external one. The suite runs in a cluster of its own.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { ensureKubernetesTests } from "../../rig/kubernetes.ts";
import { NodeSsh } from "../../rig/node_ssh.ts";
import { TempFolder } from "../../rig/temp_folder.ts";
import { listDriverLvs } from "./helpers/driver_lvs.ts";
import { DRIVER } from "./helpers/objects.ts";
import type { TestNamespace } from "./helpers/test_namespace.ts";
import { SnapshotTestNamespace } from "./helpers/snapshot_test_namespace.ts";

const EXAMPLES = new URL("../../../deploy/examples/", import.meta.url);

/** Whether all tests run that apply, which takes more than an hour. */
const FULL = Deno.env.get("FULL") === "1";

/** What is run at a time. */
interface Run {
  /** The words of the test's title. */
  readonly title: string;
  /** The tests that run, by words in their names. Those of each group run one after the other, the groups side by side. */
  readonly groups: readonly (readonly string[])[];
  /** The tests that do not run, as a regular expression. */
  readonly skip: string;
  readonly volumeBindingMode: "WaitForFirstConsumer" | "Immediate";
}

const RUNS: readonly Run[] = [
  {
    title: "tests of snapshots and modified volumes",
    groups: [
      ["volumegroupsnapshottable", "volumegroupsnapshotclass", "volumegroupsnapshottable-stress"],
      ["volume-modify"],
      ["snapshottable", "snapshottable-stress"],
    ],
    skip: "Feature:Windows",
    volumeBindingMode: "WaitForFirstConsumer",
  },
  {
    title: "tests that modify claims without pods",
    groups: [["volume-modify-stress"]],
    skip: "Feature:Windows",
    volumeBindingMode: "Immediate",
  },
  {
    title: "tests that stop kubelet",
    groups: [["disruptive", "subPath should unmount"]],
    skip: "Feature:SELinux|Feature:Windows|Pre-provisioned|Inline",
    volumeBindingMode: "WaitForFirstConsumer",
  },
];

/** What runs with `--full` alone. */
const FURTHER_RUN: Run = {
  title: "other storage tests",
  groups: [
    ["provisioning", "capacity"],
    ["volume-expand", "fsgroupchangepolicy", "volumeMode"],
    ["volumes", "multiVolume", "ephemeral"],
  ],
  skip: "Disruptive|Feature:Windows",
  volumeBindingMode: "WaitForFirstConsumer",
};

/** What the driver can do, in the suite's names. */
const CAPABILITIES = [
  ...["persistence", "block", "fsGroup", "exec", "multipods", "singleNodeVolume", "topology", "capacity"],
  ...["snapshotDataSource", "pvcDataSource", "groupSnapshot", "readWriteOncePod", "multiplePVsSameID"],
  ...["controllerExpansion", "nodeExpansion", "onlineExpansion", "offlineExpansion"],
];

/** The driver, as the suite's option `--storage.testdriver` has it. */
const DRIVER_FILE = {
  StorageClass: { FromExistingClassName: "e2e" },
  SnapshotClass: { FromName: true },
  GroupSnapshotClass: { FromName: true },
  VolumeAttributesClass: { FromExistingClassName: "denolith-silver" },
  DriverInfo: {
    Name: DRIVER,
    SupportedFsType: { "": {}, ext4: {}, xfs: {} },
    SupportedSizeRange: { Min: "1Mi" },
    TopologyKeys: ["topology.lvm.denolith.dev/node"],
    Capabilities: Object.fromEntries(CAPABILITIES.map((name) => [name, true])),
    StressTestOptions: { NumPods: 4, NumRestarts: 2 },
    VolumeSnapshotStressTestOptions: { NumPods: 3, NumSnapshots: 3 },
    VolumeModifyStressTestOptions: { NumPods: 3 },
    VolumeGroupSnapshotStressTestOptions: { NumPods: 3, NumSnapshots: 3 },
  },
};

/** A test, in the suite's report. */
interface SpecReport {
  readonly State: string;
  readonly LeafNodeType: string;
  readonly LeafNodeText: string;
  readonly ContainerHierarchyTexts: readonly string[] | null;
  readonly Failure?: { readonly Message: string };
}

for (const { title, groups, skip, volumeBindingMode } of FULL ? [...RUNS, FURTHER_RUN] : RUNS) {
  Deno.test(`Kubernetes' own ${title} pass, and leave nothing`, async () => {
    await using snapshots = await SnapshotTestNamespace.open("kubernetes");
    const { ns } = snapshots;
    await using folder = await TempFolder.create("/tmp", "denolith-");
    using ssh = await NodeSsh.start(ns.node);
    await ns.apply({
      apiVersion: "storage.k8s.io/v1",
      kind: "StorageClass",
      metadata: { name: "e2e" },
      provisioner: DRIVER,
      parameters: { volumeGroup: "data", erase: "none" },
      allowVolumeExpansion: true,
      volumeBindingMode,
    });
    await ns.kubectl("apply", "--filename", new URL("limits/classes.yaml", EXAMPLES).pathname);
    const results = await Promise.all(
      groups.map((subjects, index) => runSpecs(subjects, { skip, ns, ssh, folder, file: `${index}.json` })),
    );
    const specs = results.flat();
    const passed = specs.filter(({ State }) => State === "passed");
    for (const spec of passed) console.error(`passed: ${nameOf(spec)}`);
    const failed = specs.filter(({ State }) => !["passed", "skipped"].includes(State));
    assertEquals(failed.map((spec) => `${nameOf(spec)}: ${spec.Failure?.Message}`), []);
    const isPassed = (subject: string) => passed.some((spec) => nameOf(spec).includes(`] ${subject} `));
    assertEquals(groups.flat().filter((subject) => !isPassed(subject)), []);
    assertEquals(await listDriverLvs(ns.node), []);
  });
}

/** What runs the program with the tests of some subjects. */
interface SpecsOptions {
  /** The tests that do not run, as a regular expression. */
  readonly skip: string;
  readonly ns: TestNamespace;
  readonly ssh: NodeSsh;
  readonly folder: TempFolder;
  /** The name of the report, which no other run has. */
  readonly file: string;
}

/** Runs the tests of some subjects, one after the other. @returns their results */
async function runSpecs(
  subjects: readonly string[],
  { skip, ns, ssh, folder, file }: SpecsOptions,
): Promise<SpecReport[]> {
  await Deno.writeTextFile(folder.file("driver.json"), JSON.stringify(DRIVER_FILE));
  await Deno.writeTextFile(folder.file("id_ed25519"), ssh.key, { mode: 0o600 });
  const { kubeconfig, programs } = ns.cluster.controlPlane;
  const child = new Deno.Command(await ensureKubernetesTests((line) => console.error(line)), {
    args: [
      `--kubeconfig=${kubeconfig}`,
      "--provider=skeleton",
      "--disable-log-dump",
      "--minStartupPods=0",
      `--storage.testdriver=${folder.file("driver.json")}`,
      "--ginkgo.no-color",
      "--ginkgo.silence-skips",
      "--ginkgo.succinct",
      "--ginkgo.timeout=3h",
      `--ginkgo.focus=External.Storage.*\\] (${subjects.join("|")}) `,
      `--ginkgo.skip=${skip}`,
      `--ginkgo.json-report=${folder.file(file)}`,
    ],
    cwd: folder.path,
    env: {
      PATH: `${programs.kubectl.replace(/\/[^/]*$/, "")}:${Deno.env.get("PATH")}`,
      KUBE_SSH_BASTION: ssh.address,
      KUBE_SSH_KEY: folder.file("id_ed25519"),
      KUBE_SSH_USER: "root",
    },
  }).spawn();
  await child.status;
  const [report] = JSON.parse(await Deno.readTextFile(folder.file(file))) as { SpecReports: SpecReport[] }[];
  return report!.SpecReports.filter(({ LeafNodeType }) => LeafNodeType === "It");
}

/** Returns the name of a test, with those of what it belongs to. */
function nameOf({ ContainerHierarchyTexts, LeafNodeText }: SpecReport): string {
  return [...ContainerHierarchyTexts ?? [], LeafNodeText].join(" ");
}
