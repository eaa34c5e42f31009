import { assertEquals } from "@std/assert";
import { CACHE_PV } from "../../lvm/model/tags.ts";
import { fakeMultiPvHost } from "../contract/helpers/fake_host.ts";
import { Harness } from "../contract/helpers/host.ts";
import type { FakeMachine } from "../fake/machine/machine.ts";

Deno.test("volumes of all layouts are created and expanded on disks whose names have colons", async () => {
  await using host = await fakeMultiPvHost.setUp();
  const group = (host.exec as FakeMachine).groups[1]!;
  for (const [index, pv] of group.pvs.entries()) pv.path = `/dev/disk/by-path/pci-0000:00:1f.2-ata-${index}@a`;
  group.pvs.at(-1)!.tags = new Set([CACHE_PV]);
  await using harness = await Harness.start(host.exec, fakeMultiPvHost.groups);
  for (const layout of ["linear", "striped", "raid1", "cache"]) {
    const cache = layout === "cache" ? { cacheSize: "32Mi" } : {};
    const parameters = { volumeGroup: group.name, layout, ...cache };
    const volumeId = await harness.create({ name: layout, parameters });
    const capacityRange = { requiredBytes: 64n << 20n };
    const { capacityBytes } = await harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange });
    assertEquals(capacityBytes, 64n << 20n, layout);
    await harness.csi.controller.deleteVolume({ volumeId });
  }
});
