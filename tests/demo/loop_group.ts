import { join } from "@std/path";
import { run, succeeds } from "./command.ts";
import { pause } from "./data.ts";

/** The file of LVM's devices, on systems that have one. */
const DEVICES_FILE = "/etc/lvm/devices/system.devices";

/** The bytes of the group's file that the demo may fill, with a reserve. */
const NEEDED_BYTES = 512 * 1024 ** 2;

/** A volume group on a loop device on a sparse file, all of which are gone when it is disposed of. */
export class LoopGroup implements AsyncDisposable {
  /** The group's name. */
  readonly name: string;
  /** The loop device of the group. */
  readonly device: string;
  /** The file of the loop device. */
  readonly file: string;
  readonly #cleanup: AsyncDisposableStack;

  private constructor(name: string, device: string, file: string, cleanup: AsyncDisposableStack) {
    this.name = name;
    this.device = device;
    this.file = file;
    this.#cleanup = cleanup;
  }

  /**
   * Creates a group of this name and size, with its file in `folder`.
   *
   * @throws {Error} when a command fails or there is too little space in the folder; what was created until then is
   * removed
   */
  static async create(folder: string, name: string, bytes: number): Promise<LoopGroup> {
    await requireSpace(folder);
    await using cleanup = new AsyncDisposableStack();
    const file = join(folder, "disk.img");
    await Deno.writeFile(file, new Uint8Array(), { createNew: true });
    cleanup.defer(() => Deno.remove(file));
    await Deno.truncate(file, bytes);
    const device = (await run("attach a loop device", "losetup", ["--find", "--show", file])).trim();
    cleanup.defer(() => detach(device, file));
    cleanup.defer(() => removeFromDevicesFile(device, file));
    await run(`make the volume group ${name}`, "lvm", ["vgcreate", "--yes", name, device]);
    cleanup.defer(() => removeGroup(name));
    return new LoopGroup(name, device, file, cleanup.move());
  }

  /**
   * Returns the requested fields of lvs(8) of the group's logical volumes, by name.
   *
   * @throws {Error} when lvs fails
   */
  async volumes(fields: readonly string[]): Promise<Record<string, string>[]> {
    const args = ["lvs", "--reportformat", "json", "--units", "b", "--options", fields.join(","), this.name];
    const { report: [report] } = JSON.parse(await run("list logical volumes", "lvm", args));
    return report.lv;
  }

  /**
   * Returns the group's tags.
   *
   * @throws {Error} when vgs fails
   */
  async tags(): Promise<string[]> {
    const args = ["vgs", "--noheadings", "--options", "vg_tags", this.name];
    const tags = (await run("read the volume group's tags", "lvm", args)).trim();
    return tags === "" ? [] : tags.split(",");
  }

  /** Removes the group with whatever is in it, the loop device and the file. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#cleanup.disposeAsync();
  }
}

/**
 * Checks that the folder's filesystem is not nearly full: a sparse file could become larger than it.
 *
 * @throws {Error} when it is
 */
async function requireSpace(folder: string): Promise<void> {
  const answer = await run("read the free space", "df", ["--block-size=1", "--output=avail", folder]);
  const free = Number(answer.trim().split("\n").at(-1));
  if (free >= NEEDED_BYTES) return;
  const mebibytes = (bytes: number) => `${Math.floor(bytes / 1024 ** 2)} MiB`;
  throw new Error(
    `make a file for the volume group: ${folder} has ${mebibytes(free)} free and up to ${
      mebibytes(NEEDED_BYTES)
    } are ` +
      `needed; set TMPDIR to a folder with more free space`,
  );
}

async function removeGroup(name: string): Promise<void> {
  await run(`remove the volume group ${name}`, "lvm", ["vgremove", "--force", "--yes", name]);
}

/** Takes the loop device out of LVM's list of devices, to which vgcreate added it where there is one. */
async function removeFromDevicesFile(device: string, file: string): Promise<void> {
  const list = await Deno.readTextFile(DEVICES_FILE).catch(() => "");
  if (!list.includes(file)) return;
  await run(`take ${device} off LVM's list of devices`, "lvm", ["lvmdevices", "--yes", "--deldev", device]);
}

/** Detaches the loop device, and waits until the kernel has released the file: udev may still read the device. */
async function detach(device: string, file: string): Promise<void> {
  await run(`detach ${device}`, "losetup", ["--detach", device]);
  for (let tries = 0; tries < 50; tries++) {
    const attached = await run("list loop devices", "losetup", [
      "--noheadings",
      "--output",
      "NAME",
      "--associated",
      file,
    ]);
    if (attached.trim() === "") return;
    await pause(100);
  }
  throw new Error(`detach ${device}: something still uses it`);
}

/**
 * Returns the first reason why a group cannot be made and used on this machine by this user, in words; `undefined`
 * without one.
 */
export async function unsupportedReason(): Promise<string | undefined> {
  if (Deno.uid() !== 0) return "device-mapper takes root";
  if (!await hasDeviceMapper()) return "this machine's kernel has no device-mapper";
  if (!await succeeds("lvm", ["version"])) return "lvm2 is not installed here";
  if (!await succeeds("mkfs.ext4", ["-V"])) return "e2fsprogs is not installed here";
  if (!await succeeds("dmsetup", ["version"])) return "device-mapper does not answer here";
  if (!await succeeds("losetup", ["--find"])) return "there is no loop device to be had here";
  return undefined;
}

/** Reports whether the kernel has device-mapper, loaded or as a module. */
async function hasDeviceMapper(): Promise<boolean> {
  const devices = await Deno.readTextFile("/proc/misc").catch(() => "");
  return /\bdevice-mapper$/m.test(devices) || await succeeds("modprobe", ["--dry-run", "dm_mod"]);
}
