/**
 * Checks the rig's cluster: `deno test -A tests/cluster/rig_check.ts`. It is not part of `deno task test`, because it
 * builds and boots.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { Cluster } from "../rig/cluster.ts";
import { ensureKubernetes } from "../rig/kubernetes.ts";
import { BUSYBOX_IMAGE } from "../rig/pod_image.ts";
import { RunFolder } from "../rig/run_folder.ts";
import { pollUntil } from "../rig/poll_until.ts";

/** A pod that prints a line, and asks the API at the address that each pod has for its identity. */
const POD = JSON.stringify({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "talker" },
  spec: {
    terminationGracePeriodSeconds: 0,
    containers: [{
      name: "main",
      image: BUSYBOX_IMAGE,
      imagePullPolicy: "Never",
      command: ["sh", "-c", "echo said by the pod; exec sleep 100000"],
      volumeMounts: [{ name: "kubectl", mountPath: "/work/kubectl", readOnly: true }],
    }],
    volumes: [{ name: "kubectl", hostPath: { path: "/work/kubectl" } }],
  },
});

/** Asks by the pod's own token and authority: busybox's TLS is too old for today's servers. */
const ASK_API = ["/work/kubectl", "get", "--raw", "/version"];

const POD_TIMEOUT_MS = 120_000;

Deno.test("the rig's cluster has all that tests of the driver need", async (t) => {
  await using folder = await RunFolder.createTemp("denolith-cluster-");
  const log = (line: string) => console.error(line);
  const groups = [{ name: "data", disksGiB: [4] }, { name: "pair", disksGiB: [1, 1] }];
  const files = { kubectl: { host: (await ensureKubernetes(log)).kubectl } };
  const cluster = await Cluster.start({ folder, nodes: [{ name: "node1", volumeGroups: groups, files }], log });
  const { controlPlane: plane } = cluster;
  const node = cluster.node("node1");
  const kubectl = (...args: string[]) => plane.kubectl(args);
  const runningPod = (otherThan = "") =>
    pollUntil(async () => {
      const pod = JSON.parse(await kubectl("get", "pod", "talker", "-o", "json"));
      const [status] = pod.status.containerStatuses ?? [];
      return status?.state.running && status.containerID !== otherThan ? status.containerID as string : undefined;
    }, { action: "wait for the pod", timeoutMs: POD_TIMEOUT_MS });

  await t.step("kubectl shows the node ready, and its groups are there", async () => {
    assertMatch(await kubectl("get", "nodes", "--no-headers"), /^node1 +Ready /);
    const { code, stdout } = await node.exec("vgs --noheadings -o vg_name,pv_count");
    assertEquals([code, stdout.trim().split(/\s+/)], [0, ["data", "1", "pair", "2"]]);
  });

  await t.step("commands in the node have input, both outputs and a status, several at once", async () => {
    const calls = [1, 2, 3, 4].map((n) =>
      node.exec(`cat; echo wrong >&2; sleep 1; exit ${n}`, { stdin: `input ${n}\0\n` })
    );
    const answers = [1, 2, 3, 4].map((code) => ({ code, stdout: `input ${code}\0\n`, stderr: "wrong\n" }));
    assertEquals(await Promise.all(calls), answers);
    assertEquals((await node.exec("sleep 100", { timeoutMs: 1000 })).code, 124);
  });

  let container = "";
  await t.step("a pod runs; its log can be read and commands be run in it", async () => {
    await plane.kubectl(["apply", "-f", "-"], { stdin: POD });
    container = await runningPod();
    assertEquals(await kubectl("logs", "talker"), "said by the pod\n");
    assertEquals(await kubectl("exec", "talker", "--", "sh", "-c", "echo $((6 * 7))"), "42\n");
  });

  await t.step("a pod reaches the API by its service account, and the audit log has it", async () => {
    assertStringIncludes(await kubectl("exec", "talker", "--", ...ASK_API), '"gitVersion": "v1.');
    const versionRequests = (await plane.auditEvents()).filter(({ requestURI }) => requestURI === "/version");
    assert(
      versionRequests.some(({ user }) => user.username === "system:serviceaccount:default:default"),
      "no such request",
    );
  });

  await t.step("rights are those of RBAC: a node may not read others' secrets", async () => {
    const node = ["--as", "system:node:node1", "--as-group", "system:nodes"];
    const denied = await kubectl("auth", "can-i", "list", "secrets", "-A", ...node).catch((error) => String(error));
    assertMatch(denied, /no/);
  });

  await t.step("the API can be gone for a while and comes back", async () => {
    await plane.stopApi();
    assertEquals(await plane.request("/readyz").then(() => "answered", () => "refused"), "refused");
    await plane.startApi();
    await node.ready();
  });

  await t.step("the API server can stop answering and answer again", async () => {
    await plane.pauseApi();
    const signal = AbortSignal.timeout(500);
    assertEquals(await plane.request("/readyz", { signal }).then(() => "answered", () => "no answer"), "no answer");
    await plane.resumeApi();
    assertEquals((await plane.request("/readyz")).status, 200);
  });

  await t.step("kubelet can be restarted while the pod runs on", async () => {
    const before = await node.exec("cat /run/kubelet.pid");
    await node.restartKubelet();
    assert((await node.exec("cat /run/kubelet.pid")).stdout !== before.stdout);
    await node.ready();
    assertEquals(await runningPod(), container);
  });

  await t.step("a node that lost its power comes back with its disks", async () => {
    assertEquals((await node.exec("lvcreate -qq -y -n kept -L 4M data && echo kept > /dev/data/kept")).code, 0);
    // Otherwise LVM activates LVs during the boot, as on most hosts.
    assertEquals((await node.exec("echo 'global { event_activation = 0 }' >> /etc/lvm/lvmlocal.conf; sync")).code, 0);
    await node.powerCycle();
    assertEquals((await node.exec("lvs --noheadings -o lv_active data/kept")).stdout.trim(), "");
    assertEquals((await node.exec("lvchange -ay data/kept && head -c 5 /dev/data/kept")).stdout, "kept\n");
    await runningPod(container);
    assertEquals(await kubectl("logs", "talker"), "said by the pod\n");
  });
});
