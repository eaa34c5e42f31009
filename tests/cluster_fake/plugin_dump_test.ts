/**
 * `kubectl denolith dump`: the archive of a support case.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { DRIVER_NAME_LABEL } from "../../k8s/api/agent_leases.ts";
import { events, leases, pods, storageClasses } from "../../k8s/api/objects.ts";
import { volumeSnapshotContents } from "../../k8s/api/snapshot_objects.ts";
import { run } from "../../deploy/process.ts";
import { DRIVER } from "../fake/cluster/node_cluster.ts";
import { pluginOver, type PluginRun } from "../fake/cluster/plugin_run.ts";
import { Stage } from "./troubleshooting/stage.ts";

/** Starts a cluster with a bound claim that a pod uses, a claim that waits, and a pod of the driver. */
async function setUp(stage: Stage): Promise<void> {
  await stage.start();
  await stage.bindClaim();
  await stage.startPod();
  await stage.takeSnapshot();
  stage.cluster.addClaim({ name: "waiting", size: "1Gi" });
  const { api } = stage.cluster;
  const env = [{ name: "TOKEN", value: "s3cret" }];
  // where the driver is, by its leases
  api.put(leases, { metadata: { name: "agent", namespace: "denolith", labels: { [DRIVER_NAME_LABEL]: DRIVER } } });
  for (const container of [{ name: "denolith", args: ["node"], env }]) {
    api.put(pods, {
      metadata: {
        ...{ name: "denolith-node-x", namespace: "denolith", labels: { "app.kubernetes.io/name": "denolith" } },
        ...{ annotations: { "kubectl.kubernetes.io/last-applied-configuration": "s3cret" } },
      },
      spec: { nodeName: "n1", containers: [container] },
    });
  }
  const [user] = api.objects(pods).filter(({ metadata }) => metadata.namespace !== "denolith");
  const containers = [{ name: "web", env }];
  api.collection(pods).patch(
    { spec: { containers }, metadata: { labels: { team: "s3cret" } } },
    user!.metadata as never,
  );
}

/** Unpacks an archive with tar(1). @returns the texts of its files, by their names */
async function unpack({ bytes }: PluginRun): Promise<Map<string, string>> {
  const folder = await Deno.makeTempDir();
  try {
    await Deno.writeFile(`${folder}/a.tar.gz`, bytes);
    await run("unpack", "tar", ["-C", folder, "-xzf", `${folder}/a.tar.gz`]);
    const files = new Map<string, string>();
    const names = await run("list", "tar", ["-tzf", `${folder}/a.tar.gz`]);
    for (const name of names.trimEnd().split("\n")) {
      files.set(name.replace("denolith-dump/", ""), await Deno.readTextFile(`${folder}/${name}`));
    }
    return files;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("kubectl denolith dump: has objects, events, logs and what other subcommands say, and no environment", async () => {
  await using stage = new Stage();
  await setUp(stage);
  const plugin = pluginOver(stage.cluster.api, { role: "administrator" });
  const result = await plugin(["dump", "--timeout", "5"], { now: new Date(Date.now() + 120_000) });
  assertEquals([result.status, result.output], [0, ""]);
  const files = await unpack(result);
  const json = (name: string) => JSON.parse(files.get(name)!);
  assertEquals([json("dump.json").driver, json("dump.json").kubernetes.gitVersion], [DRIVER, "v1.36.0"]);
  assertEquals(json("dump.json").unread, []);
  assertEquals(json("objects/persistentvolumeclaims.json").map(({ metadata: { name } }: never) => name).sort(), [
    "data",
    "waiting",
  ]);
  for (const kind of ["lvmnodes", "lvmvolumes", "lvmsnapshots", "nodes", "persistentvolumes", "storageclasses"]) {
    assert(json(`objects/${kind}.json`).length > 0, kind);
  }
  assert(json("objects/events.json").length > 0);
  const problems = json("status.json").problems as { reason: string }[];
  assert(problems.some(({ reason }) => reason === "ClaimPending"), JSON.stringify(problems));
  assertEquals(json("why.json")[0].object, "claim/default/waiting");
  assert(json("doctor.json").every(({ checks }: { checks: unknown[] }) => checks.length > 0));
  assertMatch(files.get("logs/denolith-node-x.denolith.log")!, /^log of \/api\/v1\/namespaces\/denolith\/pods\//);
  assertEquals([...files.keys()].filter((name) => name.includes("previous")), []);
  const args = json("objects/pods.json").flatMap(({ spec }: { spec: { containers: { args: string[] }[] } }) =>
    spec.containers.flatMap(({ args }) => args)
  );
  assertEquals(args, ["node"]);
  assertEquals([...files].filter(([, text]) => text.includes("s3cret")).map(([name]) => name), []);
});

Deno.test("kubectl denolith dump --mask: has names and addresses of nobody, the same in objects and logs", async () => {
  await using stage = new Stage();
  await setUp(stage);
  const plugin = pluginOver(stage.cluster.api, { role: "administrator" });
  const files = await unpack(await plugin(["dump", "--mask", "--skip-doctor"]));
  const [className] = stage.cluster.api.objects(storageClasses).map(({ metadata }) => metadata.name);
  for (const name of ["n1", "waiting", "fake", className, "10.0.0.7"]) {
    const with_ = [...files].filter(([, text]) => new RegExp(`(?<![A-Za-z0-9])${name}(?![A-Za-z0-9])`).test(text));
    assertEquals(with_.map(([name]) => name), [], name);
  }
  const [volume] = JSON.parse(files.get("objects/lvmvolumes.json")!);
  assertMatch(volume.spec.nodeName, /^node-\d$/);
  assertEquals(volume.spec.driverName, DRIVER);
  assertMatch(
    files.get("logs/denolith-node-x.denolith.log")!,
    new RegExp(`on ${volume.spec.nodeName}, address-\\d+$`, "m"),
  );
});

Deno.test("kubectl denolith dump --mask: has no names of what is gone or only referred to, and leaves the driver's words", async () => {
  await using stage = new Stage();
  await setUp(stage);
  const { api } = stage.cluster;
  api.put(pods, {
    metadata: { name: "forged", namespace: "theirs", labels: { "app.kubernetes.io/name": "denolith" } },
    spec: { containers: [{ name: "web", args: ["--password=hunter2"] }] },
  } as never);
  api.put(volumeSnapshotContents, {
    metadata: {
      name: "snapcontent-1",
      finalizers: ["backup.example.com/keep", "snapshot.storage.kubernetes.io/bound"],
    },
    spec: {
      ...{ driver: DRIVER, deletionPolicy: "Retain", source: {}, volumeSnapshotClassName: "gone-class" },
      volumeSnapshotRef: { name: "gone-snapshot", namespace: "gone-namespace" },
    },
  });
  api.put(events, {
    metadata: { name: "gone-claim.1", namespace: "gone-namespace" },
    involvedObject: { kind: "PersistentVolumeClaim", name: "gone-claim", namespace: "gone-namespace" },
    ...{
      reason: "x",
      message: "of gone-claim at 10.1.2.3:443, [fd00:10::7]:443, 2026-11-28T10:20:30Z",
      type: "Normal",
    },
    source: { component: DRIVER },
  } as never);
  stage.cluster.addClaim({ name: "10", size: "1Gi" });
  stage.cluster.addClass("lvm", { parameters: { volumeGroup: "data" } });
  const files = await unpack(await pluginOver(api, { role: "administrator" })(["dump", "--mask", "--skip-doctor"]));
  const text = [...files.values()].join("\n");
  for (
    const name of [
      "hunter2",
      "gone-class",
      "gone-snapshot",
      "gone-namespace",
      "gone-claim",
      "10.1.2.3",
      "fd00",
      "example.com",
    ]
  ) {
    assertEquals(text.includes(name), false, name);
  }
  assertMatch(text, /at address-\d+:443, \[address-\d+\]:443, 2026-11-28T/);
  assertStringIncludes(files.get("objects/lvmvolumes.json")!, `"driverName": "${DRIVER}"`);
  assertStringIncludes(files.get("objects/storageclasses.json")!, `"provisioner": "${DRIVER}"`);
});

Deno.test("kubectl denolith dump: says what may not be read, and is refused on a terminal", async () => {
  await using stage = new Stage();
  await setUp(stage);
  const files = await unpack(await pluginOver(stage.cluster.api, { role: "operator" })(["dump", "--skip-doctor"]));
  const { unread } = JSON.parse(files.get("dump.json")!);
  assertMatch(unread.join("\n"), /log of denolith-node-x denolith: .*Forbidden: .*"pods\/log"/);
  assertEquals([files.has("doctor.json"), [...files.keys()].some((name) => name.startsWith("logs/"))], [false, false]);
  const refused = await pluginOver(stage.cluster.api)(["dump"], { answer: true });
  assertEquals([refused.status, refused.bytes.length], [2, 0]);
  assertMatch(
    refused.errors,
    /standard output is a terminal, and the output no text: kubectl denolith dump > denolith\.tar\.gz/,
  );
});
