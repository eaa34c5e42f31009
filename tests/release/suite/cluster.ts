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

Deno.test("the commands of a release's README lead from an empty cluster to a running pod, and to the plugin", async (t) => {
  const programs = { helm: await ensureHelm(console.error), "kubectl-krew": await ensureKrew(console.error) };
  await using temp = await TempFolder.create("/var/tmp", "denolith-release-");
  await using publication = await Publication.make(temp, await writeKey(temp.file("key.pem")));
  await publication.publish();
  await using folder = await RunFolder.createTemp("denolith-release-");
  const { controlPlane, nodes: [node] } = await Cluster.start({
    ...{ folder, log: console.error },
    nodes: [{ name: "worker-1", volumeGroups: [{ name: "data", disksGiB: [4] }] }],
  });

  const { registry, digests } = publication;
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
  const type = (block: string, cwd = temp.path) =>
    run("type", "sh", ["-euxc", block], { env, cwd, onLine: console.error });
  const digestsThatRun = async () => {
    const ids = "{.items[*].status.containerStatuses[*].imageID}";
    return (await type(`kubectl get pods -n denolith-system -o jsonpath='${ids}'`)).split(" ");
  };
  const onNode = async (command: string, stdin: string | Uint8Array<ArrayBuffer> = "") => {
    const { code, stderr } = await node!.exec(command, { stdin, timeoutMs: 300_000 });
    assertEquals(code, 0, stderr);
  };

  await t.step("with a network", async () => {
    // the node finds the registry of this machine under the same name
    const hosts = `server = "http://${registry}"\n[host."http://${registry.replace("127.0.0.1", HOST)}"]\n`;
    const folder = `/etc/containerd/certs.d/${registry}`;
    await onNode(`mkdir -p ${folder} && cat > ${folder}/hosts.toml`, hosts);
    const blocks = commandBlocks(await Deno.readTextFile(publication.path("README.md")));
    const starts = ["kubectl create namespace denolith-system", "kubectl krew install"];
    const [install, plugin] = starts.map((start) => blocks.find((block) => block.startsWith(start)));
    await type(install!);
    assertEquals(await digestsThatRun(), Array(2).fill(`${registry}/denolith@${digests.image}`));
    assertStringIncludes(await type(plugin!), "worker-1");
    assertStringIncludes(await type("kubectl denolith version"), `kubectl-denolith ${manifest.version} `);
  });

  await t.step("without a network, from the archive for that", async () => {
    await type("kubectl delete pod writer && helm uninstall denolith --namespace denolith-system --wait");
    await onNode(`ctr -n k8s.io images ls -q | grep -F ${registry}/ | xargs ctr -n k8s.io images rm --sync`);
    await publication.parts.disposeAsync();
    await type(`tar -xf release/denolith-${manifest.version}-offline.tar`);
    const folder = temp.file(`denolith-${manifest.version}`);
    const blocks = commandBlocks(await Deno.readTextFile(`${folder}/OFFLINE.md`));
    const [check, , , archive, install] = blocks;
    await type(check!, folder);
    const [pack, load] = archive!.trim().split("\n");
    await type(pack!, folder);
    await onNode(`cat > denolith-image.tar && ${load}`, await Deno.readFile(`${folder}/denolith-image.tar`));
    await type(install!, folder);
    await type("tar -xzf denolith-*-docs.tar.gz && kubectl apply -f denolith-*/deploy/examples/pod", folder);
    await type("kubectl wait --for=condition=Ready pod/writer --timeout=10m");
    assertEquals((await digestsThatRun()).length, 2);
  });
});
