import { assertEquals } from "@std/assert";
import type { PhysicalVolume } from "../model/report.ts";
import { pvsToName } from "../model/layout.ts";

function pv(name: string, more: Partial<PhysicalVolume> = {}): PhysicalVolume {
  return { path: `/dev/${name}`, uuid: name, missing: false, size: 1n << 30n, free: 1n << 30n, ...more };
}

const CACHE_PV = pv("fast", { free: 0n, cacheFree: 1n << 30n });

Deno.test("pvsToName() returns all physical volumes but those for caches, for a command that takes space and names none", () => {
  const group = {
    pvs: [pv("a"), pv("full", { free: 0n }), CACHE_PV, pv("gone", { path: "[unknown]", missing: true })],
  };
  const others = ["/dev/a", "/dev/full"];
  const cases: [string[], string[]][] = [
    [["lvcreate", "--name", "one", "--size", "1b", "data"], others],
    [["lvcreate", "--snapshot", "--size", "1b", "data/one"], others],
    [["lvextend", "--size", "1b", "data/one"], others],
    [["lvextend", "--poolmetadatasize", "1b", "data/pool"], others],
    [["lvcreate", "--size", "1b", "data", "/dev/fast"], []],
    [["lvcreate", "--size", "1b", "data", "/dev/a"], []],
    [["lvcreate", "--type", "thin", "--virtualsize", "1b", "data"], []],
    [["lvcreate", "--snapshot", "data/thin"], []],
    [["lvchange", "--addtag", "one", "data/one"], []],
    [["lvremove", "data/one"], []],
  ];
  for (const [args, expected] of cases) assertEquals(pvsToName(group, args), expected, args.join(" "));
  const named = { pvs: [pv("pci-0000:00:1f.2"), pv("gpt@a"), CACHE_PV] };
  const escaped = ["/dev/pci-0000\\:00\\:1f.2", "/dev/gpt\\@a"];
  const args = ["lvcreate", "--size", "1b", "data"];
  assertEquals([pvsToName(named, args), pvsToName(named, [...args, escaped[0]!])], [escaped, []]);
  assertEquals(pvsToName({ pvs: [pv("a"), pv("b")] }, ["lvcreate", "--size", "1b", "data"]), []);
});
