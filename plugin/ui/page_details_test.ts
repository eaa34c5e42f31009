import { assertEquals } from "@std/assert";
import type { LvmNode, LvmSnapshot, LvmVolume } from "../../k8s/api/lvm_objects.ts";
import type { ClusterState } from "../diagnosis/cluster_state.ts";
import { clusterState } from "../../tests/fake/cluster/cluster_states.ts";
import { clusterPage } from "./cluster_page.ts";
import { FILES } from "./files.ts";
import { servePage } from "./server.ts";
import { volumePage } from "./volume_page.ts";

const NOW = new Date("2026-05-01T12:00:00Z");
const GiB = 1n << 30n;

const state = (more: Partial<ClusterState>) => clusterState({ driver: "d", now: NOW, ...more });

function node(name: string, size: string, free: string): LvmNode {
  const group = { name: "data", uuid: "u", size, free, extentSize: "4Mi", writeable: true };
  return {
    ...{ metadata: { name }, spec: { driverName: "d" } },
    status: { volumeGroups: [group], lastUpdateTime: NOW.toISOString() },
  } as unknown as LvmNode;
}

function volume(status?: object): LvmVolume {
  const spec = {
    driverName: "d",
    nodeName: "n1",
    size: "10Gi",
    volumeMode: "Filesystem",
    fsType: "ext4",
    erase: "zero",
  };
  return { metadata: { name: "v1" }, spec, ...(status && { status }) } as unknown as LvmVolume;
}

function snapshot(name: string, sourceVolume: string): LvmSnapshot {
  const error = { code: "NoSpace", message: `${name} is full` };
  const spec = { driverName: "d", nodeName: "n1", sourceVolume };
  return { metadata: { name }, spec, status: { state: "Failed", error } } as unknown as LvmSnapshot;
}

Deno.test("clusterPage(): the bars have the scale of the largest node, wherever it is in the list", () => {
  const lvmNodes = [node("n1", "50Gi", "1Gi"), node("n2", "100Gi", "1Gi"), node("n3", "20Gi", "1Gi")];
  assertEquals(clusterPage(state({ lvmNodes }), { context: "ctx" }).cluster.largestNode, 100n * GiB);
});

Deno.test("clusterPage(): a group that its volumes fill has no other segments", () => {
  const volumes = [volume({ state: "Ready", volumeGroup: "data", size: "10Gi" })];
  const { nodes } = clusterPage(state({ lvmNodes: [node("n1", "10Gi", "0")], volumes }), { context: "ctx" });
  assertEquals(nodes.get("n1")!.groups[0]!.segments.map(({ kind }) => kind), ["volume"]);
});

Deno.test("volumePage(): a volume without a status has the problems of its own snapshots, and names what is not read", () => {
  const of = state({
    volumes: [volume()],
    snapshots: [snapshot("s1", "v1"), snapshot("s2", "v2")],
    unread: ["nodes: x"],
  });
  const page = volumePage("v1", {
    state: of,
    target: { context: "" },
    usage: "not known",
    unread: ["events: x", "nodes: x"],
  })!;
  assertEquals(page.problems.map(({ object }) => object), ["lvmsnapshot/s1"]);
  assertEquals(page.unread, ["events: x", "nodes: x"]);
  const labels = page.facts.map(([label]) => label);
  assertEquals(labels.filter((label) => ["Device", "Copied"].includes(label)), []);
});

Deno.test("volumePage(): an event counts as often as its series, and may be about nothing", () => {
  const metadata = { name: "e" };
  const events = [
    { metadata, lastTimestamp: "2026-01-03T00:00:00Z", count: 2, series: { count: 7 } },
    { metadata, lastTimestamp: "2026-01-02T00:00:00Z", count: 2 },
    { metadata, lastTimestamp: "2026-01-01T00:00:00Z" },
  ];
  const page = volumePage("v1", {
    state: state({ volumes: [volume({})] }),
    events: events as never,
    target: { context: "" },
    usage: "",
  })!;
  assertEquals(page.events.map(({ count, object }) => [count, object]), [[7, "/"], [2, "/"], [1, "/"]]);
});

Deno.test("each file of the page has the type by which a browser uses it", () => {
  const types: Record<string, string> = {
    "/": "text/html",
    js: "text/javascript",
    css: "text/css",
    svg: "image/svg+xml",
  };
  for (const [path, { type }] of Object.entries(FILES)) {
    assertEquals(type, types[path === "/" ? path : path.split(".").at(-1)!], path);
  }
});

Deno.test("servePage(): a stream whose source fails ends, and its error is printed", async () => {
  const end = new AbortController();
  const fail = () => Promise.reject(new Error("no cluster"));
  const server = servePage({
    source: { cluster: fail, volume: () => fail, claim: () => fail },
    port: 0,
    signal: end.signal,
  });
  const printed: unknown[] = [];
  const { error } = console;
  console.error = (text: unknown) => void printed.push(text);
  try {
    const opened = await fetch(server.address, { redirect: "manual" });
    await opened.body?.cancel();
    const cookie = opened.headers.get("set-cookie")!.split(";")[0]!;
    const { origin } = new URL(server.address);
    assertEquals(await (await fetch(`${origin}/live/cluster`, { headers: { cookie } })).text(), "");
  } finally {
    console.error = error;
    end.abort();
    await server.finished;
  }
  assertEquals(printed, ["denolith ui: Error: no cluster"]);
});
