/**
 * Copies while they are under way, and what becomes of them when something goes wrong.
 *
 * @module
 */

import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { openMachine } from "../lvm/machine.ts";
import { StorageError } from "../lvm/error.ts";
import type { Command } from "../lvm/exec.ts";
import { ANY_GROUP } from "../lvm/model/groups.ts";
import { snapshotIdOf, volumeIdOf } from "../lvm/ids.ts";
import { FULL_STORE } from "../lvm/spec/cow_size.ts";
import type { ContentSource } from "../lvm/model/tags.ts";
import { DEFAULT_POOL_SIZE } from "../lvm/pools/pool.ts";
import { FakeMachine } from "./fake/machine.ts";
import { namedRequest } from "./fake/request.ts";

const GiB = 1n << 30n;
const MiB = 1n << 20n;

/** A machine with a block volume `original` of 768 MiB, which is two pieces, and what a driver has on it. */
class Stage implements AsyncDisposable {
  readonly fake: FakeMachine;
  readonly machine: ReturnType<typeof openMachine>;
  /** The pieces that were begun, by their offsets in blocks. */
  readonly pieces: string[] = [];
  #gate: PromiseWithResolvers<void> | undefined;
  #reached = Promise.withResolvers<void>();

  private constructor(fake: FakeMachine, folder: string) {
    this.fake = fake;
    fake.fault = async (command) => {
      if (!isPiece(command)) return undefined;
      this.pieces.push(command.args.find((arg) => arg.startsWith("skip="))!);
      this.#reached.resolve();
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

  static async open(fake = new FakeMachine()): Promise<Stage> {
    const stage = new Stage(fake, await Deno.makeTempDir());
    if (fake.groups.length > 0) return stage;
    fake.addGroup("data", 8n * GiB);
    await stage.machine.volumes.create({ ...namedRequest("original", 768n * MiB), content: { state: "raw" } });
    stage.lv("original").content.data.add("what was written");
    return stage;
  }

  /** Begins a copy that stops at its first piece, until the answer is called. */
  async begin(source: ContentSource): Promise<() => Promise<void>> {
    const gate = this.#gate = Promise.withResolvers<void>();
    const { lvm, copies } = this.machine;
    await copies.make(await lvm.report(), { ...copyRequest(source), source });
    await this.#reached.promise;
    return async () => {
      gate.resolve();
      await this.machine.background.settled();
    };
  }

  lv(name: string) {
    return this.fake.allLvs().find(({ lv }) => lv.tags.has(`denolith.volume=${volumeIdOf(name)}`))!.lv;
  }

  get names(): string[] {
    return this.fake.allLvs().map(({ lv }) => lv.name.replace(/-.*/, "")).sort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#gate?.resolve();
    await this.machine.background.stop();
  }
}

const original: ContentSource = { of: "volume", id: volumeIdOf("original") };
const copy = volumeIdOf("copy");

function isPiece({ program, args }: Command): boolean {
  return program === "dd" && args.includes("conv=fsync,nocreat,notrunc");
}

function copyRequest(source: ContentSource) {
  return { ...namedRequest("copy", 0n), range: { required: 0n }, content: { state: "raw" }, source } as const;
}

Deno.test("a volume that is copied is neither deleted nor grown, and the copy is not given out before it is done", async () => {
  await using stage = await Stage.open();
  const { volumes } = stage.machine;
  const go = await stage.begin(original);
  const refused = await assertRejects(() => volumes.delete(original.id), StorageError, copy);
  assertEquals(refused.kind, "InUse");
  const grown = await assertRejects(
    () => volumes.expand(volumeIdOf("original"), { required: GiB }),
    StorageError,
    copy,
  );
  assertEquals(grown.kind, "Busy");
  assertEquals((await assertRejects(() => volumes.get(copy), StorageError, "still being made")).kind, "Busy");
  assertEquals((await volumes.list()).map(({ id }) => id), [original.id]);
  stage.lv("original").content.data.add("written meanwhile");
  await go();
  assertEquals([...stage.lv("copy").content.data], ["what was written"]);
  assertEquals(stage.names, ["vol", "vol"]);
  assertEquals(stage.pieces, ["skip=0", "skip=128"]);
  await volumes.delete(volumeIdOf("original"));
});

Deno.test("a snapshot that is copied is not deleted", async () => {
  await using stage = await Stage.open();
  const { snapshots, lvm } = stage.machine;
  const id = snapshotIdOf("cut");
  await snapshots.make(await lvm.report(), { id, source: volumeIdOf("original"), store: FULL_STORE });
  const go = await stage.begin({ of: "snapshot", id });
  assertEquals((await assertRejects(() => snapshots.delete(id), StorageError, copy)).kind, "InUse");
  await go();
  await snapshots.delete(id);
});

Deno.test("a copy that is deleted in the midst is erased, after the piece under way, and its source is free", async () => {
  await using stage = await Stage.open();
  const { volumes } = stage.machine;
  const go = await stage.begin(original);
  const deleting = volumes.delete(copy);
  await new Promise((resolve) => setTimeout(resolve, 0)); // all that does not wait for the piece is done
  await go();
  await deleting;
  await stage.machine.background.settled();
  assertEquals([stage.names, stage.pieces], [["vol"], ["skip=0"]]);
  assertEquals([...stage.fake.groups[0]!.residue], []);
  await volumes.delete(volumeIdOf("original"));
});

Deno.test("a snapshot whose store overflows while it is copied fails the copy, of which nothing is left", async () => {
  await using stage = await Stage.open();
  const { snapshots, lvm, copies } = stage.machine;
  const id = snapshotIdOf("cut");
  await snapshots.make(await lvm.report(), { id, source: volumeIdOf("original"), store: { percent: 10n } });
  const source = { of: "snapshot", id } as const;
  const go = await stage.begin(source);
  for (const { lv } of stage.fake.allLvs()) lv.invalid = lv.origin !== undefined;
  await go();
  const error = await assertRejects(() => copies.create(copyRequest(source)), StorageError, "overflowed");
  assertEquals(error.kind, "FailedPrecondition");
  await stage.machine.background.settled();
  assertEquals(stage.names, ["snap", "vol"]);
});

Deno.test("a temporary snapshot that is lost has the copy begin anew, of one moment", async () => {
  await using stage = await Stage.open();
  const { copies } = stage.machine;
  const go = await stage.begin(original);
  const cut = stage.fake.allLvs().find(({ lv }) => lv.name.startsWith("cut-"))!;
  stage.lv("original").content.data.add("written meanwhile");
  const finished = copies.create(copyRequest(original));
  stage.fake.fault = ({ args }) => {
    if (args[0] === "fullreport" && stage.lv("copy").copied !== undefined) cut.lv.invalid = true; // after its first piece
    return undefined;
  };
  await go();
  assertEquals(await finished, 768n * MiB);
  assertEquals([...stage.lv("copy").content.data].sort(), ["what was written", "written meanwhile"]);
  await stage.machine.background.settled();
  assertEquals(stage.names, ["vol", "vol"]);
});

Deno.test("a filesystem that cannot be mended fails the copy with what the check said", async () => {
  await using stage = await Stage.open();
  const { copies, volumes, background } = stage.machine;
  const lv = stage.lv("original");
  Object.assign(lv.content, { signatures: [{ type: "ext4", uuid: crypto.randomUUID() }], checkStatus: 4 });
  const request = { ...copyRequest(original), content: { state: "wanted", type: "ext4" } } as const;
  const error = await assertRejects(() => copies.create(request), StorageError, "RUN fsck MANUALLY");
  assertEquals(error.kind, "FailedPrecondition");
  await background.settled();
  assertEquals(stage.names, ["vol"]);
  assert((await volumes.list()).length === 1);
});

Deno.test("what is not of the filesystem that was asked for is not given out as one", async () => {
  await using stage = await Stage.open();
  const { copies, background } = stage.machine;
  Object.assign(stage.lv("original").content, { signatures: [{ type: "gpt", uuid: "" }] });
  const request = { ...copyRequest(original), content: { state: "wanted", type: "ext4" } } as const;
  const { message } = await assertRejects(() => copies.create(request), StorageError);
  assertStringIncludes(message, "holds gpt");
  await background.settled();
  assertEquals(stage.names, ["vol"]);
});

/** A thin volume `thin` with xfs on it, and a request for a copy of it in its own pool. */
async function thinStage() {
  const stage = await Stage.open();
  const { volumes } = stage.machine;
  const content = { state: "wanted", type: "xfs" } as const;
  const thin = { poolSize: DEFAULT_POOL_SIZE };
  await volumes.create({ ...namedRequest("thin", GiB), content, thin });
  Object.assign(stage.lv("thin").content, {
    signatures: [{ type: "xfs", uuid: crypto.randomUUID() }],
    zeroHead: false,
  });
  return { stage, request: { ...copyRequest({ of: "volume", id: volumeIdOf("thin") }), content, thin } };
}

Deno.test("a copy at once that fails at the end is not tried again, and nothing of it is left", async () => {
  const { stage, request } = await thinStage();
  await using _stage = stage;
  let mounts = 0;
  stage.fake.fault = ({ program }) => {
    if (program !== "mount") return undefined;
    mounts++;
    return { code: 32, stdout: "", stderr: "mount: can't read superblock" };
  };
  await assertRejects(() => stage.machine.copies.create(request), StorageError, "can't read superblock");
  await stage.machine.background.settled();
  assertEquals([stage.names, mounts], [["data_thinpool", "vol", "vol"], 1]);
  stage.fake.fault = undefined;
  assertEquals(await stage.machine.copies.create(request), GiB, "and the next call makes it");
});

Deno.test("a look that comes while a copy at once is being made leaves it alone", async () => {
  const { stage, request } = await thinStage();
  await using _stage = stage;
  const { copies, lvm } = stage.machine;
  stage.fake.fault = async ({ args }) => {
    if (args[0] !== "lvextend") return undefined;
    assert(stage.lv("copy").tags.has("denolith.copied=all"));
    copies.look();
    for (let reports = 0; reports < 3; reports++) await lvm.report();
    return undefined;
  };
  assertEquals(await copies.create({ ...request, range: { required: 2n * GiB } }), 2n * GiB);
  assertEquals(stage.fake.allLvs().filter(({ lv }) => [...lv.tags].some((tag) => tag.includes("deleted"))), []);
});
