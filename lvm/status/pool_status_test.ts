import { assertEquals, assertMatch } from "@std/assert";
import { healthyMachine } from "../../tests/fake/machine/healthy_machine.ts";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { readStatus } from "./status.ts";
import { statusText } from "./text.ts";
import { poolTags } from "../model/tags.ts";
import { DRIVER, type Healthy, statusOf, thinPart } from "../../tests/fake/machine/status_machine.ts";

Deno.test("readStatus() counts what a thin pool has of the disks, and nothing of what is in it", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const lvcreate = (...args: string[]) =>
    machine.run({ program: "lvm", args: ["lvcreate", "--yes", ...args], mutates: true });
  const tags = poolTags(DRIVER).flatMap((tag) => ["--addtag", tag]);
  await lvcreate("--type", "thin-pool", "--zero", "y", "--name", "pool", "--size", `${64 << 20}b`, ...tags, "data");
  await lvcreate(
    "--type",
    "thin",
    "--thinpool",
    "pool",
    "--virtualsize",
    `${32 << 20}b`,
    "--name",
    "v",
    ...tags,
    "data",
  );
  const { groups: [group] } = await readStatus({ exec: machine, driver: DRIVER });
  assertEquals(group?.used, 68n << 20n, "its data, and its metadata");
});

Deno.test("readStatus() reports thin pools: their sizes, their allocated and available virtual sizes, and their owners", async () => {
  const healthy = healthyMachine();
  const { pool, id } = thinPart(healthy);
  const { pools, volumes } = await statusOf(healthy);
  assertEquals(pools, [{
    ...{ group: "data", name: "data_thinpool", owned: true, size: 100n << 20n, metadataSize: 4n << 20n },
    ...{
      dataPercent: 40,
      metadataPercent: 10.84,
      overcommit: "1",
      allocatedVirtual: 64n << 20n,
      availableVirtual: 36n << 20n,
    },
    ...{ active: true, state: "Ready" },
  }]);
  const thin = volumes.find((volume) => volume.id === id)!;
  assertEquals([thin.pool, thin.ioLimits, thin.problem], [
    "data_thinpool",
    { readIops: 500n, writeBps: "max" },
    undefined,
  ]);
  pool.tags.clear();
  const reported = await readStatus({ exec: healthy.machine, driver: DRIVER, overcommit: 250n });
  assertEquals(reported.pools.map(({ owned, overcommit, availableVirtual }) => [owned, overcommit, availableVirtual]), [
    [false, "2.5", 186n << 20n],
  ]);
  const text = statusText(reported);
  assertMatch(
    text,
    /\nThin pools\n.*\n {2}data\/data_thinpool +100 MiB +40 % +11 % +64 MiB +186 MiB +2.5 +other +Ready\n/,
  );
  assertMatch(text, /\n {6}in thin pool data_thinpool\n {6}limited to readIops 500, writeBps max\n/);
});

Deno.test("readStatus() says of pools in words what is wrong, and so of their volumes when those cannot be written", async () => {
  type Spoil = (parts: ReturnType<typeof thinPart> & Healthy) => unknown;
  const cases: [string, Spoil, RegExp, RegExp | undefined][] = [
    [
      "NearFull",
      ({ pool }) => pool.thinPool.dataPercent = 85,
      /^nearly full: the driver extends it only while/,
      undefined,
    ],
    [
      "CannotExtend",
      ({ pool, group }) => {
        pool.thinPool.dataPercent = 85;
        group.size = 188n << 20n; // all of it is taken
      },
      /^nearly full, and volume group data has no space .*: free space: .*vgextend/,
      undefined,
    ],
    [
      "CannotExtend",
      ({ pool, group }) => {
        pool.thinPool.metadataPercent = 85;
        group.size = 192n << 20n; // one extent is free: the metadata takes two, since its spare grows with it
      },
      /^nearly full, and volume group data has no space /,
      undefined,
    ],
    ["Full", ({ pool }) => pool.thinPool.dataPercent = 100, /^full: .* fail; .*lvextend/, /data_thinpool .* fail$/],
    ["Full", ({ pool }) => pool.thinPool.metadataPercent = 100, /^full: /, /data_thinpool .* fail$/],
    [
      "Damaged",
      ({ pool }) => pool.thinPool.health = "failed",
      /lvconvert --repair data\/data_th/,
      /is failed: .* fail$/,
    ],
    [
      "Damaged",
      ({ pool }) => Object.assign(pool.thinPool, { needsCheck: true }),
      /checked/,
      /check of its metadata: .* fail$/,
    ],
    [
      "Erasing",
      ({ thin }) => {
        thin.size = 100n << 20n;
        thin.tags = new Set([`denolith=${DRIVER}`, `denolith.deleted=${volumeIdOf("thin")}`]);
      },
      /overwritten/,
      undefined,
    ],
  ];
  for (const [state, damage, problem, ofVolume] of cases) {
    const healthy = healthyMachine();
    const parts = thinPart(healthy);
    damage({ ...parts, ...healthy, id: parts.id });
    const status = await statusOf(healthy);
    assertEquals(status.pools.map((pool) => pool.state), [state]);
    assertMatch(status.pools[0]!.problem!, problem);
    const volume = status.volumes.find(({ id }) => id === parts.id);
    if (ofVolume === undefined) assertEquals(volume?.problem, undefined, state);
    else {
      assertMatch(volume!.problem!, ofVolume);
      assertMatch(statusText(status), new RegExp(`Ready, inactive, pool ${state.toLowerCase()}\n`));
    }
  }
});
