/**
 * Copies while they are under way, and what becomes of them when something goes wrong.
 *
 * @module
 */

import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { withinDeadline } from "../../base/clock.ts";
import { openMachine } from "../../lvm/machine.ts";
import { StorageError } from "../../base/error.ts";
import type { Command } from "../../lvm/exec.ts";
import { ANY_GROUP } from "../../lvm/model/groups.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { FULL_COW } from "../../lvm/settings/cow_size.ts";
import type { ContentSource } from "../../lvm/model/tags.ts";
import { DEFAULT_POOL_SIZE } from "../../lvm/pools/pool.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { failure, FakeMachine, ok } from "../fake/machine/machine.ts";
import { namedRequest } from "../fake/request.ts";

const GiB = 1n << 30n;
const MiB = 1n << 20n;

/** A machine with a block volume `original` of 768 MiB, which is two chunks, and a driver over it. */
class CopyFixture implements AsyncDisposable {
  readonly fake: FakeMachine;
  readonly machine: ReturnType<typeof openMachine>;
  /** The chunks that were started, by their offsets in blocks. */
  readonly chunkOffsets: string[] = [];
  readonly #folder: string;
  #gate: PromiseWithResolvers<void> | undefined;
  #firstChunk = Promise.withResolvers<void>();

  private constructor(fake: FakeMachine, folder: string) {
    this.fake = fake;
    this.#folder = folder;
    fake.fault = async (command) => {
      if (!isChunkCopy(command)) return undefined;
      this.chunkOffsets.push(command.args.find((arg) => arg.startsWith("skip="))!);
      this.#firstChunk.resolve();
      await this.#gate?.promise;
      return undefined;
    };
    this.machine = openMachine({
      exec: fake,
      driver: "test.denolith.dev",
      groups: ANY_GROUP,
      mountRoots: [folder],
      scratch: folder,
    });
  }

  static async open(fake = new FakeMachine()): Promise<CopyFixture> {
    const fixture = new CopyFixture(fake, await Deno.makeTempDir());
    if (fake.groups.length > 0) return fixture;
    fake.addGroup("data", 8n * GiB);
    await fixture.machine.volumes.create({ ...namedRequest("original", 768n * MiB), format: { state: "raw" } });
    fixture.lvOf("original").content.data.add("what was written");
    return fixture;
  }

  /** Starts a copy that stops at its first chunk. @returns a function that lets it continue */
  async startCopy(source: ContentSource): Promise<() => Promise<void>> {
    const gate = this.#gate = Promise.withResolvers<void>();
    const { lvm, copies } = this.machine;
    await copies.createNew(await lvm.report(), { ...copyRequest(source), source });
    await this.#firstChunk.promise;
    return async () => {
      gate.resolve();
      await this.machine.background.idle();
    };
  }

  lvOf(name: string) {
    return this.fake.allLvs().find(({ lv }) => lv.tags.has(`denolith.volume=${volumeIdOf(name)}`))!.lv;
  }

  get lvNames(): string[] {
    return this.fake.allLvs().map(({ lv }) => lv.name.replace(/-.*/, "")).sort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#gate?.resolve();
    await this.machine.background.stop();
    await Deno.remove(this.#folder);
  }
}

const originalSource: ContentSource = { kind: "volume", id: volumeIdOf("original") };
const copyId = volumeIdOf("copy");

function isChunkCopy({ program, args }: Command): boolean {
  return program === "dd" && args.includes("conv=fsync,nocreat,notrunc");
}

function copyRequest(source: ContentSource) {
  return { ...namedRequest("copy", 0n), range: { required: 0n }, format: { state: "raw" }, source } as const;
}

Deno.test("a volume that is being copied is neither deleted nor expanded, and the copy is not returned before it is complete", async () => {
  await using fixture = await CopyFixture.open();
  const { volumes } = fixture.machine;
  const finish = await fixture.startCopy(originalSource);
  const refusal = await assertRejects(() => volumes.delete(originalSource.id), StorageError, copyId);
  assertEquals(refusal.kind, "Busy");
  const expansionError = await assertRejects(
    () => volumes.expand(volumeIdOf("original"), { required: GiB }),
    StorageError,
    copyId,
  );
  assertEquals(expansionError.kind, "Busy");
  assertEquals((await assertRejects(() => volumes.get(copyId), StorageError, "still being copied")).kind, "Busy");
  assertEquals((await volumes.list()).map(({ id }) => id), [originalSource.id]);
  fixture.lvOf("original").content.data.add("written meanwhile");
  await finish();
  assertEquals([...fixture.lvOf("copy").content.data], ["what was written"]);
  assertEquals(fixture.lvNames, ["vol", "vol"]);
  assertEquals(fixture.chunkOffsets, ["skip=0", "skip=128"]);
  await volumes.delete(volumeIdOf("original"));
});

Deno.test("a snapshot that is copied is not deleted", async () => {
  await using fixture = await CopyFixture.open();
  const { snapshots, lvm } = fixture.machine;
  const id = snapshotIdOf("cut");
  await snapshots.createNew(await lvm.report(), { id, source: volumeIdOf("original"), cowSize: FULL_COW });
  const finish = await fixture.startCopy({ kind: "snapshot", id });
  assertEquals((await assertRejects(() => snapshots.delete(id), StorageError, copyId)).kind, "Busy");
  await finish();
  await snapshots.delete(id);
});

Deno.test("a volume is not expanded while another one is copied from its snapshot, which would be deactivated with it", async () => {
  await using fixture = await CopyFixture.open();
  const { snapshots, volumes, lvm } = fixture.machine;
  const id = snapshotIdOf("cut");
  await snapshots.createNew(await lvm.report(), { id, source: originalSource.id, cowSize: FULL_COW });
  const finish = await fixture.startCopy({ kind: "snapshot", id });
  const expand = () => volumes.expand(originalSource.id, { required: GiB });
  assertEquals((await assertRejects(expand, StorageError, copyId)).kind, "Busy");
  await finish();
  assertEquals((await expand()).size, GiB);
});

Deno.test("a copy continues when its source was deactivated for a moment", async () => {
  const fake = new FakeMachine();
  await using fixture = await CopyFixture.open(fake);
  const { snapshots, lvm, copies } = fixture.machine;
  const id = snapshotIdOf("cut");
  await snapshots.createNew(await lvm.report(), { id, source: originalSource.id, cowSize: FULL_COW });
  const copyFault = fake.fault!;
  fake.fault = async (command) => {
    if (command.program === "lsblk" && command.args.at(-1)!.includes("snap")) {
      fake.fault = copyFault;
      for (const { lv } of fake.allLvs()) if (!lv.name.includes(copyId.slice(3))) lv.active = false;
    }
    return await copyFault(command);
  };
  assertEquals(await copies.create(copyRequest({ kind: "snapshot", id })), 768n * MiB);
  assertEquals([...fixture.lvOf("copy").content.data], ["what was written"]);
});

Deno.test("a copy that is deleted while it runs is erased after the present chunk, and its source is free", async () => {
  await using fixture = await CopyFixture.open();
  const { volumes } = fixture.machine;
  const finish = await fixture.startCopy(originalSource);
  const deleting = volumes.delete(copyId);
  await new Promise((resolve) => setTimeout(resolve, 0)); // everything is done that does not wait for the chunk
  await finish();
  await deleting;
  await fixture.machine.background.idle();
  assertEquals([fixture.lvNames, fixture.chunkOffsets], [["vol"], ["skip=0"]]);
  assertEquals([...fixture.fake.groups[0]!.residualData], []);
  await volumes.delete(volumeIdOf("original"));
});

Deno.test("a copy whose deletion failed goes on when its volume is requested again", async () => {
  await using fixture = await CopyFixture.open();
  const { volumes, copies } = fixture.machine;
  const finish = await fixture.startCopy(originalSource);
  const copyChunks = fixture.fake.fault!;
  fixture.fake.fault = (command) =>
    command.args.includes(`denolith.deleted=${copyId}`)
      ? failure(5, "  Failed to write VG data.")
      : copyChunks(command);
  const deleting = assertRejects(() => volumes.delete(copyId), StorageError, "Failed to write VG data");
  await new Promise((resolve) => setTimeout(resolve, 0)); // everything is done that does not wait for the chunk
  await finish();
  await deleting;
  assertEquals(fixture.chunkOffsets, ["skip=0"]);
  assertEquals(await copies.create(copyRequest(originalSource)), 768n * MiB);
  assertEquals([...fixture.lvOf("copy").content.data], ["what was written"]);
  await fixture.machine.background.idle();
});

Deno.test("a copy that is created again after its deletion has nothing of the first one's temporary snapshot", async () => {
  await using fixture = await CopyFixture.open();
  const { volumes, copies, background } = fixture.machine;
  const finish = await fixture.startCopy(originalSource);
  const copyChunks = fixture.fake.fault!;
  fixture.fake.fault = (command) => {
    const isRemoval = command.args[0] === "lvchange" && command.args.at(-1)!.startsWith("data/cut-");
    return isRemoval ? failure(5, "it takes a while") : copyChunks(command);
  };
  const deleting = volumes.delete(copyId);
  await finish();
  await deleting;
  fixture.lvOf("original").content.data.add("written meanwhile");
  const refusal = await assertRejects(() => copies.create(copyRequest(originalSource)), StorageError, "earlier copy");
  assertEquals(refusal.kind, "Busy");
  fixture.fake.fault = copyChunks;
  await waitUntil(() => !fixture.lvNames.includes("cut"), "the removal of the first temporary snapshot");
  assertEquals(await copies.create(copyRequest(originalSource)), 768n * MiB);
  assertEquals([...fixture.lvOf("copy").content.data].sort(), ["what was written", "written meanwhile"]);
  await background.idle();
});

Deno.test("a copy that waits is deleted at once, while a step of another one hangs in its group", async () => {
  await using fixture = await CopyFixture.open();
  const { volumes, lvm, copies } = fixture.machine;
  const finish = await fixture.startCopy(originalSource);
  const request = { ...copyRequest(originalSource), ...namedRequest("other", 0n), range: { required: 0n } };
  await copies.createNew(await lvm.report(), { ...request, format: { state: "raw" }, source: originalSource });
  const deletion = volumes.delete(volumeIdOf("other")).then(() => true);
  assertEquals(await withinDeadline(deletion, 5_000), true, "it waits for the other copy");
  await finish();
  assertEquals(fixture.lvNames, ["vol", "vol"]);
});

Deno.test("the temporary snapshot of a complete copy is removed although LVM has refused that once", async () => {
  await using fixture = await CopyFixture.open();
  const finish = await fixture.startCopy(originalSource);
  const { fault } = fixture.fake;
  let refusals = 0;
  fixture.fake.fault = (command) => {
    if (!command.args.includes(`denolith.deleted=${copyId}`) || refusals++ > 0) return fault?.(command);
    return failure(5, "  Cannot change VG data while PVs are missing.");
  };
  await finish();
  assertEquals(fixture.lvNames, ["cut", "vol", "vol"]);
  await waitUntil(() => !fixture.lvNames.includes("cut"), "the removal");
  assertEquals(refusals, 2);
});

Deno.test("a temporary snapshot of another volume, which has taken the name meanwhile, is not copied", async () => {
  await using fixture = await CopyFixture.open();
  const { volumes } = fixture.machine;
  await volumes.create({ ...namedRequest("another", 768n * MiB), format: { state: "raw" } });
  const [original, another] = ["original", "another"].map((name) => fixture.lvOf(name));
  another!.content.data.add("of somebody else");
  const { fault } = fixture.fake;
  fixture.fake.fault = (command) => {
    if (command.args[0] === "lvcreate" && command.args.includes("--snapshot")) {
      fixture.fake.fault = fault;
      [original!.name, another!.name] = [another!.name, original!.name]; // by an administrator
    }
    return fault?.(command);
  };
  await (await fixture.startCopy(originalSource))();
  assertEquals([...fixture.lvOf("copy").content.data], ["what was written"]);
  assertEquals(fixture.lvNames, ["vol", "vol", "vol"]);
});

Deno.test("a snapshot whose COW space overflows while it is copied fails the copy, which leaves nothing", async () => {
  await using fixture = await CopyFixture.open();
  const { snapshots, lvm, copies } = fixture.machine;
  const id = snapshotIdOf("cut");
  await snapshots.createNew(await lvm.report(), { id, source: volumeIdOf("original"), cowSize: { percent: 10n } });
  const source = { kind: "snapshot", id } as const;
  const finish = await fixture.startCopy(source);
  for (const { lv } of fixture.fake.allLvs()) lv.invalid = lv.origin !== undefined;
  await finish();
  const error = await assertRejects(() => copies.create(copyRequest(source)), StorageError, "overflowed");
  assertEquals(error.kind, "FailedPrecondition");
  await fixture.machine.background.idle();
  assertEquals(fixture.lvNames, ["snap", "vol"]);
});

Deno.test("when the temporary snapshot is lost, the copy starts again from a new one", async () => {
  await using fixture = await CopyFixture.open();
  const { copies } = fixture.machine;
  const finish = await fixture.startCopy(originalSource);
  const copySnapshot = fixture.fake.allLvs().find(({ lv }) => lv.name.startsWith("cut-"))!;
  fixture.lvOf("original").content.data.add("written meanwhile");
  const finished = copies.create(copyRequest(originalSource));
  const emptyChanges: string[] = [];
  fixture.fake.fault = ({ args }) => {
    if (args[0] === "lvchange" && !args.some((arg) => arg.startsWith("--") && arg !== "--yes")) {
      emptyChanges.push(args.join(" ")); // lvchange refuses it: nothing would change
    }
    if (args[0] === "fullreport" && fixture.lvOf("copy").copied !== undefined) copySnapshot.lv.invalid = true;
    return undefined;
  };
  await finish();
  assertEquals(await finished, 768n * MiB);
  assertEquals([...fixture.lvOf("copy").content.data].sort(), ["what was written", "written meanwhile"]);
  await fixture.machine.background.idle();
  assertEquals([fixture.lvNames, emptyChanges], [["vol", "vol"], []]);
});

Deno.test("a filesystem that cannot be repaired fails the copy with the message of the check", async () => {
  await using fixture = await CopyFixture.open();
  const { copies, volumes, background } = fixture.machine;
  const lv = fixture.lvOf("original");
  Object.assign(lv.content, { signatures: [{ type: "ext4", uuid: crypto.randomUUID() }], checkStatus: 4 });
  const request = { ...copyRequest(originalSource), format: { state: "unformatted", type: "ext4" } } as const;
  const error = await assertRejects(() => copies.create(request), StorageError, "RUN fsck MANUALLY");
  assertEquals(error.kind, "FailedPrecondition");
  await background.idle();
  assertEquals(fixture.lvNames, ["vol"]);
  assert((await volumes.list()).length === 1);
});

Deno.test("a copy without the requested filesystem is not returned", async () => {
  await using fixture = await CopyFixture.open();
  const { copies, background } = fixture.machine;
  Object.assign(fixture.lvOf("original").content, { signatures: [{ type: "gpt", uuid: "" }] });
  const request = { ...copyRequest(originalSource), format: { state: "unformatted", type: "ext4" } } as const;
  const { message } = await assertRejects(() => copies.create(request), StorageError);
  assertStringIncludes(message, "holds gpt");
  await background.idle();
  assertEquals(fixture.lvNames, ["vol"]);
});

/** Creates a thin volume `thin` with xfs on it, and a request for a copy of it in its own pool. */
async function thinFixture() {
  const fixture = await CopyFixture.open();
  const { volumes } = fixture.machine;
  const format = { state: "unformatted", type: "xfs" } as const;
  const thin = { poolSize: DEFAULT_POOL_SIZE };
  await volumes.create({ ...namedRequest("thin", GiB), format, thin });
  Object.assign(fixture.lvOf("thin").content, {
    signatures: [{ type: "xfs", uuid: crypto.randomUUID() }],
    zeroHead: false,
  });
  return { fixture, request: { ...copyRequest({ kind: "volume", id: volumeIdOf("thin") }), format, thin } };
}

Deno.test("an instant copy that fails at the end is not tried again, and leaves nothing", async () => {
  const { fixture, request } = await thinFixture();
  await using _fixture = fixture;
  let mounts = 0;
  fixture.fake.fault = ({ program }) => {
    if (program !== "mount") return undefined;
    mounts++;
    return { code: 32, stdout: "", stderr: "mount: can't read superblock" };
  };
  await assertRejects(() => fixture.machine.copies.create(request), StorageError, "can't read superblock");
  await fixture.machine.background.idle();
  assertEquals([fixture.lvNames, mounts], [["data_thinpool", "vol", "vol"], 1]);
  fixture.fake.fault = undefined;
  assertEquals(await fixture.machine.copies.create(request), GiB, "and the next call makes it");
});

Deno.test("a report that is read while a thin copy is being created leaves it alone", async () => {
  const { fixture, request } = await thinFixture();
  await using _fixture = fixture;
  const { copies, lvm } = fixture.machine;
  fixture.fake.fault = async ({ args }) => {
    if (args[0] !== "lvextend") return undefined;
    assert(fixture.lvOf("copy").tags.has("denolith.copied=all"));
    copies.wake();
    for (let reports = 0; reports < 3; reports++) await lvm.report();
    return undefined;
  };
  assertEquals(await copies.create({ ...request, range: { required: 2n * GiB } }), 2n * GiB);
  assertEquals(fixture.fake.allLvs().filter(({ lv }) => [...lv.tags].some((tag) => tag.includes("deleted"))), []);
});

for (const [which, lvName] of [["source", "cut"], ["copy", "vol"]] as const) {
  Deno.test(`nothing is copied while another device is at the path of the ${which}`, async () => {
    await using fixture = await CopyFixture.open();
    const { fake, machine } = fixture;
    const readChunk = fake.fault!;
    let refused = 0;
    fake.fault = async (command) => {
      const { program, args } = command;
      if (program !== "lsblk" || !args.at(-1)!.startsWith(`/dev/mapper/data-${lvName}--`)) {
        return await readChunk(command);
      }
      refused++;
      return ok(
        JSON.stringify({
          blockdevices: [{ name: "dm-9", "maj:min": "253:99", size: 768 << 20, ro: false }],
        }),
      );
    };
    await machine.copies.createNew(await machine.lvm.report(), {
      ...copyRequest(originalSource),
      source: originalSource,
    });
    await waitUntil(() => refused + fixture.chunkOffsets.length > 0, "a step that verifies the device");
    await machine.background.stop();
    assertEquals(fixture.chunkOffsets, []);
  });
}

Deno.test("a call that waits for a copy ends when the driver stops", async () => {
  await using fixture = await CopyFixture.open();
  const { copies, background } = fixture.machine;
  const finish = await fixture.startCopy(originalSource);
  const waiting = assertRejects(() => copies.create(copyRequest(originalSource)), StorageError, "of 768 MiB copied");
  await new Promise((resolve) => setTimeout(resolve, 20)); // it waits
  const stopping = background.stop();
  assertEquals((await withinDeadline(waiting, 1_000))?.kind, "Busy");
  await finish();
  await stopping;
});

Deno.test("a copy of a source with a second signature beside the requested filesystem has a UUID of its own", async () => {
  await using fixture = await CopyFixture.open();
  const { copies, background } = fixture.machine;
  const [requested, other] = [{ type: "ext4", uuid: crypto.randomUUID() }, { type: "gpt", uuid: "" }];
  const request = { ...copyRequest(originalSource), format: { state: "unformatted", type: "ext4" } } as const;
  const { content } = fixture.lvOf("original");
  content.signatures = [other];
  const error = await assertRejects(() => copies.create(request), StorageError, "the source holds gpt");
  assertEquals(error.kind, "FailedPrecondition");
  await background.idle();
  assertEquals(fixture.lvNames, ["vol"]);
  content.signatures = [other, requested];
  await copies.create(request);
  const { signatures } = fixture.lvOf("copy").content;
  assertEquals(signatures.map(({ type }) => type), ["gpt", "ext4"]);
  assert(signatures[1]!.uuid !== requested.uuid);
});

Deno.test("a volume is created from a thin snapshot whose volume is deleted", async () => {
  const { fixture, request } = await thinFixture();
  await using _fixture = fixture;
  const { volumes, snapshots, copies, lvm, background } = fixture.machine;
  const [id, source] = [snapshotIdOf("cut"), volumeIdOf("thin")];
  await snapshots.createNew(await lvm.report(), { id, source, cowSize: FULL_COW });
  await volumes.delete(source);
  await background.idle();
  assertEquals(await copies.create({ ...request, source: { kind: "snapshot", id } }), GiB);
});

Deno.test("nothing is read while there is nothing to copy", async () => {
  await using fixture = await CopyFixture.open();
  const { copies, background } = fixture.machine;
  let reports = 0;
  fixture.fake.fault = ({ args }) => void (args[0] === "fullreport" && reports++);
  copies.wake();
  await background.idle();
  await new Promise((resolve) => setTimeout(resolve, 20));
  assertEquals(reports, 1);
});

Deno.test("a filesystem is not copied to a volume group whose logical sectors are larger than its blocks", async () => {
  await using fixture = await CopyFixture.open();
  const { copies, background } = fixture.machine;
  const request = { ...copyRequest(originalSource), format: { state: "unformatted", type: "ext4" } } as const;
  const signatures = [{ type: "ext4", uuid: crypto.randomUUID() }];
  Object.assign(fixture.lvOf("original").content, { signatures, blockBytes: 1_024n });
  fixture.fake.groups[0]!.sectorBytes = 4_096;
  const error = await assertRejects(() => copies.create(request), StorageError, "so that it could not be mounted");
  assertEquals(error.kind, "InvalidArgument");
  assertStringIncludes(
    error.message,
    "logical sectors of 1024 bytes at most, and those of volume group data have 4096",
  );
  assertEquals(fixture.chunkOffsets, ["skip=0"]); // it is found out by the first chunk
  await background.idle();
  assertEquals(fixture.lvNames, ["vol"]);
  fixture.lvOf("original").content.blockBytes = 4_096n;
  assertEquals(await copies.create(request), 768n * MiB);
});
