import { assertEquals } from "@std/assert";
import { ByteDevices } from "../../tests/fake/machine/byte_devices.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { Bandwidth, type Connection } from "./connection.ts";
import { encodeRequest, MAX_DATA_BYTES } from "./protocol.ts";
import { serveTransfer } from "./sender.ts";

const SOURCE = "/dev/source";

Deno.test("an answer has two buffers for blocks, however many ranges differ", async () => {
  const devices = new ByteDevices();
  const size = 20 * MAX_DATA_BYTES;
  devices.add(SOURCE, new Uint8Array(size).fill(7));
  const buffers = new Set<ArrayBufferLike>();
  const connection: Connection = {
    read: () => Promise.resolve(null),
    write: ({ buffer }) => {
      if (buffer.byteLength >= MAX_DATA_BYTES) buffers.add(buffer);
      return Promise.resolve();
    },
    close: () => {},
  };
  const changed = (async function* () {
    for (let at = 0; at < size; at += 2 * MAX_DATA_BYTES) {
      yield await Promise.resolve([{ offset: BigInt(at), length: 4096n }]);
    }
  })();
  const request = {
    ...{ driver: "lvm.denolith.dev", node: "node-2", snapshot: snapshotIdOf("s"), volume: volumeIdOf("v") },
    ...{ offset: 0n, length: 1024n * BigInt(MAX_DATA_BYTES), base: { id: snapshotIdOf("base"), uuid: "abcdef-0123" } },
  };
  let sent = 0;
  await serveTransfer(connection, {
    ...{ exec: devices, bandwidth: new Bandwidth(), onSent: (bytes) => sent += bytes },
    open: () => Promise.resolve({ path: SOURCE, size: BigInt(size), uuid: "other", changed }),
  }, encodeRequest(request).subarray(4));
  assertEquals([sent >= 10 * 4096, buffers.size <= 2], [true, true], `${sent} bytes, ${buffers.size} buffers`);
});
