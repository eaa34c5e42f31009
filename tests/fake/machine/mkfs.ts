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

/** Features of xfs that mkfs.xfs switches on, and that kernels before 5.10 do not know. */
const XFS_FEATURES = ["bigtime", "inobtcount"];

/** Creates an xfs, which old kernels may not mount. */
export function mkfsXfs(machine: FakeMachine, args: readonly string[]): ReturnType<Tool> {
  if (args[0] === "-V") return ok("mkfs.xfs version 6.1.0\n");
  const given = (flag: string) => args.flatMap((arg, at) => arg === flag ? args[at + 1]!.split(",") : []);
  for (const flag of ["-m", "-s", "-i", "-b"]) {
    const names = given(flag).map((option) => option.split("=")[0]!);
    const twice = names.find((name, at) => names.indexOf(name) !== at);
    if (twice !== undefined) return failure(1, `${flag} ${twice} option respecified\nUsage: mkfs.xfs`);
  }
  const bytesOf = (flag: string, otherwise: number) => {
    const text = given(flag).find((option) => option.startsWith("size="))?.slice("size=".length);
    return text === undefined ? otherwise : parseInt(text) * (text.endsWith("k") ? 1024 : 1);
  };
  const [sector, block] = [bytesOf("-s", 512), bytesOf("-b", 4096)];
  if (block < sector) return failure(1, `block size ${block} cannot be smaller than sector size ${sector}`);
  const uuidOf = () => optionValue(args, "-m").replace(/^uuid=/, "");
  const output = newFilesystem("xfs", 300n << 20n, uuidOf)(machine, args);
  const lv = machine.lvAt(args.at(-1)!);
  if (output.code !== 0 || lv === undefined) return output;
  lv.content.blockBytes = BigInt(sector);
  lv.content.needsNewKernel = XFS_FEATURES.some((name) => !given("-m").includes(`${name}=0`));
  return output;
}

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
  const block = args.includes("-b")
    ? Number(args[args.lastIndexOf("-b") + 1])
    : (lv?.size ?? 0n) < 512n << 20n
    ? 1024
    : 4096;
  const journal = /^size=(\d+)$/.exec(args[args.indexOf("-J") + 1] ?? "")?.[1];
  if (journal !== undefined && Number(journal) * 1024 < block) {
    return failure(
      1,
      `The total requested journal size is ${Number(journal) * 2 ** 20 / block} blocks; it must be\n` +
        "between 1024 and 10240000 blocks.  Aborting.",
    );
  }
  if (lv !== undefined) lv.content.signatures = [];
  const output = make(machine, args);
  if (output.code === 0 && lv !== undefined) {
    Object.assign(lv.content, {
      blockBytes: BigInt(block),
      features: args.includes("-O") ? optionValue(args, "-O").split(",") : [],
    });
  }
  return output;
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
