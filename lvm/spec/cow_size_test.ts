import { assertEquals } from "@std/assert";
import { formatStoreSize, FULL_STORE, fullStoreBytes, parseStoreSize, storeBytes } from "./cow_size.ts";

const MiB = 1n << 20n;

Deno.test("parseStoreSize() takes 1% to 100%, and quantities of some bytes", () => {
  assertEquals(parseStoreSize("1%"), { percent: 1n });
  assertEquals(parseStoreSize("100%"), FULL_STORE);
  assertEquals(parseStoreSize("1.5Mi"), { bytes: 1_572_864n });
  for (const text of ["0%", "101%", "-1%", "1.5%", "%", "", "0", "0Gi", "-1Gi", "much", "1000%"]) {
    assertEquals(parseStoreSize(text), undefined, text);
  }
});

Deno.test("formatStoreSize() writes what parseStoreSize() reads", () => {
  for (
    const [store, text] of [[FULL_STORE, "100%"], [{ percent: 7n }, "7%"], [{ bytes: 10n << 30n }, "10Gi"]] as const
  ) {
    assertEquals([formatStoreSize(store), parseStoreSize(text)], [text, store]);
  }
});

Deno.test("storeBytes() is in whole extents, and for a store that cannot overflow more than the volume", () => {
  assertEquals(storeBytes({ bytes: 5n * MiB }, 100n * MiB, 4n * MiB), 8n * MiB);
  assertEquals(storeBytes({ percent: 10n }, 100n * MiB, 4n * MiB), 12n * MiB);
  assertEquals(storeBytes(FULL_STORE, 100n * MiB, 4n * MiB), 104n * MiB);
});

Deno.test("fullStoreBytes() is what LVM reduces a larger store to", () => {
  // as `lvcreate --snapshot` of LVM 2.03 reports it: "Reducing COW size … down to maximum usable size …"
  assertEquals(fullStoreBytes(32n * MiB, 4n * MiB), 36n * MiB);
  assertEquals(fullStoreBytes(500n * MiB, 4n * MiB), 504n * MiB);
  assertEquals(fullStoreBytes(1024n * MiB, 4n * MiB), 258n * 4n * MiB);
});
