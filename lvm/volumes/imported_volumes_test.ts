import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { crashMomentsOf } from "../../tests/crash/crashing_exec.ts";
import { addForeignLv, FOREIGN_UUID } from "../../tests/fake/machine/foreign_lv.ts";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { StorageError } from "../../base/error.ts";
import { Lvm } from "../client/client.ts";
import { volumeIdOf, volumeLvName } from "../../base/ids.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import type { VolumeRequest } from "../inventory/volume.ts";
import { ImportedVolumes } from "./imported_volumes.ts";

const NAME = "pvc-ffd618dd-c9f2-4593-876b-bf6d5eefcf88";
const ID = volumeIdOf(NAME);
const SIZE = 32n << 20n;
const USED = `denolith.used=test:${ID}:`;

/** Creates a machine with an LV of somebody else, which has a tag of an administrator. */
async function setUp({ type = "ext4" } = {}) {
  const machine = new FakeMachine();
  const group = machine.addGroup("lvmvg", 1n << 30n);
  const lv = await addForeignLv(machine, { group: "lvmvg", name: NAME, bytes: SIZE, type });
  lv.tags.add("backup");
  const lvm = new Lvm(machine);
  const finder = new VolumeFinder({ driver: "test" });
  const imported = new ImportedVolumes({ lvm, finder, onChange: () => {} });
  const from = { groupUuid: group.uuid, name: NAME };
  const request = (more: Partial<VolumeRequest> = {}) =>
    namedRequest(NAME, SIZE, { format: { state: "unformatted", type: "ext4" }, ...more });
  return { machine, group, lv, lvm, finder, imported, from, request };
}

/** Runs a command of an administrator. */
async function run(machine: FakeMachine, ...args: string[]): Promise<void> {
  assertEquals((await machine.run({ program: "lvm", args, mutates: true })).code, 0, args.join(" "));
}

Deno.test("import() makes the LV of somebody else a volume with data, under the driver's name", async () => {
  const { lv, group, lvm, finder, imported, from, request } = await setUp();
  const { uuid } = lv;
  for (const _ of [1, 2]) await imported.import(request({ erase: "none", shared: false }), from);
  const { tags, used, size } = finder.require(await lvm.report(), ID);
  assertEquals([lv.name, lv.uuid, used, size], [volumeLvName(ID), uuid, true, SIZE]);
  assertEquals(tags.format, { state: "formatted", type: "ext4", uuid: FOREIGN_UUID.toLowerCase() });
  assertEquals([tags.erase, tags.shared, [...lv.content.data]], ["none", false, ["letters"]]);
  assertEquals([...group.tags], [USED + uuid]);
});

Deno.test("import() of a block volume records no filesystem, and that there is data", async () => {
  const { lv, group, lvm, finder, imported, from, request } = await setUp();
  await imported.import(request({ format: { state: "raw" } }), from);
  assertEquals(finder.require(await lvm.report(), ID).tags.format, { state: "raw" });
  assertEquals([...group.tags], [USED + lv.uuid]);
});

Deno.test("import() of an LV without a signature lets its first use format it, and records that it may have data", async () => {
  const { lv, group, lvm, finder, imported, from, request } = await setUp();
  lv.content.signatures = [];
  await imported.import(request(), from);
  assertEquals(finder.require(await lvm.report(), ID).tags.format, { state: "unformatted", type: "ext4" });
  assertEquals([...group.tags], [USED + lv.uuid]);
});

for (const other of ["linux_raid_member", "LVM2_member", "zfs_member", "crypto_LUKS", "bcache", "drbd"]) {
  Deno.test(`import() refuses an LV that has a filesystem and is part of something else: ${other}`, async () => {
    const { lv, imported, from, request } = await setUp();
    lv.content.signatures.push({ type: other, uuid: "another" });
    const error = await assertRejects(() => imported.import(request(), from), StorageError, other);
    assertEquals([error.kind, [...lv.tags]], ["ForeignData", ["backup"]]);
  });
}

Deno.test("import() accepts a further signature that is nobody's", async () => {
  const { lv, imported, from, request } = await setUp();
  lv.content.signatures.push({ type: "iso9660", uuid: "2020-01-01" });
  await imported.import(request(), from);
  assertEquals(lv.name, volumeLvName(ID));
});

Deno.test("return() leaves the LV as it was, and can be repeated", async () => {
  const { machine, lv, group, imported, from, request } = await setUp();
  await imported.import(request({ erase: "none", shared: false }), from);
  await run(machine, "lvchange", "--addtag", "denolith.held", `lvmvg/${lv.name}`);
  for (const _ of [1, 2]) await imported.return(ID, from);
  assertEquals([lv.name, [...lv.tags], [...group.tags]], [NAME, ["backup"], []]);
  assertEquals([...lv.content.data], ["letters"]);
});

/** Runs an operation that dies at a moment of a command. @returns the number of moments of the command; 0 if there is none */
async function dieAt(machine: FakeMachine, index: number, moment: number, run: () => Promise<void>): Promise<number> {
  let [commands, moments] = [0, 0];
  machine.fault = async (command) => {
    if (!command.mutates || commands++ !== index) return undefined;
    machine.fault = undefined;
    const all = crashMomentsOf(command);
    moments = all.length;
    await all[moment]!.effect(machine, command, () => machine.run(command));
    throw new Error("dead");
  };
  await run().catch(() => {});
  machine.fault = undefined;
  return moments;
}

for (const method of ["import", "return"] as const) {
  Deno.test(`${method}() goes on where it died, before, during and after each of its commands`, async () => {
    let kills = 0;
    for (let [index, moment] = [0, 0];;) {
      const { machine, lv, group, imported, from, request } = await setUp();
      if (method === "return") await imported.import(request(), from);
      const work = () => method === "import" ? imported.import(request(), from) : imported.return(ID, from);
      const moments = await dieAt(machine, index, moment, work);
      await work();
      const expected = method === "import" ? [volumeLvName(ID), 4, 1] : [NAME, 1, 0];
      assertEquals([lv.name, lv.tags.size, group.tags.size], expected, `command ${index}, moment ${moment}`);
      assertEquals([...lv.content.data], ["letters"]);
      if (moments === 0) break;
      kills++;
      [index, moment] = moment + 1 < moments ? [index, moment + 1] : [index + 1, 0];
    }
    assert(kills >= 6, `${kills} kills`);
  });
}

Deno.test("inspect() says what uses an LV, and import() and return() leave it then", async () => {
  const { machine, lv, imported, from, request } = await setUp();
  assertEquals((await imported.inspect(request(), from)).user, undefined);
  {
    using _open = machine.openDevice(`/dev/mapper/lvmvg-${NAME.replaceAll("-", "--")}`);
    assertStringIncludes((await imported.inspect(request(), from)).user!, "a program that has /dev/mapper/lvmvg-pvc--");
    const error = await assertRejects(() => imported.import(request(), from), StorageError, "a program that has");
    assertEquals([error.kind, [...lv.tags]], ["InUse", ["backup"]]);
  }
  await imported.import(request(), from);
  using _open = machine.openDevice(`/dev/mapper/lvmvg-${lv.name.replaceAll("-", "--")}`);
  const error = await assertRejects(() => imported.return(ID, from), StorageError, "a program that has");
  assertEquals([error.kind, lv.name], ["InUse", volumeLvName(ID)]);
});

Deno.test("import() leaves an LV that is opened after it was judged", async () => {
  const { machine, lv, imported, from, request } = await setUp();
  machine.fault = ({ args }) => {
    if (args[0] === "lvchange") machine.openDevice(`/dev/mapper/lvmvg-${NAME.replaceAll("-", "--")}`);
    return undefined;
  };
  const error = await assertRejects(() => imported.import(request(), from), StorageError, "was opened or changed");
  assertEquals([error.kind, lv.name, [...lv.tags]], ["Busy", NAME, ["backup"]]);
});

/** What prevents an import, and the words for it. */
const REFUSALS: Readonly<
  Record<string, {
    prepare?: (s: Awaited<ReturnType<typeof setUp>>) => unknown;
    request?: Partial<VolumeRequest>;
    message: string;
  }>
> = {
  "another group of the name": {
    prepare: ({ group }) => group.uuid = "another",
    message: "this node has no volume group with the UUID",
  },
  "no such LV": { prepare: ({ lv }) => lv.name = "renamed", message: "there is no such logical volume" },
  "an LV of a driver": {
    prepare: ({ lv }) => lv.tags.add("denolith=other"),
    message: "it belongs to the driver other already",
  },
  "an inactive LV": { prepare: ({ lv }) => lv.active = false, message: "it is not active: lvchange --activate y" },
  "an LV with snapshots": {
    prepare: ({ machine }) =>
      run(machine, "lvcreate", "--snapshot", "--yes", "--name", "s1", "--size", `${SIZE}b`, `lvmvg/${NAME}`),
    message: "it is the origin of the snapshots s1",
  },
  "a smaller LV": {
    request: { range: { required: 2n * SIZE } },
    message: "it has 32 MiB (requested: at least 64 MiB)",
  },
  "another filesystem": {
    request: { format: { state: "unformatted", type: "xfs" } },
    message: `xfs is expected, but it holds ext4 with the UUID ${FOREIGN_UUID}`,
  },
  "a thick LV for a thin volume": {
    request: { thin: { poolSize: { percent: 80n } } },
    message: "it is thick (requested: thin, in the pool lvmvg_thinpool)",
  },
  "another layout": {
    request: { layout: { type: "raid1", mirrors: 1 } },
    message: "it is linear (requested: raid1",
  },
};

for (const [what, { prepare, request: more = {}, message }] of Object.entries(REFUSALS)) {
  Deno.test(`${what} is not imported`, async () => {
    const s = await setUp();
    await prepare?.(s);
    const before = [...s.lv.tags];
    for (const method of ["inspect", "import"] as const) {
      await assertRejects(() => s.imported[method](s.request(more), s.from) as Promise<unknown>, StorageError, message);
    }
    assertEquals([...s.lv.tags], before);
  });
}

Deno.test("a thin LV is imported in the pool of somebody else, which stays that one's", async () => {
  const { machine, lvm, finder, imported, group, request } = await setUp();
  await run(
    machine,
    ...["lvcreate", "--yes", "--type", "thin-pool", "--zero", "y", "--size", `${64n << 20n}b`, "--name"],
    ...["lvmvg_thinpool", "lvmvg"],
  );
  const name = "pvc-thin";
  const thin = await addForeignLv(machine, {
    ...{ group: "lvmvg", name, bytes: SIZE },
    args: ["--type", "thin", "--thinpool", "lvmvg_thinpool", "--virtualsize", `${SIZE}b`],
  });
  await imported.import(request({ thin: { poolSize: { percent: 80n } } }), { groupUuid: group.uuid, name });
  assertEquals(finder.require(await lvm.report(), ID).lv.pool, "lvmvg_thinpool");
  const pool = group.lvs.find((each) => each.name === "lvmvg_thinpool")!;
  assertEquals([[...pool.tags], [...thin.content.data]], [[], ["letters"]]);
});

Deno.test("a volume that came to another group, by a move there and back, is not returned, and stays as it is", async () => {
  const { lv, lvm, finder, imported, from, request } = await setUp();
  await imported.import(request(), from);
  const tags = [...lv.tags];
  const other = { ...from, groupUuid: "another" };
  const why = "it was in another volume group before it was moved";
  for (const call of [() => imported.inspectReturn(request(), other), () => imported.return(ID, other)]) {
    assertEquals((await assertRejects(call, StorageError, why)).kind, "FailedPrecondition");
  }
  assertEquals([lv.name, [...lv.tags]], [volumeLvName(ID), tags]);
  assertEquals(finder.locate(await lvm.report(), ID).state, "present");
  assertEquals(await imported.isReturned(ID, from, lv.uuid), false);
  await imported.return(ID, from);
  assertEquals(await imported.isReturned(ID, from, lv.uuid), true);
  assertEquals(await imported.isReturned(ID, from, "another"), false);
});
