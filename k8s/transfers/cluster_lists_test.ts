import { assertEquals, assertRejects } from "@std/assert";
import { serveList } from "../../lvm/differences/remote_list.ts";
import type { Extent, ExtentList } from "../../lvm/differences/differences.ts";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { readJson } from "../../lvm/transfers/connection.ts";
import type { StoredSnapshot } from "../../lvm/volume_service.ts";
import { FakeApiServer } from "../../tests/fake/cluster/api_server.ts";
import { type LvmNode, lvmNodes, lvmSnapshots } from "../api/lvm_objects.ts";
import { HttpClient } from "../client/http_client.ts";
import { makeCredentials } from "./certificate.ts";
import { ClusterLists } from "./cluster_lists.ts";
import { listen } from "./listener.ts";

const [DRIVER, HOST, SIZE] = ["lvm.denolith.dev", "127.0.0.1", 1n << 30n];
const target = snapshotIdOf("t");

/** Reads a list of an agent whose connections break after what each of them sends. @returns the offsets that came */
async function readFrom(connections: readonly (Omit<ExtentList, "extents"> & { offsets: bigint[] })[]) {
  await using api = FakeApiServer.start({ resources: [lvmNodes, lvmSnapshots] });
  using client = new HttpClient({ url: api.url }, { userAgent: "denolith/test (controller)" });
  const credentials = await makeCredentials("a", new Date());
  let count = 0;
  const list = () => {
    const { offsets, ...head } = connections[count++]!;
    const extents = (async function* (): AsyncGenerator<readonly Extent[], void> {
      for (const offset of offsets) yield await Promise.resolve([{ offset, length: 1n }]);
      if (count < connections.length) throw new StorageError("Unavailable", "the agent ends");
    })();
    return Promise.resolve({ ...head, extents });
  };
  const listener = await listen({
    ...{ address: { host: HOST, port: 0 }, credentials },
    onConnection: (connection) =>
      void readJson(connection).then((request) =>
        serveList(connection, request, { allow: () => Promise.resolve(), differences: { list } })
      ).catch(() => {}),
  });
  const { certificate, validUntil } = credentials;
  const transfer = { address: `${HOST}:${listener.port}`, certificate, validUntil: new Date(validUntil).toISOString() };
  const node = { metadata: { name: "a" }, spec: { driverName: DRIVER }, status: { transfer } } as unknown as LvmNode;
  api.put(lvmNodes, node as never);
  api.put(lvmSnapshots, { metadata: { name: target }, spec: { driverName: DRIVER, nodeName: "a" } } as never);
  const lists = new ClusterLists({
    ...{ client, driver: DRIVER, snapshots: { get: () => undefined } },
    found: { get: () => Promise.resolve({ source: volumeIdOf("v"), nodeId: "a" } as StoredSnapshot) },
    nodes: { get: () => node, waitFor: () => Promise.resolve(node) },
  });
  const got: bigint[] = [];
  try {
    const { extents } = await lists.list({ target, from: 0n, groupSize: 1 });
    for await (const group of extents) got.push(...group.map(({ offset }) => offset));
    return got;
  } finally {
    await listener.close();
  }
}

Deno.test("a list goes on by further connections, as long as each of them is about the same snapshots", async () => {
  const same = { size: SIZE, identity: "uuid" };
  assertEquals(
    await readFrom([[1n], [], [2n, 3n], []].map((offsets) => ({ ...same, offsets }))),
    [1n, 2n, 3n],
  );
  for (const other of [{ size: SIZE, identity: "other" }, { size: 2n * SIZE, identity: "uuid" }]) {
    const connections = [{ ...same, offsets: [1n] }, { ...other, offsets: [2n] }];
    const error = await assertRejects(() => readFrom(connections), StorageError, "it or its base is another one now");
    assertEquals(error.kind, "FailedPrecondition");
  }
});

Deno.test("a list ends when connections break again and again before anything comes", async () => {
  const connections = Array.from({ length: 100 }, () => ({ size: SIZE, identity: "uuid", offsets: [] }));
  assertEquals((await assertRejects(() => readFrom(connections), StorageError, "the agent ends")).kind, "Unavailable");
});
