import { assertEquals, assertRejects } from "@std/assert";
import { waitForAbort } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import type { Command } from "../../lvm/exec.ts";
import { connect } from "../contract/helpers/csi_client.ts";
import { fakeHost } from "../contract/helpers/fake_host.ts";
import { assertFails, blockCapability, Harness } from "../contract/helpers/host.ts";
import type { FakeMachine } from "../fake/machine/machine.ts";

const CHUNK = 4096n;

/** A driver over a fake machine with a volume of 16 MiB. */
interface Fixture extends AsyncDisposable {
  readonly harness: Harness;
  readonly machine: FakeMachine;
  readonly volumeId: string;
  /** Writes to chunks of the volume. */
  write(...chunks: readonly number[]): Promise<void>;
  snapshot(): Promise<string>;
}

async function openFixture(parameters: Record<string, string>): Promise<Fixture> {
  const machine = (await fakeHost.setUp()).exec as FakeMachine;
  const harness = await Harness.start(machine, fakeHost.groups);
  const capacityRange = { requiredBytes: 16n << 20n };
  const volumeId = await harness.create({ capacityRange, parameters, volumeCapabilities: [blockCapability()] });
  const { devicePath } = (await harness.lvs()).find(({ tags }) => tags.includes(`denolith.volume=${volumeId}`))!;
  let snapshots = 0;
  return {
    harness,
    machine,
    volumeId,
    write: async (...chunks) => {
      for (const chunk of chunks) {
        const args = ["if=/dev/urandom", `of=${devicePath}`, "bs=4096", `seek=${chunk}`, "count=1"];
        await machine.run({ program: "dd", args, mutates: true });
      }
    },
    snapshot: async () => {
      const request = { name: `s${++snapshots}`, sourceVolumeId: volumeId };
      return (await harness.csi.controller.createSnapshot(request)).snapshot!.snapshotId;
    },
    [Symbol.asyncDispose]: () => harness[Symbol.asyncDispose](),
  };
}

const THIN = { thinProvision: "yes", thinPoolSize: "128Mi" };

async function chunksOf(harness: Harness, baseSnapshotId: string, targetSnapshotId: string): Promise<number[]> {
  const chunks: number[] = [];
  for await (
    const { blockMetadata } of harness.csi.snapshotMetadata.getMetadataDelta({ baseSnapshotId, targetSnapshotId })
  ) {
    for (const { byteOffset, sizeBytes } of blockMetadata) {
      for (let at = byteOffset; at < byteOffset + sizeBytes; at += CHUNK) chunks.push(Number(at / CHUNK));
    }
  }
  return chunks;
}

/** Reports whether a command reads the tables of the COW space of a snapshot, after its header. */
function readsTables({ program, args }: Command, snapshotId: string): boolean {
  return program === "dd" && args[0]!.endsWith("-cow") && args[0]!.includes(snapshotId.slice(3)) &&
    args[2] !== "skip=0";
}

Deno.test("no block is missing that was written while the tables were read", async () => {
  for (const which of ["base", "target"] as const) {
    await using fixture = await openFixture({});
    const { harness, machine, write } = fixture;
    const base = await fixture.snapshot();
    await write(10, 11, 12);
    const target = await fixture.snapshot();
    await write(12, 20);
    const read = { base, target }[which];
    machine.fault = async (command) => {
      if (!readsTables(command, read)) return undefined;
      machine.fault = undefined;
      await write(10, 12, 20, 30);
      return undefined;
    };
    const chunks = await chunksOf(harness, base, target);
    // what is written for the first time between the two reads may be listed, without need
    assertEquals(chunks.filter((chunk) => chunk !== 30), [10, 11, 12], which);
  }
});

Deno.test("a snapshot that overflows while it is compared fails the list", async () => {
  await using fixture = await openFixture({});
  const { harness, machine, write } = fixture;
  const base = await fixture.snapshot();
  await write(10, 11);
  const target = await fixture.snapshot();
  await write(10);
  let reads = 0;
  machine.fault = ({ program, args }) => {
    if (program !== "dd" || args[0]!.endsWith("-cow") || ++reads > 1) return undefined;
    for (const { lv } of machine.allLvs()) if (lv.name.includes(base.slice(3))) lv.invalid = true;
    return undefined;
  };
  await assertFails("INTERNAL", chunksOf(harness, base, target), "Input/output error");
  await assertFails("FAILED_PRECONDITION", chunksOf(harness, base, target), "full backup");
});

Deno.test("a snapshot is not deleted while it is read, and is deleted between", async () => {
  await using fixture = await openFixture(THIN);
  const { harness, machine } = fixture;
  const [base, target] = [await fixture.snapshot(), await fixture.snapshot()];
  const gate = Promise.withResolvers<undefined>();
  const reached = Promise.withResolvers<void>();
  machine.fault = ({ program }) => {
    if (program !== "thin_delta") return undefined;
    reached.resolve();
    return gate.promise;
  };
  const list = chunksOf(harness, base, target);
  await reached.promise;
  await assertFails("ABORTED", harness.csi.controller.deleteSnapshot({ snapshotId: base }), "comparison");
  gate.resolve(undefined);
  assertEquals(await list, []);
  await harness.csi.controller.deleteSnapshot({ snapshotId: base });
  await assertFails("NOT_FOUND", chunksOf(harness, base, target));
});

Deno.test("the metadata snapshot of a pool is released when thin_delta fails, or is not installed", async () => {
  await using fixture = await openFixture(THIN);
  const { harness, machine } = fixture;
  const [base, target] = [await fixture.snapshot(), await fixture.snapshot()];
  const isHeld = () => machine.allLvs().some(({ lv }) => lv.thinPool?.metadataSnapshot);
  machine.fault = ({ program }) =>
    program === "thin_delta" ? { code: 1, stdout: "", stderr: "bad checksum in metadata\n" } : undefined;
  await assertFails("INTERNAL", chunksOf(harness, base, target), "bad checksum");
  assertEquals(isHeld(), false);
  machine.fault = undefined;
  machine.host.missing.add("thin_delta");
  await assertFails("UNAVAILABLE", chunksOf(harness, base, target), "thin_delta: not found");
  assertEquals(isHeld(), false);
});

Deno.test("an output of thin_delta that is cut off is no list", async () => {
  await using fixture = await openFixture(THIN);
  const { harness, machine } = fixture;
  const [base, target] = [await fixture.snapshot(), await fixture.snapshot()];
  machine.fault = async (command) => {
    if (command.program !== "thin_delta") return undefined;
    await command.onOutput!(
      new TextEncoder().encode('<superblock uuid="" data_block_size="128">\n<diff left="1" right="2">'),
    );
    return { code: 0, stdout: "", stderr: "" };
  };
  await assertFails("INTERNAL", chunksOf(harness, base, target), "incomplete");
});

Deno.test("a client that goes away ends what is read for it, and nothing is held", async () => {
  for (const [parameters, program] of [[THIN, "thin_delta"], [{}, "dd"]] as const) {
    await using fixture = await openFixture(parameters);
    const { harness, machine, write } = fixture;
    const base = await fixture.snapshot();
    await write(3);
    const target = await fixture.snapshot();
    const reached = Promise.withResolvers<void>();
    machine.fault = async (command) => {
      if (command.program !== program) return undefined;
      machine.fault = undefined;
      reached.resolve();
      await waitForAbort(command.signal!);
      throw new StorageError("Unavailable", "ended");
    };
    const request = { baseSnapshotId: base, targetSnapshotId: target };
    const connection = connect(`${harness.folder}/csi.sock`);
    const failing = assertRejects(() => connection.snapshotMetadata.getMetadataDelta(request).next());
    await reached.promise;
    connection[Symbol.dispose]();
    await failing;
    const chunks = await chunksOf(harness, base, target);
    assertEquals(chunks.includes(3), true);
    assertEquals(machine.allLvs().some(({ lv }) => lv.thinPool?.metadataSnapshot), false);
    await harness.csi.controller.deleteSnapshot({ snapshotId: base });
  }
});
