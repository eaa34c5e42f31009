import { assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import { foreignLv } from "../../tests/fake/machine/foreign_lv.ts";
import { failure, type FakeGroup, type FakeLv, FakeMachine, ok } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { type Command, describeCommand } from "../exec.ts";
import { Lvm } from "../client/client.ts";
import { volumeIdOf } from "../../base/ids.ts";
import type { FilesystemType } from "../settings/filesystem.ts";
import { Reaper } from "../deletion/reaper.ts";
import { Encryption } from "../encryption/encryption.ts";
import { Passphrase } from "../encryption/passphrase.ts";
import { StorageError } from "../../base/error.ts";
import { StagedVolumes } from "./staged_volumes.ts";
import type { StagingWarning } from "./formatting.ts";
import { Staging } from "./staging.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Volumes } from "../volumes/volumes.ts";

const id = volumeIdOf("one");
const ACCESS = { kind: "mount", flags: [] } as const;

/** Creates a machine with a volume for a filesystem. */
async function setUpVolume(
  root = "/nowhere",
  { bytes = 32n << 20n, extentSize = 4n << 20n, type = "ext4" as FilesystemType, isEncrypted = false } = {},
) {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n, extentSize);
  const lvm = new Lvm(machine);
  const reservation = new PoolReservation(lvm);
  const reaper = new Reaper({ lvm, driver: "test", reservation, onError: () => {} });
  const finder = new VolumeFinder({ driver: "test" });
  const volumes = new Volumes({ lvm, finder, reservation, reaper });
  const format = { state: "unformatted", type, ...(isEncrypted && { luks: { state: "wanted" } as const }) } as const;
  await volumes.create(namedRequest("one", bytes, { format }));
  const [paused, warnings, errors]: [string[], string[], string[]] = [[], [], []];
  const pause = (id: string) => {
    paused.push(id);
    return Promise.resolve({ [Symbol.dispose]: () => void paused.pop() });
  };
  const options = {
    lvm,
    volumes: finder,
    scratch: "/run/denolith",
    mountRoots: [root],
    staged: new StagedVolumes(),
    trimmer: { pause },
    encryption: new Encryption(lvm, (error) => void errors.push(String(error))),
    onWarning: (_: string, { reason, message }: StagingWarning) => void warnings.push(`${reason}: ${message}`),
  };
  return { machine, volumes, paused, warnings, errors, staging: new Staging(options) };
}

/** Creates a mount root, which is removed when the test ends. */
async function createRoot() {
  const root = await Deno.realPath(await Deno.makeTempDir());
  return { root, [Symbol.asyncDispose]: () => Deno.remove(root, { recursive: true }) };
}

for (
  const [what, number, size] of [["another device", "253:9", 32 << 20], ["another size", "253:0", 31 << 20]] as const
) {
  Deno.test(`stage() touches nothing when ${what} is at the LV's path`, async () => {
    const { machine, staging } = await setUpVolume();
    const changes: string[] = [];
    machine.fault = (command) => {
      if (command.mutates) changes.push(describeCommand(command));
      if (command.program !== "lsblk") return undefined;
      return ok(JSON.stringify({ blockdevices: [{ name: "dm-9", "maj:min": number, size, ro: false }] }));
    };
    const staged = staging.stage(id, "/nowhere/staged", { kind: "mount", flags: [] });
    const error = await assertRejects(() => staged, StorageError, "verifying /dev/mapper/data-vol");
    assertEquals([error.kind, changes], ["FailedPrecondition", []]);
  });
}

Deno.test("stage() makes an xfs that an old kernel mounts", async () => {
  await using folder = await createRoot();
  const { machine, staging } = await setUpVolume(folder.root, { bytes: 300n << 20n, type: "xfs" });
  machine.host.kernel = "4.18.0-553.el8_10.x86_64";
  await staging.stage(id, `${folder.root}/staged`, { kind: "mount", flags: [] });
  assertEquals(machine.mounts.at(-1)!.fsType, "xfs");
});

/** What does not prevent that a filesystem is mounted, and the warning about it. */
const TROUBLES: Record<
  string,
  { type?: FilesystemType; make: (machine: FakeMachine, lv: FakeLv) => unknown; warning: RegExp }
> = {
  "a further signature": {
    make: (_, { content }) => content.signatures.push({ type: "gpt", uuid: "" }),
    warning: /^FurtherSignatures: \/dev\/mapper\/data-vol\S+ holds gpt beside its filesystem, which is mounted as ext4/,
  },
  "a further signature before its own": {
    make: (_, { content }) => content.signatures.unshift({ type: "iso9660", uuid: "2020-01-01" }),
    warning: /^FurtherSignatures: .* holds iso9660 with the UUID 2020-01-01 beside/,
  },
  "another mount namespace": {
    make: ({ host }, lv) => host.mountedElsewhere.add(lv),
    warning:
      /^FilesystemNotChecked: .*\/dev\/mapper\/data-vol\S+ is in use\.\).* grep data-vol\S+ \/proc\/\[0-9\]\*\/mountinfo/,
  },
  "a filesystem that refuses to be resized": {
    make: (machine) =>
      machine.fault = ({ program }) => program === "resize2fs" ? failure(1, "resize2fs: no") : undefined,
    warning: /^FilesystemNotResized: .*resize2fs \S+: exit 1: resize2fs: no/,
  },
  "a program of resizing that is killed": {
    make: (machine) => machine.fault = ({ program }) => program === "resize2fs" ? failure(137, "") : undefined,
    warning: /^FilesystemNotResized: .*exit 137 \(SIGKILL, as when memory runs out\)/,
  },
  "a balance that was interrupted": {
    type: "btrfs",
    make: ({ host }, lv) => host.balancing.add(lv),
    warning: /^FilesystemNotResized: .*another exclusive operation 'balance' in progress/,
  },
};

for (const [trouble, { type = "ext4", make, warning }] of Object.entries(TROUBLES)) {
  Deno.test(`stage() mounts a volume with ${trouble}, and reports it each time`, async () => {
    await using folder = await createRoot();
    const { machine, volumes, staging, warnings } = await setUpVolume(folder.root, { bytes: 256n << 20n, type });
    const [stagingPath, target] = [`${folder.root}/staged`, `${folder.root}/pod`];
    const access = { kind: "mount", flags: [] } as const;
    const stage = () => staging.stage(id, stagingPath, access);
    const mounted = () => machine.mounts.filter(({ target }) => target.startsWith(folder.root)).length;
    await stage();
    await staging.unstage(id, stagingPath);
    await volumes.expand(id, { required: 264n << 20n });
    make(machine, machine.groups[0]!.lvs[0]!);
    for (const count of [1, 2]) {
      await stage();
      assertEquals([mounted(), warnings.length], [1, count], warnings.join("\n"));
      assertMatch(warnings.at(-1)!, warning);
      await staging.publish(id, { stagingPath, target, access, readOnly: false, exclusive: false });
      await staging.unpublish(id, target);
      await staging.unstage(id, stagingPath);
    }
  });
}

Deno.test("expand() of a filesystem that refuses is FailedPrecondition, and of a program that is killed is not", async () => {
  await using folder = await createRoot();
  const { machine, volumes, staging } = await setUpVolume(folder.root);
  const path = `${folder.root}/staged`;
  await staging.stage(id, path, { kind: "mount", flags: [] });
  await volumes.expand(id, { required: 64n << 20n });
  for (const [code, kind] of [[1, "FailedPrecondition"], [137, "CommandFailed"]] as const) {
    machine.fault = ({ program }) => program === "resize2fs" ? failure(code, "resize2fs: no") : undefined;
    const error = await assertRejects(() => staging.expand(id, path, 64n << 20n), StorageError, "resize2fs: no");
    assertEquals(error.kind, kind);
  }
});

Deno.test("stage() waits for a resize that outlasts its call, and leaves the mount to it", async () => {
  await using folder = await createRoot();
  const { machine, volumes, staging, warnings } = await setUpVolume(folder.root);
  const stage = () => staging.stage(id, `${folder.root}/staged`, { kind: "mount", flags: [] });
  await stage();
  await staging.unstage(id, `${folder.root}/staged`);
  await volumes.expand(id, { required: 64n << 20n });
  machine.fault = ({ program }) => {
    if (program !== "resize2fs") return undefined;
    throw new StorageError("StillRunning", "resize2fs: still running", { completion: Promise.resolve() });
  };
  assertEquals((await assertRejects(stage, StorageError)).kind, "StillRunning");
  assertEquals([machine.mounts.at(-1)!.target, warnings], [`${folder.root}/staged`, []]);
});

Deno.test("publish() leaves no mount when mount(8) binds, but cannot set the flags", async () => {
  const root = await Deno.realPath(await Deno.makeTempDir());
  try {
    const { machine, staging } = await setUpVolume(root);
    const access = { kind: "mount", flags: [] } as const;
    await staging.stage(id, `${root}/staged`, access);
    machine.fault = async (command) => {
      if (command.program !== "mount") return undefined;
      machine.fault = undefined;
      await machine.run({ ...command, args: ["-o", "bind", ...command.args.slice(-2)] });
      return failure(32, "mount: cannot remount read-only");
    };
    const publish = () =>
      staging.publish(id, {
        ...{ stagingPath: `${root}/staged`, target: `${root}/pod`, access, readOnly: true, exclusive: false },
      });
    await assertRejects(publish, StorageError, "cannot remount read-only");
    const mounted = () =>
      machine.mounts.filter(({ target }) => target === `${root}/pod`).map((mount) => mount.readOnly);
    assertEquals(mounted(), []);
    await publish();
    assertEquals(mounted(), [true]);
  } finally {
    await Deno.remove(root, { recursive: true });
  }
});

Deno.test("publish() undoes no mount whose command outlasts the call", async () => {
  await using folder = await createRoot();
  const { machine, staging } = await setUpVolume(folder.root);
  const [stagingPath, target, access] = [`${folder.root}/staged`, `${folder.root}/pod`, ACCESS];
  await staging.stage(id, stagingPath, access);
  const unmounted: string[] = [];
  machine.fault = ({ program, args }) => {
    if (program === "umount") unmounted.push(args.join(" "));
    if (program !== "mount") return undefined;
    throw new StorageError("StillRunning", "mount hangs", { completion: new Promise(() => {}) });
  };
  const publish = () => staging.publish(id, { stagingPath, target, access, readOnly: false, exclusive: false });
  await assertRejects(publish, StorageError, "mount hangs");
  assertEquals(unmounted, []);
});

Deno.test("a passphrase that was refused is tried again after the volume was unstaged", async () => {
  await using folder = await createRoot();
  const { staging, errors } = await setUpVolume(folder.root, { isEncrypted: true });
  const [stagingPath, target] = [`${folder.root}/staged`, `${folder.root}/pod`];
  const passphrases = { passphrase: new Passphrase("wrong"), previous: new Passphrase("wrong, too") };
  const publication = { stagingPath, target, access: ACCESS, readOnly: false, exclusive: false, passphrases };
  for (const refusals of [1, 2]) {
    await staging.stage(id, stagingPath, ACCESS, { passphrase: new Passphrase("right") });
    for (const _ of ["now", "a minute later"]) await staging.publish(id, publication);
    assertEquals(errors.length, refusals, errors.join());
    await staging.unpublish(id, target);
    await staging.unstage(id, stagingPath);
  }
});

Deno.test("publish() does not make a target read-only on which files are open for writing", async () => {
  const root = await Deno.realPath(await Deno.makeTempDir());
  try {
    const { machine, staging } = await setUpVolume(root);
    const access = { kind: "mount", flags: [] } as const;
    await staging.stage(id, `${root}/staged`, access);
    const publish = (readOnly: boolean) =>
      staging.publish(id, { stagingPath: `${root}/staged`, target: `${root}/pod`, access, readOnly, exclusive: false });
    await publish(false);
    machine.busyTargets.add(`${root}/pod`);
    const error = await assertRejects(() => publish(true), StorageError, "is published at");
    assertEquals([error.kind, machine.mounts.at(-1)!.readOnly], ["AlreadyExists", false]);
  } finally {
    await Deno.remove(root, { recursive: true });
  }
});

Deno.test("unstage() pauses the trimming of its volume while it is unmounted: fstrim would keep the mount in use", async () => {
  const root = await Deno.realPath(await Deno.makeTempDir());
  try {
    const { machine, paused, staging } = await setUpVolume(root);
    await staging.stage(id, `${root}/staged`, { kind: "mount", flags: [] });
    const during: string[][] = [];
    machine.fault = ({ program }) => void (program === "umount" && during.push([...paused]));
    await staging.unstage(id, `${root}/staged`);
    assertEquals([during, paused], [[[id]], []]);
  } finally {
    await Deno.remove(root, { recursive: true });
  }
});

Deno.test("publish() does not count the mounts that appear outside the mount roots too, as a shared root mirrors them", async () => {
  await using folder = await createRoot();
  const { machine, staging } = await setUpVolume(folder.root);
  const [stagingPath, target] = [`${folder.root}/staged`, `${folder.root}/pod`];
  const access = { kind: "mount", flags: [] } as const;
  const publication = { stagingPath, access, readOnly: false, exclusive: true };
  await staging.stage(id, stagingPath, access);
  machine.mounts.push({ ...machine.mounts.at(-1)!, target: "/mirror/staged" });
  await staging.publish(id, { ...publication, target });
  machine.mounts.push({ ...machine.mounts.at(-1)!, target: "/mirror/pod" });
  await staging.publish(id, { ...publication, target });
  const another = () => staging.publish(id, { ...publication, target: `${folder.root}/other` });
  assertEquals((await assertRejects(another, StorageError, `published at ${target}`)).kind, "FailedPrecondition");
});

Deno.test("stage() formats nothing when the last bytes of the device cannot be read", async () => {
  for (const bytes of [32n << 20n, (32n << 20n) + 4096n, 4096n]) {
    const { machine, staging } = await setUpVolume("/nowhere", { bytes, extentSize: 4096n });
    const { lv } = machine.allLvs()[0]!;
    const changes: string[] = [];
    machine.fault = (command) => {
      if (command.mutates && !["lvm", "sync"].includes(command.program)) changes.push(describeCommand(command));
      return readsLastBytes(command, lv.size) ? failure(1, "dd: error reading: Input/output error") : undefined;
    };
    const staged = staging.stage(id, "/nowhere/staged", { kind: "mount", flags: [] });
    await assertRejects(() => staged, StorageError, "Input/output error");
    assertEquals([changes, lv.content.signatures], [[], []]);
  }
});

Deno.test("stage() records that the volume is in use before anything is written to its device", async () => {
  await using folder = await createRoot();
  for (const kind of ["mount", "block"] as const) {
    const { machine, staging } = await setUpVolume(folder.root);
    const [group] = machine.groups as [FakeGroup];
    const isRecorded = () => [...group.tags].some((tag) => tag.startsWith("denolith.used"));
    if (kind === "block") setRaw(group.lvs[0]!);
    const unrecorded: string[] = [];
    machine.fault = (command) => {
      if (command.mutates && command.program !== "lvm" && !isRecorded()) unrecorded.push(describeCommand(command));
      return undefined;
    };
    assertEquals(isRecorded(), false);
    await staging.stage(id, `${folder.root}/${kind}`, kind === "block" ? { kind } : { kind, flags: [] });
    assertEquals([isRecorded(), unrecorded], [true, []]);
  }
});

Deno.test("publish() activates a block volume that an interrupted expansion left inactive, and no other", async () => {
  await using folder = await createRoot();
  const { machine, staging } = await setUpVolume(folder.root);
  const [group] = machine.groups as [FakeGroup];
  setRaw(group.lvs[0]!);
  const [stagingPath, target] = [`${folder.root}/staged`, `${folder.root}/pod`];
  const publish = () =>
    staging.publish(id, { stagingPath, target, access: { kind: "block" }, readOnly: false, exclusive: false });
  await assertRejects(publish, StorageError, "not staged");
  await staging.stage(id, stagingPath, { kind: "block" });
  const deactivate = ["lvchange", "--activate", "n", `data/${group.lvs[0]!.name}`];
  assertEquals((await machine.run({ program: "lvm", args: deactivate, mutates: true })).code, 0);
  await publish();
  assertEquals([group.lvs[0]!.active, machine.mounts.at(-1)!.target], [true, target]);
});

Deno.test("stage() says that the pool of a thin volume lacks it", async () => {
  await using folder = await createRoot();
  const { machine, volumes, staging } = await setUpVolume(folder.root);
  await volumes.create(namedRequest("thin", 32n << 20n, { thin: { poolSize: { percent: 50n } } }));
  Object.assign(machine.groups[0]!.lvs.at(-1)!, { active: false, pending: true });
  const stage = () => staging.stage(volumeIdOf("thin"), `${folder.root}/staged`, { kind: "mount", flags: [] });
  const { kind, message } = await assertRejects(stage, StorageError);
  assertEquals(kind, "FailedPrecondition");
  assertStringIncludes(message, "thin pool data/data_thinpool does not contain it");
});

Deno.test("stage() refuses a device that has other signatures, and not the recorded filesystem", async () => {
  await using folder = await createRoot();
  const { machine, staging } = await setUpVolume(folder.root);
  const path = `${folder.root}/staged`;
  const stage = () => staging.stage(id, path, { kind: "mount", flags: [] });
  await stage();
  await staging.unstage(id, path);
  const { content } = machine.groups[0]!.lvs[0]!;
  const { uuid } = content.signatures[0]!;
  const other = { type: "ext4", uuid: "00000000-0000-4000-8000-000000000000" };
  for (const signatures of [[], [other], [{ type: "gpt", uuid: "" }, other], [{ type: "ext3", uuid }]]) {
    content.signatures = signatures;
    assertEquals((await assertRejects(stage, StorageError, "but holds")).kind, "ForeignData");
  }
});

for (const kernel of ["mounted", "refused"] as const) {
  Deno.test(`stage() mounts its own btrfs while one of the same UUID on a block volume is ${kernel} in its place`, async () => {
    await using folder = await createRoot();
    const { machine, staging } = await setUpVolume(folder.root, { bytes: 256n << 20n, type: "btrfs" });
    const path = `${folder.root}/staged`;
    const stage = () => staging.stage(id, path, { kind: "mount", flags: [] });
    await stage();
    await staging.unstage(id, path);
    const [own] = machine.groups[0]!.lvs as [FakeLv];
    const twin = foreignLv(machine, { group: "data", name: "twin", bytes: 64n << 20n, type: "btrfs" });
    twin.content.signatures = own.content.signatures;
    machine.host.scannedBtrfs.set(twin, kernel);
    await stage();
    const mounted = () => machine.mounts.filter(({ target }) => target === path).map(({ lv }) => lv?.name);
    assertEquals(mounted(), [own.name]);
    await staging.unstage(id, path);

    // udev finds it again and again
    machine.fault = ({ args }) => args.includes("--forget") ? ok() : undefined;
    machine.host.scannedBtrfs.set(twin, kernel);
    await assertRejects(
      stage,
      StorageError,
      kernel === "mounted" ? "/dev/mapper/data-twin in its place" : "wrong fs type",
    );
    assertEquals(mounted(), []);
  });
}

Deno.test("unstage() and unpublish() take nothing off when another filesystem is mounted on top", async () => {
  await using folder = await createRoot();
  const { machine, staging } = await setUpVolume(folder.root);
  const [stagingPath, target] = [`${folder.root}/staged`, `${folder.root}/pod`];
  const access = { kind: "mount", flags: [] } as const;
  await staging.stage(id, stagingPath, access);
  await staging.publish(id, { stagingPath, target, access, readOnly: false, exclusive: false });
  const foreign = { source: "/dev/vdz", fsType: "ext4", root: "/", readOnly: false, deviceNumber: "254:99" };
  for (const [path, remove] of [[stagingPath, "unstage"], [target, "unpublish"]] as const) {
    machine.mounts.push({ ...foreign, target: path });
    const before = [...machine.mounts];
    const error = await assertRejects(() => staging[remove](id, path), StorageError, "/dev/vdz is mounted");
    assertEquals([error.kind, machine.mounts], ["FailedPrecondition", before]);
    machine.mounts.pop();
  }
});

Deno.test("expand() resizes no filesystem beyond its logical volume, and none that is mounted read-only everywhere", async () => {
  await using folder = await createRoot();
  const { machine, staging } = await setUpVolume(folder.root);
  const path = `${folder.root}/staged`;
  await staging.stage(id, path, { kind: "mount", flags: ["ro"] });
  const changes: string[] = [];
  machine.fault = (command) => void (command.mutates && changes.push(describeCommand(command)));
  const tooLarge = await assertRejects(() => staging.expand(id, path, 64n << 20n), StorageError, "extend it first");
  const readOnly = await assertRejects(() => staging.expand(id, path, 32n << 20n), StorageError, "are read-only");
  assertEquals([tooLarge.kind, readOnly.kind, changes], ["OutOfRange", "FailedPrecondition", []]);
});

Deno.test("publish() reports why the missing flags of a mount cannot be set, unless files are open on it", async () => {
  await using folder = await createRoot();
  const { machine, staging } = await setUpVolume(folder.root);
  const [stagingPath, target] = [`${folder.root}/staged`, `${folder.root}/pod`];
  const access = { kind: "mount", flags: [] } as const;
  await staging.stage(id, stagingPath, access);
  const publish = (readOnly: boolean) =>
    staging.publish(id, { stagingPath, target, access, readOnly, exclusive: false });
  await publish(false);
  machine.fault = ({ program }) => program === "mount" ? failure(32, "mount: Input/output error") : undefined;
  assertEquals((await assertRejects(() => publish(true), StorageError, "Input/output error")).kind, "CommandFailed");
});

for (const kind of ["mount", "block"] as const) {
  Deno.test(`unpublish() and unstage() find the ${kind} of a volume whose LV an administrator has renamed`, async () => {
    await using folder = await createRoot();
    const { machine, staging } = await setUpVolume(folder.root);
    const [stagingPath, target] = [`${folder.root}/staged`, `${folder.root}/pod`];
    const { lv } = machine.allLvs()[0]!;
    if (kind === "block") setRaw(lv);
    const access = kind === "block" ? { kind } : { kind, flags: [] };
    await staging.stage(id, stagingPath, access);
    await staging.publish(id, { stagingPath, target, access, readOnly: false, exclusive: false });
    lv.name = "renamed";
    for (const mount of machine.mounts.filter((mount) => mount.lv === lv)) {
      mount.source = mount.source.replace(/data-vol--[^[]*/, "data-renamed"); // findmnt shows the present name
    }
    await staging.unpublish(id, target);
    await staging.unstage(id, stagingPath);
    assertEquals(machine.mounts.filter((mount) => mount.lv === lv), []);
  });
}

/** Makes an LV one of a block volume. */
function setRaw(lv: FakeLv): void {
  const format = [...lv.tags].find((tag) => tag.startsWith("denolith.fs="))!;
  lv.tags.delete(format);
  lv.tags.add("denolith.fs=raw");
}

/** Reports whether a command is dd that reads the last bytes of a device. */
function readsLastBytes({ program, args }: Command, deviceBytes: bigint): boolean {
  if (program !== "dd") return false;
  const values = new Map(args.map((arg) => arg.split("=", 2) as [string, string]));
  const [block, skip, count] = ["bs", "skip", "count"].map((name) => BigInt(values.get(name)!)) as [
    ...[bigint, bigint, bigint],
  ];
  const start = values.get("iflag")?.split(",").includes("skip_bytes") ? skip : skip * block;
  return start < deviceBytes && start + block * count >= deviceBytes;
}

Deno.test("stage() and expand() make the node of an active device that has none", async () => {
  await using folder = await createRoot();
  const { machine, volumes, staging } = await setUpVolume(folder.root);
  const path = `${folder.root}/staged`;
  const stage = () => staging.stage(id, path, { kind: "mount", flags: [] });
  const lv = machine.groups[0]!.lvs[0]!;
  await stage();
  await volumes.expand(id, { required: 48n << 20n });
  machine.host.missingDeviceNodes.add(lv);
  assertEquals(await staging.expand(id, path, 48n << 20n), 48n << 20n);
  assertEquals(lv.content.filesystemBytes, 48n << 20n);

  await staging.unstage(id, path);
  machine.host.missingDeviceNodes.add(lv);
  await stage();
  assertEquals(machine.mounts.at(-1)?.target, path);
});

Deno.test("unpublish() lets a device without node be written to again that was published read-only", async () => {
  await using folder = await createRoot();
  const { machine, volumes, staging } = await setUpVolume(folder.root);
  const block = volumeIdOf("block");
  await volumes.create(namedRequest("block", 32n << 20n, { format: { state: "raw" } }));
  const lv = machine.groups[0]!.lvs[1]!;
  const [stagingPath, target] = [`${folder.root}/staged`, `${folder.root}/pod`];
  const access = { kind: "block" } as const;
  await staging.stage(block, stagingPath, access);
  await staging.publish(block, { stagingPath, target, access, readOnly: true, exclusive: false });
  assertEquals(lv.setReadOnly, true);
  machine.host.missingDeviceNodes.add(lv);
  await staging.unpublish(block, target);
  assertEquals([lv.setReadOnly, machine.mounts.some((mount) => mount.target === target)], [false, false]);
});
