import { assert, assertEquals, assertRejects } from "@std/assert";
import { FakeClock } from "../../tests/fake/clock.ts";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { Lvm } from "../client/client.ts";
import { StorageError } from "../../base/error.ts";
import type { Command, Output } from "../exec.ts";
import { volumeIdOf, volumeLvName } from "../../base/ids.ts";
import { verifyDevice } from "../host/device.ts";
import { readMounts } from "../host/mounts.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { Encryption, type OpenOptions } from "./encryption.ts";
import { closeMapping, contentDevice, mappingName, mappingPath } from "./mapping.ts";
import { Passphrase } from "./passphrase.ts";

const DRIVER = "d";
const IDS = [volumeIdOf("one"), volumeIdOf("two")] as const;

/** Returns a machine with an encrypted volume for each id, which were never used. */
async function machineWithVolumes() {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const lvm = new Lvm(machine);
  for (const id of IDS) {
    const tags = [`denolith=${DRIVER}`, `denolith.volume=${id}`, "denolith.fs=luks2:wanted:raw"];
    const args = ["lvcreate", "--yes", "--zero", "y", "--wipesignatures", "y", "--size", "33554432b"];
    const addTags = tags.flatMap((tag) => ["--addtag", tag]);
    await machine.run({
      program: "lvm",
      args: [...args, "--name", volumeLvName(id), ...addTags, "data"],
      mutates: true,
    });
  }
  return { machine, lvm, encryption: new Encryption(lvm), finder: new VolumeFinder({ driver: DRIVER }) };
}

type Parts = Awaited<ReturnType<typeof machineWithVolumes>>;

async function open({ machine, lvm, encryption, finder }: Parts, id = IDS[0], passphrase = "p") {
  const volume = finder.require(await lvm.report(), id);
  const options: OpenOptions = {
    device: await verifyDevice(machine, volume.lv),
    passphrase: new Passphrase(passphrase),
    mounts: await readMounts(machine),
    recordUse: () => Promise.resolve(),
  };
  return await encryption.open(volume, options);
}

Deno.test("one key is derived at a time, since each derivation takes much memory", async () => {
  const parts = await machineWithVolumes();
  let [running, most] = [0, 0];
  const run = parts.machine.run.bind(parts.machine);
  parts.machine.run = async (command: Command): Promise<Output> => {
    const derives = command.program === "cryptsetup" && command.input !== undefined;
    if (derives) most = Math.max(most, ++running);
    try {
      if (derives) await new Promise((resolve) => queueMicrotask(() => resolve(undefined)));
      return await run(command);
    } finally {
      if (derives) running--;
    }
  };
  const opened = await Promise.all(IDS.map((id) => open(parts, id)));
  assertEquals(opened.map(({ device }) => device.name), IDS.map(mappingName));
  assertEquals([running, most], [0, 1]);
});

Deno.test("a derivation that fails does not keep the next one from being made", async () => {
  const parts = await machineWithVolumes();
  await open(parts);
  const [wrong, other] = await Promise.allSettled([open(parts, IDS[0], "wrong"), open(parts, IDS[1])]);
  assertEquals([wrong!.status, other!.status], ["rejected", "fulfilled"]);
});

Deno.test("a derivation whose disk hangs keeps the volumes on other disks closed for a while only", async () => {
  const parts = await machineWithVolumes();
  const clock = new FakeClock();
  const encryption = new Encryption(parts.lvm, undefined, undefined, clock);
  parts.machine.fault = ({ program, args }) => {
    if (program !== "cryptsetup" || args[0] !== "luksFormat") return undefined;
    parts.machine.fault = undefined;
    throw new StorageError("StillRunning", "cryptsetup hangs", { completion: new Promise(() => {}) });
  };
  await assertRejects(() => open({ ...parts, encryption }), StorageError, "cryptsetup hangs");
  let isOpen = false;
  const opening = open({ ...parts, encryption }, IDS[1]).then(() => isOpen = true);
  await clock.advance(99_000);
  assertEquals(isOpen, false, "a derivation may still take its memory");
  await clock.advance(1_000);
  await opening;
});

Deno.test("changePassphrase() fails while cryptsetup still changes the header, so that nobody else begins to", async () => {
  const parts = await machineWithVolumes();
  await open(parts, IDS[0], "old");
  for (const command of ["luksAddKey", "luksKillSlot"]) {
    const completion = Promise.withResolvers<void>();
    parts.machine.fault = ({ program, args }) => {
      if (program !== "cryptsetup" || args[0] !== command) return undefined;
      throw new StorageError("StillRunning", `${command} hangs`, { completion: completion.promise });
    };
    const passphrases = { passphrase: new Passphrase("new"), previous: new Passphrase("old") };
    const find = async () => parts.finder.require(await parts.lvm.report(), IDS[0]);
    const change = () => parts.encryption.changePassphrase(IDS[0], passphrases, find);
    const error = await assertRejects(change, StorageError, `${command} hangs`);
    assertEquals(error.completion, completion.promise);
    completion.resolve();
  }
});

Deno.test("a mapping on another device under the volume's name is neither used nor closed", async () => {
  const parts = await machineWithVolumes();
  const { machine } = parts;
  await open(parts);
  const [first, second] = machine.groups[0]!.lvs;
  second!.mapping = first!.mapping;
  first!.mapping = undefined;
  await assertRejects(() => open(parts), StorageError, "close it (cryptsetup close");
  assert(second!.mapping !== undefined);
});

Deno.test("closeMapping() closes no mapping that is published, mounted or open", async () => {
  const parts = await machineWithVolumes();
  const { machine } = parts;
  await open(parts);
  const mapping = machine.groups[0]!.lvs[0]!.mapping!;
  const close = async () => await closeMapping(machine, IDS[0], await readMounts(machine));
  const node = { target: "/t", source: "devtmpfs", fsType: "devtmpfs", readOnly: false, deviceNumber: "0:5" };
  for (const root of [`/dm-${mapping.minor}`, `/mapper/${mapping.name}`]) {
    machine.mounts.push({ ...node, root, lv: mapping });
    await assertRejects(close, StorageError, "published at /t");
    machine.mounts.pop();
  }
  const opened = machine.openDevice(mappingPath(IDS[0]));
  await assertRejects(close, StorageError, "still in use");
  opened[Symbol.dispose]();
  await close();
  await close();
  assertEquals(machine.groups[0]!.lvs[0]!.mapping, undefined);
});

Deno.test("contentDevice() is the mapping of an encrypted volume, and the device of any other LV", async () => {
  const { lvm, finder } = await machineWithVolumes();
  const { lv } = finder.require(await lvm.report(), IDS[0]);
  assertEquals(contentDevice(lv), { devicePath: mappingPath(IDS[0]) });
  assertEquals(contentDevice({ ...lv, tags: [] }).devicePath, lv.devicePath);
  assertEquals(contentDevice({ ...lv, tags: ["denolith.fs=luks2:wanted:raw"] }).devicePath, lv.devicePath);
});

Deno.test("changePassphrase() tries what fails again later and later, and at once with other passphrases", async () => {
  const parts = await machineWithVolumes();
  const { machine, lvm, finder } = parts;
  await open(parts, IDS[0], "old");
  const fill = { program: "lvm", mutates: true } as const;
  const [{ free }] = await lvm.report() as unknown as [{ readonly free: bigint }];
  await machine.run({ ...fill, args: ["lvcreate", "--yes", "--name", "full", "--size", `${free}b`, "data"] });
  const errors: unknown[] = [];
  const clock = new FakeClock();
  const encryption = new Encryption(lvm, (error) => errors.push(error), undefined, clock);
  let derivations = 0;
  machine.fault = ({ program }) => void (derivations += program === "cryptsetup" ? 1 : 0);
  const isTried = async (passphrase = "new") => {
    const before = derivations;
    const passphrases = { passphrase: new Passphrase(passphrase), previous: new Passphrase("old") };
    await encryption.changePassphrase(IDS[0], passphrases, async () => finder.require(await lvm.report(), IDS[0]));
    return derivations > before;
  };
  assertEquals([await isTried(), await isTried(), await isTried()], [true, true, false]);
  const waits: number[] = [];
  for (let minutes = 0; minutes < 240; minutes++) {
    await clock.advance(60_000);
    if (await isTried()) waits.push(minutes);
  }
  const pauses = waits.map((minute, index) => minute - (waits[index - 1] ?? -1));
  assertEquals([pauses[0]! <= 2, pauses[1]! > pauses[0]!, Math.max(...pauses) <= 60], [true, true, true], `${pauses}`);
  assert(waits.length < 12, `${waits}`);
  assertEquals(errors.length, waits.length + 2);
  assert(errors.every((error) => error instanceof StorageError && error.kind === "NoSpace"));
  assertEquals(await isTried("other"), true);
  await machine.run({ ...fill, args: ["lvremove", "--yes", "data/full"] });
  assertEquals([await isTried("other"), errors.length], [true, waits.length + 3]);
  await clock.advance(24 * 3_600_000);
  assertEquals(await isTried("other"), false, "it is done");
});
