import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { lvmNodes, lvmSnapshots, type LvmVolume, lvmVolumes } from "../k8s/api/lvm_objects.ts";
import { lvmVolumeFor } from "../k8s/api/volume_mapping.ts";
import { events, persistentVolumes } from "../k8s/api/objects.ts";
import { FakeApiServer } from "../tests/fake/api_server.ts";
import { namedRequest } from "../tests/fake/request.ts";
import { collectPrinted, flagsOf, SubcommandFolder } from "../tests/fake/subcommand.ts";
import { forgetNode } from "./forget_node.ts";

const driver = "lvm.denolith.dev";

/** Starts a fake cluster with the node n1, whose agent has reported just now, and its volume. */
async function setUp() {
  await using stack = new AsyncDisposableStack();
  const api = stack.use(FakeApiServer.start({ resources: [lvmVolumes, lvmSnapshots, lvmNodes] }));
  const folder = stack.use(await SubcommandFolder.create(api.url));
  const status = { lastUpdateTime: new Date().toISOString() };
  api.put(lvmNodes, { metadata: { name: "n1" }, spec: { driverName: driver }, status });
  const volume = lvmVolumeFor(namedRequest("one", 32n << 20n), { driver, nodeName: "n1" });
  api.put(lvmVolumes, { ...volume, status: { state: "Ready", volumeGroup: "data", lvUUID: "u" } });
  const kept = stack.move();
  return {
    api,
    /** Runs `denolith forget-node n1`. @returns what it prints */
    async run(...args: string[]): Promise<string> {
      await using printed = collectPrinted();
      assertEquals(await forgetNode(flagsOf("forget-node", "n1", "--kubeconfig", folder.kubeconfig, ...args)), 0);
      return printed.output.join("\n");
    },
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}

Deno.test("denolith forget-node: without --yes, it shows what it would do, and changes nothing", async () => {
  await using s = await setUp();
  const revision = s.api.revision;
  const text = await s.run();
  assertMatch(text, /its LVMNode would be removed\n {2}it seems to be alive: its agent reported \d+ s ago\n/);
  const { done, volumes } = JSON.parse(await s.run("--json"));
  assertEquals([done, volumes.length, s.api.revision], [false, 1, revision]);
});

Deno.test("denolith forget-node: refuses a node that seems to be alive, unless --force says why not", async () => {
  await using s = await setUp();
  const { message } = await assertRejects(() => s.run("--yes"), Error);
  assertMatch(message, /^forgetting node n1: it seems to be alive: its agent reported/);
  assertEquals(s.api.objects(lvmNodes).length, 1);
  const { done, lvmNode, volumes } = JSON.parse(await s.run("--yes", "--force", "it was wiped", "--json"));
  assertEquals([done, lvmNode, volumes.length], [true, true, 1]);
  assertEquals([...s.api.objects(lvmNodes), ...s.api.objects(lvmVolumes)], []);
  assertEquals(await s.run("--yes"), "There is nothing of node n1 to forget.");
});

Deno.test("denolith forget-node: has sent its events when it ends, in its own name", async () => {
  await using s = await setUp();
  const [{ metadata: { name } }] = s.api.objects(lvmVolumes) as [LvmVolume];
  s.api.put(persistentVolumes, {
    metadata: { name: "pv" },
    spec: { csi: { driver, volumeHandle: name }, claimRef: { namespace: "default", name: "data", uid: "c" } },
    status: { phase: "Bound" },
  });
  await s.run("--yes", "--force", "it was wiped");
  const sent = s.api.objects(events) as unknown as Record<string, string>[];
  assertEquals(sent.map(({ reason }) => reason).sort(), ["Lost", "VolumeLost"]);
  for (const { reportingComponent, reportingInstance } of sent) {
    assertEquals([reportingComponent, reportingInstance], [`${driver}/forget-node`, "n1"]);
  }
});
