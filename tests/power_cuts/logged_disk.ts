/**
 * The disk whose power is cut: the only physical volume that LVM sees in the guest.
 *
 * While a life is recorded, the disk is a RAM disk below device-mapper's log-writes target. After a power cut it is a
 * snapshot of another RAM disk, on which the recorded writes are repeated step by step. So a cut costs only the writes
 * since the last one, and what is done after it is thrown away.
 *
 * @module
 */

import { run } from "../demo/command.ts";
import { marksBefore, type PowerCut, survivingWrites } from "./power_cut.ts";
import { readWriteLog, type WriteEntry, type WriteLog } from "./write_log.ts";

/** The name of the disk for device-mapper, and its path for LVM. */
const NAME = "power-pv";
export const DISK_PATH = `/dev/mapper/${NAME}`;

const DISK_BYTES = 160 << 20;
const SECTORS = DISK_BYTES / 512;

/** The start of the extents on the disk, in bytes: LVM's own metadata is before it. */
export const METADATA_BYTES = 1 << 20;

/** The RAM disks: that which is recorded, that on which the writes are repeated, and the changes after a power cut. */
const [RECORDED, REPEATED, CHANGES] = ["/dev/ram0", "/dev/ram1", "/dev/ram2"] as const;

/** The sectors that a snapshot keeps together. */
const CHUNK_SECTORS = 64;

const LVM_CONFIG = `
activation { monitoring = 0 udev_sync = 0 udev_rules = 0 }
backup { backup = 0 archive = 0 }
devices {
  obtain_device_list_from_udev = 0
  md_component_detection = 0
  multipath_component_detection = 0
  fw_raid_component_detection = 0
  global_filter = [ "a|^${DISK_PATH}$|", "r|.*|" ]
}
`;

/**
 * Hides all other disks of the guest from LVM, and stops udev, as in a container: LVM makes the device nodes itself. A power
 * cut is hundreds of changes of devices, and udev takes longer for each than the change.
 */
export async function prepareMachine(): Promise<void> {
  await run("stop udev", "udevadm", ["control", "--exit"]);
  await Deno.remove("/run/udev/control").catch(() => {});
  await Deno.writeTextFile("/etc/lvm/lvmlocal.conf", LVM_CONFIG);
  await run("load modules", "modprobe", ["-a", "dm-log-writes", "dm-snapshot", "dm-thin-pool"]);
}

/** Empties the RAM disks. */
async function resetRamDisks(): Promise<void> {
  await run("remove the RAM disks", "modprobe", ["--remove", "brd"]);
  await run("make the RAM disks", "modprobe", ["brd", "rd_nr=3", `rd_size=${2 * DISK_BYTES >> 10}`]);
}

/** A disk that is being recorded. It is removed when it is disposed of without a finished recording. */
export class RecordedDisk implements AsyncDisposable {
  readonly #log: string;
  #isRemoved = false;

  private constructor(log: string) {
    this.#log = log;
  }

  /** Makes an empty disk, and records its writes on another one. */
  static async create(log: string): Promise<RecordedDisk> {
    await resetRamDisks();
    await createDevice(`0 ${SECTORS} log-writes ${RECORDED} ${log}`);
    return new RecordedDisk(log);
  }

  /** Sets a mark in the log. */
  async mark(text: string): Promise<void> {
    await run("set a mark", "dmsetup", ["message", NAME, "0", "mark", text]);
  }

  /** Ends the recording. @returns the disk after power cuts */
  async finish(): Promise<RepeatedDisk> {
    await run("flush the disk", "sync", [DISK_PATH]);
    await this[Symbol.asyncDispose]();
    return await RepeatedDisk.open(this.#log);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isRemoved) return;
    this.#isRemoved = true;
    await removeDevice();
  }
}

/** A disk on which recorded writes are repeated. */
export class RepeatedDisk implements AsyncDisposable {
  readonly log: WriteLog;
  readonly #logFile: Deno.FsFile;
  /** The number of the log's entries that are on the disk. */
  #repeated = 0;

  private constructor(log: WriteLog, logFile: Deno.FsFile) {
    this.log = log;
    this.#logFile = logFile;
  }

  static async open(log: string): Promise<RepeatedDisk> {
    const file = await Deno.open(log);
    return new RepeatedDisk(await readWriteLog((offset, length) => readAt(file, offset, length)), file);
  }

  /**
   * Makes the disk what it is after a power cut, which must not be before the last one.
   *
   * @returns the marks before it, and the number of the writes that were lost
   */
  async cutPower(cut: PowerCut): Promise<{ marks: string[]; lost: number }> {
    const flushed = this.log.entries.findLastIndex(({ kind }, index) => kind === "flush" && index < cut.flush);
    if (flushed < this.#repeated - 1) throw new Error("cut the power: its writes are lost already");
    const writes = this.log.entries.slice(this.#repeated, flushed + 1).filter((entry) => entry.kind === "write");
    await this.#write(REPEATED, writes.map((entry) => ({ entry, start: 0, length: entry.length })));
    this.#repeated = flushed + 1;
    await createDevice(`0 ${SECTORS} snapshot ${REPEATED} ${CHANGES} N ${CHUNK_SECTORS}`);
    const surviving = survivingWrites(this.log, cut, METADATA_BYTES);
    await this.#write(DISK_PATH, surviving);
    const pending = this.log.entries.slice(this.#repeated, cut.flush).filter(({ kind }) => kind === "write");
    return { marks: marksBefore(this.log, cut), lost: pending.length - surviving.length };
  }

  /** Throws away what was done after the power cut. */
  async discardChanges(): Promise<void> {
    await removeDevice();
  }

  async #write(
    path: string,
    writes: readonly { readonly entry: WriteEntry; readonly start: number; readonly length: number }[],
  ): Promise<void> {
    if (writes.length === 0) return;
    using file = await Deno.open(path, { write: true });
    for (const { entry, start, length } of writes) {
      await writeAt(file, entry.offset + start, await readAt(this.#logFile, entry.dataOffset + start, length));
    }
    await file.sync();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#logFile.close();
    return Promise.resolve();
  }
}

/** Keeps dmsetup from waiting for udev. */
const NO_UDEV = ["--noudevrules", "--noudevsync"] as const;

async function createDevice(table: string): Promise<void> {
  await run("make the disk", "dmsetup", ["create", NAME, ...NO_UDEV, "--table", table]);
  await run("make its device node", "dmsetup", ["mknodes", NAME]);
}

/** Removes the disk, and what a failed test left on it. */
async function removeDevice(): Promise<void> {
  const remove = () => run("remove the disk", "dmsetup", ["remove", ...NO_UDEV, NAME]);
  const isRemoved = () => remove().then(() => true, () => false);
  if (await isRemoved()) return;
  // LVM knows the order: the forced removal of a part of a thin pool can wait for ever for another one
  await run("deactivate what is left", "lvm", ["vgchange", "-qq", "-an"]).catch(() => {});
  if (await isRemoved()) return;
  const names = (await run("list devices", "dmsetup", ["ls"])).split("\n").map((line) => line.split("\t")[0]!);
  for (let attempt = 0; attempt < 3; attempt++) { // a device can be in use by another one
    for (const name of names.filter((name) => name.startsWith("power-") && name !== NAME)) {
      await run("remove a device", "dmsetup", ["remove", ...NO_UDEV, "--force", name]).catch(() => {});
    }
  }
  await run("remove the disk", "dmsetup", ["remove", ...NO_UDEV, "--retry", NAME]);
}

/** Reads bytes of a file or a disk; fewer at its end. */
export async function readAt(file: Deno.FsFile, offset: number, length: number): Promise<Uint8Array> {
  const bytes = new Uint8Array(length);
  await file.seek(offset, Deno.SeekMode.Start);
  let count = 0;
  while (count < length) {
    const read = await file.read(bytes.subarray(count));
    if (read === null) return bytes.subarray(0, count);
    count += read;
  }
  return bytes;
}

async function writeAt(file: Deno.FsFile, offset: number, bytes: Uint8Array): Promise<void> {
  await file.seek(offset, Deno.SeekMode.Start);
  for (let count = 0; count < bytes.length;) count += await file.write(bytes.subarray(count));
}
