/**
 * The options of mkfs that the driver adds to those of a request: a new filesystem can be copied to a disk with any size of
 * sectors, and mounted by the kernel of its node.
 *
 * @module
 */

/** Returns the value of a flag; `undefined` when it is not among the options. */
function valueOf(options: readonly string[], flag: string): string | undefined {
  return options.includes(flag) ? options[options.indexOf(flag) + 1] : undefined;
}

/** Returns the default options of mke2fs(8): it would make blocks of 1 KiB below 512 MiB. */
export function extDefaults(options: readonly string[]): string[] {
  // a journal has at least 1024 blocks, and a cluster one: mke2fs refuses smaller ones than 4 MiB and 4 KiB then
  const isSmaller = Number(valueOf(options, "-J")?.replace("size=", "") ?? 4) < 4 ||
    Number(valueOf(options, "-C") ?? 4096) < 4096;
  return isSmaller || options.includes("-b") ? [] : ["-b", "4096"];
}

/** Returns the default options of mkfs.xfs(8): it would take the sectors of the disk. No sector is larger than a block. */
export function xfsDefaults(options: readonly string[]): string[] {
  const isSmaller = /^size=(?:[12]k|512|1024|2048)$/.test(valueOf(options, "-b") ?? "");
  return isSmaller || options.includes("-s") ? [] : ["-s", "size=4096"];
}

/** Features of XFS, with the first versions of kernel and xfsprogs that know them. Older kernels do not mount what has one. */
const XFS_FEATURES = [
  { flag: "-m", feature: "bigtime", since: [5, 10] },
  { flag: "-m", feature: "inobtcount", since: [5, 10] },
  { flag: "-i", feature: "nrext64", since: [5, 19] },
] as const;

/**
 * Returns those features of XFS that a kernel does not know. mkfs.xfs(8) of a newer version may switch them on.
 *
 * @param kernel the release of the kernel, as uname(1) prints it
 */
export function missingXfsFeatures(kernel: string): string[] {
  return XFS_FEATURES.filter(({ since }) => isOlder(kernel, since)).map(({ feature }) => feature);
}

/**
 * Returns the options that switch off the features of XFS that a kernel does not know.
 *
 * @param versions the release of the kernel, and what `mkfs.xfs -V` prints: an older one does not know the options either
 * @param options the options of the request, which decide
 */
export function xfsKernelOptions(
  { kernel, mkfs }: { readonly kernel: string; readonly mkfs: string },
  options: readonly string[],
): string[] {
  return XFS_FEATURES.filter(({ feature, since }) =>
    isOlder(kernel, since) && !isOlder(mkfs, since) && !options.some((option) => option.includes(`${feature}=`))
  ).flatMap(({ flag, feature }) => [flag, `${feature}=0`]);
}

/** Reports whether the first version in a text is older than another one. A text without one is not. */
function isOlder(text: string, [major, minor]: readonly [number, number]): boolean {
  const version = /(\d+)\.(\d+)/.exec(text);
  return version !== null && (Number(version[1]) - major || Number(version[2]) - minor) < 0;
}
