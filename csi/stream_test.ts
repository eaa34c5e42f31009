import { assert, assertEquals, assertRejects } from "@std/assert";
import { waitForAbort } from "../base/clock.ts";
import { StorageError } from "../base/error.ts";
import { connect, type FullCsiClient } from "../tests/contract/helpers/csi_client.ts";
import { assertFails } from "../tests/contract/helpers/host.ts";
import { BlockMetadataType, SnapshotMetadata } from "./proto/csi_pb.ts";
import { type RunningServer, serve } from "./server.ts";
import { bindService, type CompletedCall, type Handlers } from "./service.ts";

type Delta = NonNullable<Handlers<typeof SnapshotMetadata>["getMetadataDelta"]>;

/** Serves a call with a stream of responses. */
async function serveDelta(getMetadataDelta: Delta): Promise<
  { path: string; client: FullCsiClient; close: RunningServer["close"]; completed: CompletedCall[] } & AsyncDisposable
> {
  const folder = await Deno.makeTempDir();
  const completed: CompletedCall[] = [];
  const service = bindService(SnapshotMetadata, { getMetadataDelta }, (call) => void completed.push(call));
  const server = await serve(`${folder}/csi.sock`, [service], { firstCalls: [] });
  const client = connect(server.path);
  let closing: Promise<boolean> | undefined;
  const close = (graceMs: number) => closing ??= server.close(graceMs);
  const dispose = async () => {
    client[Symbol.dispose]();
    await close(10_000);
    await Deno.remove(folder, { recursive: true });
  };
  return { path: server.path, client, close, completed, [Symbol.asyncDispose]: dispose };
}

/** Returns a response with one block. @param padding blocks that make it long */
function responseAt(offset: number, padding = 0) {
  const block = { byteOffset: BigInt(offset), sizeBytes: 1n };
  return {
    blockMetadataType: BlockMetadataType.VARIABLE_LENGTH,
    volumeCapacityBytes: 1n << 30n,
    blockMetadata: [block, ...Array.from({ length: padding }, () => block)],
  };
}

Deno.test(`a stream arrives as it was sent, and ends with its status`, async () => {
  await using here = await serveDelta(async function* ({ maxResults }) {
    for (let offset = 0; offset < maxResults; offset++) yield await Promise.resolve(responseAt(offset));
  });
  for (const maxResults of [0, 1, 300]) {
    const offsets: number[] = [];
    for await (const { blockMetadata } of here.client.snapshotMetadata.getMetadataDelta({ maxResults })) {
      offsets.push(Number(blockMetadata[0]!.byteOffset));
    }
    assertEquals(offsets, Array.from({ length: maxResults }, (_, index) => index));
  }
  assertEquals(here.completed.map(({ method, code }) => [method, code]), Array(3).fill(["GetMetadataDelta", 0]));
});

Deno.test(`a stream that fails ends with the status of the failure, also after messages`, async () => {
  await using here = await serveDelta(async function* ({ maxResults }) {
    for (let offset = 0; offset < maxResults; offset++) yield await Promise.resolve(responseAt(offset));
    throw new StorageError("Busy", "it is gone: für immer");
  });
  for (const maxResults of [0, 1, 5]) {
    let count = 0;
    const readAll = async () => {
      for await (const _ of here.client.snapshotMetadata.getMetadataDelta({ maxResults })) count++;
    };
    await assertFails("ABORTED", readAll(), "f");
    assert(count <= maxResults); // the client drops messages that it has when it gets the failure
  }
  assertEquals(here.completed.map(({ code }) => code), [10, 10, 10]);
});

Deno.test(`a call without a handler is not implemented`, async () => {
  await using here = await serveDelta(async function* () {});
  await assertFails("UNIMPLEMENTED", here.client.snapshotMetadata.getMetadataAllocated().next());
});

Deno.test(
  `responses are made as the client takes them, and none after it has gone`,
  async () => {
    let made = 0;
    const ended = Promise.withResolvers<void>();
    await using here = await serveDelta(async function* () {
      try {
        for (;;) yield await Promise.resolve(responseAt(made++, 10_000)); // some 50 KB
      } finally {
        ended.resolve();
      }
    });
    const stream = here.client.snapshotMetadata.getMetadataDelta();
    await stream.next();
    let before = -1;
    while (before !== made && made < 400) { // until the buffers between the two are full
      before = made;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    assert(made < 400, `${made} responses were made before the client took the second`);
    await stream.return();
    await ended.promise;
  },
);

for (const count of [0, 1]) {
  Deno.test(
    `when the client goes away, what makes response ${count + 1} is notified at once`,
    async () => {
      const [making, aborted] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      await using here = await serveDelta(async function* (_request, signal) {
        for (let offset = 0; offset < count; offset++) yield responseAt(offset);
        making.resolve();
        await waitForAbort(signal);
        aborted.resolve();
      });
      const connection = connect(here.path);
      const stream = connection.snapshotMetadata.getMetadataDelta();
      const refused = assertRejects(async () => {
        for await (const _ of stream);
      });
      await making.promise;
      connection[Symbol.dispose]();
      await aborted.promise;
      await refused;
    },
  );
}

Deno.test("what fails at the end of a stream after its client has gone ends no process", async () => {
  const ended = Promise.withResolvers<void>();
  await using here = await serveDelta(async function* () {
    try {
      for (let offset = 0;; offset++) yield await Promise.resolve(responseAt(offset, 10_000));
    } finally {
      setTimeout(ended.resolve);
      await Promise.reject(new Error("too late"));
    }
  });
  const connection = connect(here.path);
  await connection.snapshotMetadata.getMetadataDelta().next();
  await new Promise((resolve) => setTimeout(resolve, 200)); // until the buffers between the two are full
  connection[Symbol.dispose]();
  await ended.promise;
});

Deno.test(`the server waits for streams when it is closed, and ends them after its grace`, async () => {
  const gate = Promise.withResolvers<void>();
  await using here = await serveDelta(async function* () {
    yield responseAt(0);
    await gate.promise;
    yield responseAt(1);
  });
  const stream = here.client.snapshotMetadata.getMetadataDelta();
  await stream.next();
  assertEquals(await here.close(50), false);
  gate.resolve();
  await assertRejects(async () => {
    for await (const _ of stream);
  });
});
