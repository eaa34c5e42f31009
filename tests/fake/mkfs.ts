/**
 * The fake machine's programs that create filesystems, after e2fsprogs 1.47, xfsprogs 6.1 and btrfs-progs 6.2.
 *
 * @module
 */

import { failure, type FakeMachine, isMounted, isReadOnly, ok, type Tool } from "./machine.ts";
import { deviceNotFound, notPermitted, optionValue } from "./tool_text.ts";

/** The features of compatible and incompatible change that libblkid knows of ext2 and ext3. All others are of ext4. */
const EXT3_FEATURES =
  /^(?:has_journal|ext_attr|resize_inode|dir_index|sparse_super2?|fast_commit|orphan_file|filetype|large_file)$/;

/** Creates a btrfs. */
export const mkfsBtrfs: Tool = newFilesystem("btrfs", 114294784n, (args) => optionValue(args, "-U"));

/** Creates an xfs. */
export const mkfsXfs: Tool = newFilesystem(
  "xfs",
  300n << 20n,
  (args) => optionValue(args, "-m").replace(/^uuid=/, ""),
);

/** Creates an ext2, ext3 or ext4, by its features. Without a terminal mke2fs overwrites without asking. */
export function mke2fs(machine: FakeMachine, args: readonly string[]): ReturnType<Tool> {
  const make = newFilesystem(extType(machine, args), 0n, () => optionValue(args, "-U"));
  const path = args.at(-1)!;
  const lv = machine.lvAt(path);
  if (lv !== undefined && isMounted(machine, lv)) {
    return failure(1, `${path} is mounted; will not make a filesystem here!`);
  }
  if (lv !== undefined && isReadOnly(lv)) {
    return failure(1, `${path}: Operation not permitted while setting up superblock`);
  }
  if (lv !== undefined) lv.content.signatures = [];
  return make(machine, args);
}

/** Returns the type that libblkid finds of what mke2fs creates. */
function extType({ host }: FakeMachine, args: readonly string[]): string {
  const values = (flag: string) => args.flatMap((arg, at) => arg === flag ? args[at + 1]!.split(",") : []);
  const features = new Set([...values("-t"), ...values("-T")].flatMap((type) => host.mke2fsConf.get(type) ?? []));
  for (const value of values("-O")) {
    if (value.startsWith("^")) features.delete(value.slice(1));
    else features.add(value);
  }
  if (args.includes("-j") || args.includes("-J")) features.add("has_journal");
  if ([...features].some((feature) => !EXT3_FEATURES.test(feature))) return "ext4";
  return features.has("has_journal") ? "ext3" : "ext2";
}

/** Runs a mkfs that refuses a device with content. */
function newFilesystem(type: string, minimum: bigint, uuidOf: (args: readonly string[]) => string): Tool {
  return (machine, args) => {
    const path = args.at(-1)!;
    const lv = machine.lvAt(path);
    if (lv === undefined) return deviceNotFound(`mkfs.${type}`, path);
    const [existing] = lv.content.signatures;
    if (existing !== undefined) {
      return failure(1, `mkfs.${type}: ${path} appears to contain an existing filesystem (${existing.type}).`);
    }
    if (lv.size < minimum) return failure(1, `mkfs.${type}: '${path}' is too small to make a usable filesystem`);
    if (isReadOnly(lv)) return notPermitted(`mkfs.${type}`, path);
    const uuid = uuidOf(args);
    if (!/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(uuid)) {
      throw new Error(`mkfs.${type}: an odd UUID ${uuid}`);
    }
    // The superblock of btrfs is behind the first 64 KiB.
    const made = { zeroHead: type === "btrfs", signatures: [{ type, uuid }], filesystemBytes: lv.size };
    Object.assign(lv.content, { ...made, isClean: true, isInconsistent: false });
    return ok();
  };
}
