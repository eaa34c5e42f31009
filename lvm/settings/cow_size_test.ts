import { assertEquals } from "@std/assert";
import { cowBytes, formatSizeOrPercent, FULL_COW, fullCowBytes, parseSizeOrPercent } from "./cow_size.ts";

const MiB = 1n << 20n;

Deno.test("parseSizeOrPercent() accepts 1% to 100%, and quantities of some bytes", () => {
  assertEquals(parseSizeOrPercent("1%"), { percent: 1n });
  assertEquals(parseSizeOrPercent("100%"), FULL_COW);
  assertEquals(parseSizeOrPercent("1.5Mi"), { bytes: 1_572_864n });
  for (const text of ["0%", "101%", "-1%", "1.5%", "%", "", "0", "0Gi", "-1Gi", "much", "1000%"]) {
    assertEquals(parseSizeOrPercent(text), undefined, text);
  }
});

Deno.test("formatSizeOrPercent() writes what parseSizeOrPercent() reads", () => {
  for (
    const [size, text] of [[FULL_COW, "100%"], [{ percent: 7n }, "7%"], [{ bytes: 10n << 30n }, "10Gi"]] as const
  ) {
    assertEquals([formatSizeOrPercent(size), parseSizeOrPercent(text)], [text, size]);
  }
});

Deno.test("cowBytes() is in whole extents, and larger than the volume for COW space that cannot overflow", () => {
  assertEquals(cowBytes({ bytes: 5n * MiB }, 100n * MiB, 4n * MiB), 8n * MiB);
  assertEquals(cowBytes({ percent: 10n }, 100n * MiB, 4n * MiB), 12n * MiB);
  assertEquals(cowBytes(FULL_COW, 100n * MiB, 4n * MiB), 104n * MiB);
  assertEquals(cowBytes({ bytes: 10n << 30n }, 100n * MiB, 4n * MiB), 104n * MiB, "more cannot be used");
});

Deno.test("fullCowBytes() is the size to which LVM reduces a larger COW space", () => {
  // as `lvcreate --snapshot` of LVM 2.03 reports it: "Reducing COW size … down to maximum usable size …"
  assertEquals(fullCowBytes(32n * MiB, 4n * MiB), 36n * MiB);
  assertEquals(fullCowBytes(500n * MiB, 4n * MiB), 504n * MiB);
  assertEquals(fullCowBytes(1024n * MiB, 4n * MiB), 258n * 4n * MiB);
});
