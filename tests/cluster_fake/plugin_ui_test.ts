/**
 * `kubectl denolith ui` over a cluster of agents, each on a fake machine.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import type { ClusterSummary, Sent } from "../../plugin/ui/cluster_page.ts";
import type { ClaimMessage } from "../../plugin/ui/claim_page.ts";
import type { VolumeMessage } from "../../plugin/ui/volume_page.ts";
import {
  type Event,
  events,
  persistentVolumeClaims,
  persistentVolumes,
  storageClasses,
} from "../../k8s/api/objects.ts";
import { DRIVER, FakeCluster } from "../fake/cluster/node_cluster.ts";
import { pluginOver } from "../fake/cluster/plugin_run.ts";
import { machineWith, MiB, request } from "../fake/cluster/volume_cluster.ts";

/** Starts two nodes with a volume, and the page of them, as a person may who only reads. */
async function setUp(flags: readonly string[] = []) {
  const machines = { n1: machineWith({ data: 1024n * MiB }), n2: machineWith({ data: 512n * MiB }) };
  const cluster = await FakeCluster.start(machines);
  const { id } = await cluster.volumes.create(request("one"), { preferred: ["n1"] });
  for (const name of ["n1", "n2"]) await cluster.agent(name).node.refresh();
  const end = new AbortController();
  const printed = Promise.withResolvers<string>();
  const plugin = pluginOver(cluster.api, { role: "viewer" });
  const running = plugin(["ui", ...flags], { signal: end.signal, onPrint: printed.resolve });
  const text = await printed.promise;
  const address = new URL(/http:\S+/.exec(text)![0]);
  const opened = await fetch(address, { redirect: "manual" });
  await opened.body?.cancel();
  const headers = { cookie: opened.headers.get("set-cookie")!.split(";")[0]! };
  return {
    ...{ cluster, id, text, end, running },
    /** Opens a stream. @returns what reads its next message */
    async open<T>(path: string) {
      const { body } = await fetch(address.origin + path, { headers });
      const reader = body!.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      return {
        async next(): Promise<T> {
          while (!rest.includes("\n\n")) rest += (await reader.read()).value;
          const [message, ...more] = rest.split("\n\n");
          rest = more.join("\n\n");
          return JSON.parse(message!.replace(/^data: /, ""));
        },
        [Symbol.asyncDispose]: () => reader.cancel(),
      };
    },
    async [Symbol.asyncDispose]() {
      end.abort();
      await running;
      await cluster[Symbol.asyncDispose]();
    },
  };
}

/** The part of a message about the cluster that the tests read. */
interface ClusterMessage {
  readonly cluster?: { readonly context: string; readonly nodes: number; readonly volumes: Record<string, number> };
  readonly nodes: Record<string, { readonly volumes: { readonly id: string }[] }>;
  readonly error?: string;
}

Deno.test("kubectl denolith ui: prints the address, streams the cluster and its changes, and ends on Ctrl-C", async () => {
  await using s = await setUp();
  assertMatch(
    s.text,
    /^Open this address .* It works once:\n\n {2}http:\/\/127\.0\.0\.1:\d+\/\?token=[0-9a-f]{32}\n\n/,
  );
  assertMatch(s.text, /The page shows context fake, and changes nothing\. Ctrl-C ends it\.$/);
  await using stream = await s.open<ClusterMessage>("/live/cluster");
  const { cluster, nodes } = await stream.next();
  assertEquals([cluster?.context, cluster?.nodes, cluster?.volumes], ["fake", 2, { Ready: 1 }]);
  assertEquals(Object.entries(nodes).map(([name, { volumes }]) => [name, volumes.length]), [["n1", 1], ["n2", 0]]);
  await s.cluster.volumes.create(request("two"), { preferred: ["n2"] });
  let message = await stream.next();
  while (message.nodes["n2"]?.volumes.length !== 1) message = await stream.next();
  assert(!("n1" in message.nodes), "only what has changed is sent");
  s.end.abort();
  const { status, errors, commands } = await s.running;
  assertEquals([status, errors], [0, "Reading context fake by kubectl …"]);
  assertEquals(commands.filter(([verb]) => verb !== "get" && verb !== "config"), []); // it only reads
});

Deno.test("kubectl denolith ui: a volume has its facts, and what may not be read is said", async () => {
  await using s = await setUp();
  await using stream = await s.open<Sent<VolumeMessage>>(`/live/volumes/${s.id}`);
  const { volume } = await stream.next();
  assertEquals([volume?.id, volume?.node, volume?.usage], [s.id, "n1", "not known: no claim has it"]);
  assertEquals(Object.fromEntries(volume!.facts)["Layout"], "linear");
  s.cluster.api.put(persistentVolumes, {
    metadata: { name: "pv" },
    spec: { csi: { driver: DRIVER, volumeHandle: s.id }, claimRef: { namespace: "shop", name: "db" } },
    status: { phase: "Bound" },
  });
  await using claimed = await s.open<Sent<VolumeMessage>>(`/live/volumes/${s.id}`);
  const ofClaim = (await claimed.next()).volume;
  assertEquals(ofClaim?.claim, "shop/db");
  assertEquals(ofClaim?.usage, "not shown: kubelet's statistics need the right to get nodes/proxy");
  const [volumeNow] = s.cluster.api.objects(lvmVolumes);
  s.cluster.api.restore(lvmVolumes, { ...volumeNow!, status: { ...volumeNow!.status, usedPercent: 65 } });
  await using used = await s.open<Sent<VolumeMessage>>(`/live/volumes/${s.id}`);
  assertEquals((await used.next()).volume?.usage, "about 65%, as its agent last saw it");
  await using none = await s.open<Sent<VolumeMessage>>("/live/volumes/v1-none");
  assertEquals(Object.keys(await none.next()), ["read"]);
});

Deno.test("kubectl denolith ui: a volume without a claim has the events about itself, and no others", async () => {
  await using s = await setUp();
  const { id: other } = await s.cluster.volumes.create(request("other"), { preferred: ["n2"] });
  for (const name of [s.id, other]) {
    s.cluster.api.put(events, {
      metadata: { name: `of-${name}`, namespace: "default" },
      ...{ involvedObject: { kind: "LVMVolume", name }, reason: "Resized", message: `about ${name}`, type: "Normal" },
    } as unknown as Event);
  }
  for (const id of [s.id, other]) {
    await using stream = await s.open<Sent<VolumeMessage>>(`/live/volumes/${id}`);
    assertEquals((await stream.next()).volume!.events.map(({ message }) => message), [`about ${id}`]);
  }
});

Deno.test("kubectl denolith ui: claims that wait are in the cluster, and one has the whole answer of why, until it is gone", async () => {
  await using s = await setUp(["--kubeconfig", "/etc/lab"]);
  const provisioner = { "volume.kubernetes.io/storage-provisioner": DRIVER };
  const metadata = { name: "big", namespace: "shop", annotations: provisioner };
  s.cluster.api.put(persistentVolumeClaims, {
    metadata,
    ...{
      spec: { storageClassName: "fast", resources: { requests: { storage: "1Ti" } } },
      status: { phase: "Pending" },
    },
  });
  s.cluster.api.put(storageClasses, { metadata: { name: "fast" }, provisioner: DRIVER });
  await using cluster = await s.open<{ readonly cluster: Sent<ClusterSummary> }>("/live/cluster");
  const { waiting } = (await cluster.next()).cluster;
  assertEquals(waiting.map(({ claim, reason }) => [claim, reason]), [["shop/big", "Provisioning"]]);
  await using stream = await s.open<Sent<ClaimMessage>>("/live/claims/shop/big");
  const { claim } = await stream.next();
  assertEquals([claim?.object, claim?.state], ["claim/shop/big", "Pending"]);
  const target = "--context fake --kubeconfig /etc/lab";
  assert(claim!.problems.every(({ commands }) => commands.some((command) => command.endsWith(target))));
  await using none = await s.open<Sent<ClaimMessage>>("/live/claims/shop/none");
  assertEquals(Object.keys(await none.next()), ["read"]);
});

Deno.test("kubectl denolith ui: a failure is sent, and the next reading", async () => {
  await using s = await setUp();
  s.cluster.api.faults.refuse = { status: 503, times: 1 };
  await using stream = await s.open<ClusterMessage>("/live/cluster");
  assertMatch((await stream.next()).error ?? "", /refused by the test/);
  assertEquals((await stream.next()).cluster?.nodes, 2);
});

Deno.test("kubectl denolith ui: ends at once when its port is not free", async () => {
  await using s = await setUp();
  using taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { status, errors } = await pluginOver(s.cluster.api)(["ui", "--port", `${taken.addr.port}`]);
  assertEquals(status, 1);
  assertMatch(errors, /^Reading .*\nkubectl denolith: ui: port \d+ of 127\.0\.0\.1 is in use: choose another one$/);
});
