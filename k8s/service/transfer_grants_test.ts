import { assertEquals } from "@std/assert";
import { snapshotIdOf, transferSnapshotName, volumeIdOf } from "../../base/ids.ts";
import { FakeApiServer } from "../../tests/fake/cluster/api_server.ts";
import { interceptClient } from "../../tests/fake/cluster/intercepted_client.ts";
import { waitUntil } from "../../tests/fake/wait_until.ts";
import { type LvmSnapshot, lvmSnapshots, type LvmVolume, lvmVolumes } from "../api/lvm_objects.ts";
import { formatGrant, grantAnnotation } from "../api/transfers.ts";
import { HttpClient } from "../client/http_client.ts";
import { Informer } from "../runtime/informer.ts";
import { decideGrant, TransferGrants, type TransferGrantsOptions } from "./transfer_grants.ts";

const COPY = volumeIdOf("copy");
const idOf = (...parts: number[]) => snapshotIdOf(transferSnapshotName(COPY, ...parts));

function snapshot(...parts: number[]): LvmSnapshot {
  const spec = { driverName: "d", nodeName: "a", requestName: transferSnapshotName(COPY, ...parts) };
  return { metadata: { name: idOf(...parts) }, spec } as unknown as LvmSnapshot;
}

/** Returns a copy that should have its third snapshot. */
function copy({ has, status = {} }: { has?: string; status?: object } = {}): LvmVolume {
  return {
    metadata: { name: COPY },
    spec: {
      ...{ driverName: "d", nodeName: "b", sourceNode: "a", source: { volume: volumeIdOf("v") } },
      copy: { round: 2, snapshot: idOf(2), base: idOf(1) },
    },
    status: { state: "Pending", copy: { copied: "1", ...(has && { snapshot: has }) }, ...status },
  } as unknown as LvmVolume;
}

const decide = (object: LvmSnapshot, target: LvmVolume | undefined, until = 1e9) =>
  decideGrant({ volume: COPY, node: "b", until }, object, target, 0);

Deno.test("the snapshots from which a copy is filled one after the other are kept as long as they are needed", () => {
  const isKept = (target: LvmVolume) =>
    [[0], [1], [2], [2, 7], [3], [3, 7]].map((parts) => decide(snapshot(...parts), target) === "keep");
  assertEquals(isKept(copy()), [false, true, true, false, true, true]);
  assertEquals(isKept(copy({ has: idOf(1) })), [false, true, true, false, true, true]);
  assertEquals(isKept(copy({ has: idOf(2) })), [false, false, true, false, true, true]);
  assertEquals(isKept(copy({ status: { state: "Failed" } })), [false, true, true, false, true, true]);
  const complete = copy({ status: { state: "Ready", lvUUID: "u", size: "1" } });
  assertEquals(isKept(complete), [false, false, false, false, false, false]);
});

Deno.test("a permission is renewed while a copy is filled, and over without it", () => {
  assertEquals([decide(snapshot(2), copy(), 1), decide(snapshot(2), undefined, 1), decide(snapshot(2), undefined, 0)], [
    ...["renew", "keep", "withdraw"],
  ]);
});

Deno.test("a permission of a node that the copy is not on any more is withdrawn, and not renewed", () => {
  const moved = copy();
  assertEquals(decide(snapshot(2), { ...moved, spec: { ...moved.spec, nodeName: "c" } }, 1), "withdraw");
});

Deno.test("a permission that is given while an earlier one is withdrawn stays", async () => {
  await using api = FakeApiServer.start({ resources: [lvmSnapshots, lvmVolumes] });
  using http = new HttpClient({ url: api.url }, { userAgent: "denolith/test" });
  const { metadata, spec } = snapshot(2);
  const permission = (until: number) => ({ [grantAnnotation(COPY)]: formatGrant({ node: "b", until }) });
  api.put(lvmSnapshots, { metadata: { ...metadata, annotations: permission(Date.now() - 60_000) }, spec });
  const given = permission(Date.now() + 3_600_000);
  let answers = 0;
  const client = interceptClient(http, async (request, when) => {
    if (request !== "patch lvmsnapshots") return;
    const merge = { metadata: { annotations: given } };
    if (when === "after") answers++;
    else await http.patch(lvmSnapshots, { name: metadata.name }, { merge });
  });
  const stop = new AbortController();
  const [snapshots, volumes] = [new Informer(http, lvmSnapshots), new Informer(http, lvmVolumes)];
  const options = { client, driverName: "d", snapshots, volumes } as unknown as TransferGrantsOptions;
  const running = [
    snapshots.start(stop.signal),
    volumes.start(stop.signal),
    new TransferGrants(options).run(stop.signal),
  ];
  const failed = () => api.requests.filter(({ method }) => method === "PATCH").length > 1;
  await waitUntil(() => answers > 0 || failed(), "the answer");
  assertEquals(api.objects(lvmSnapshots)[0]?.metadata.annotations, given);
  stop.abort();
  await Promise.all(running);
});
