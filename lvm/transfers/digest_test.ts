import { assert, assertEquals } from "@std/assert";
import { createHash } from "node:crypto";
import fc from "fast-check";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { RangeDigest } from "./digest.ts";
import { encodeHead, encodeHeader, encodeRequest } from "./protocol.ts";

const REQUEST = {
  ...{ driver: "lvm.denolith.dev", node: "node-2", snapshot: snapshotIdOf("s"), volume: volumeIdOf("v") },
  ...{ offset: 0n, length: 4n << 20n },
};
const HEAD = { size: 4n << 20n };

Deno.test("the digest of a range is the SHA-256 of its request, its head, and all frames in order", () => {
  const frames = fc.record({
    kind: fc.constantFrom("data" as const, "zeros" as const, "same" as const),
    length: fc.nat(2 ** 31),
  });
  fc.assert(fc.property(fc.array(frames, { maxLength: 30 }), (list) => {
    const digest = new RangeDigest(REQUEST, HEAD);
    const expected = createHash("sha256").update(encodeRequest(REQUEST)).update(encodeHead(HEAD));
    for (const { kind, length } of list) {
      expected.update(encodeHeader({ kind, length }));
      const bytes = kind === "data" ? new Uint8Array(32).fill(length % 256) : undefined;
      digest.add({ kind, length }, bytes);
      if (bytes !== undefined) expected.update(bytes);
    }
    assertEquals(digest.end().toHex(), expected.digest("hex"));
  }));
});

Deno.test("the digest of a range keeps nothing of its frames, however many there are", () => {
  const used = () => {
    const { heapUsed, external } = Deno.memoryUsage();
    return heapUsed + external;
  };
  const digest = new RangeDigest(REQUEST, HEAD);
  const before = used();
  for (let frame = 0; frame < 400_000; frame++) digest.add({ kind: "same", length: 0 });
  assert(used() - before < 32 << 20, `${used() - before} bytes more`); // of 400,000 small arrays alone: some 100 MB
  digest.end();
});
