/**
 * The commands of a release's README, typed as they are, in a cluster that has nothing of the driver: from `helm repo add` to a
 * pod that runs, and to the plugin.
 *
 * @module
 */

import { assertEquals, assertStringIncludes } from "@std/assert";
import manifest from "../../../deno.json" with { type: "json" };
import { Cluster } from "../../rig/cluster.ts";
import { ensureHelm } from "../../rig/kubernetes.ts";
import { run, toolEnvironment } from "../../rig/process.ts";
import { RunFolder } from "../../rig/run_folder.ts";
import { TempFolder } from "../../rig/temp_folder.ts";
import { commandBlocks, krewEnvironment, Publication, writeKey } from "../publication.ts";
import { ensureKrew } from "../tools.ts";

/** This machine's loopback address, as a guest reaches it. */
const HOST = "10.0.2.2";

Deno.test("the commands of a release's README lead from an empty cluster to a running pod, and to the plugin", async () => {
  const programs = { helm: await ensureHelm(console.error), "kubectl-krew": await ensureKrew(console.error) };
  await using temp = await TempFolder.create("/var/tmp", "denolith-release-");
  await using publication = await Publication.make(temp, await writeKey(temp.file("key.pem")));
  await publication.publish();
  await using folder = await RunFolder.createTemp("denolith-release-");
  const { controlPlane, nodes: [node] } = await Cluster.start({
    ...{ folder, log: console.error },
    nodes: [{ name: "worker-1", volumeGroups: [{ name: "data", disksGiB: [4] }] }],
  });

  // the node finds the registry of this machine under the same name
  const { registry, digests } = publication;
  const hosts = `server = "http://${registry}"\n[host."http://${registry.replace("127.0.0.1", HOST)}"]\n`;
  const configured = `/etc/containerd/certs.d/${registry}`;
  const { code } = await node!.exec(`mkdir -p ${configured} && cat > ${configured}/hosts.toml`, { stdin: hosts });
  assertEquals(code, 0);

  const bin = temp.file("bin");
  await Deno.mkdir(bin);
  for (const [name, path] of Object.entries({ ...programs, kubectl: controlPlane.programs.kubectl })) {
    await Deno.symlink(path, `${bin}/${name}`);
  }
  const homes = ["CACHE", "CONFIG", "DATA"].map((name) => [`HELM_${name}_HOME`, temp.file(`helm-${name}`)]);
  const krew = await krewEnvironment(temp, "krew");
  const env = {
    ...{ ...Object.fromEntries(homes), ...krew, KUBECONFIG: controlPlane.kubeconfig },
    PATH: `${bin}:${krew.KREW_ROOT}/bin:${toolEnvironment()["PATH"]}`,
  };
  const blocks = commandBlocks(await Deno.readTextFile(publication.path("README.md")));
  const type = (block: string) => run("type", "sh", ["-euxc", block], { env, onLine: console.error });
  const starts = ["kubectl create namespace denolith-system", "kubectl krew install"];
  const [install, plugin] = starts.map((start) => blocks.find((block) => block.startsWith(start)));
  await type(install!);
  const images = await type(
    "kubectl get pods -n denolith-system -o jsonpath='{.items[*].status.containerStatuses[*].imageID}'",
  );
  assertEquals(images.split(" "), Array(2).fill(`${registry}/denolith@${digests.image}`));
  const printed = await type(plugin!);
  assertStringIncludes(printed, "worker-1");
  assertStringIncludes(await type("kubectl denolith version"), `kubectl-denolith ${manifest.version} `);
});
