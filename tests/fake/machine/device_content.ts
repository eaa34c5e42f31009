/**
 * The content of the fake machine's devices.
 *
 * @module
 */

/** The content of a device. */
export interface DeviceContent {
  /** True if the first 4 KiB are zeros. */
  zeroHead: boolean;
  /** The signatures that libblkid finds, and whether it is of a filesystem that was mounted. */
  signatures: { type: string; uuid: string; wasMounted?: true }[];
  /** The size of the filesystem in bytes. */
  filesystemBytes: bigint;
  /** The size of the blocks of an ext2, ext3 or ext4, or of the sectors of an xfs, in bytes. */
  blockBytes: bigint;
  /** The features that mke2fs was asked for. */
  features?: string[];
  /** True if kernels before 5.10 do not mount the filesystem. */
  needsNewKernel?: boolean;
  /** True if reading fails. */
  unreadable: boolean;
  /** The exit status of the next filesystem check. */
  checkStatus: number;
  /** Names of data that was written and can be read from the device until it is overwritten. */
  data: Set<string>;
  writes: ReadonlyMap<number, number>; // a number for each write of dd to its chunks of 4 KiB, negative for zeros
  /** True if a filesystem was checked, or for xfs unmounted, since its last change. */
  isClean: boolean;
  /** True if a program was killed while it changed it. No other program continues with it. */
  isInconsistent: boolean;
  /** Its LUKS header, if it has one. */
  luks?: FakeLuks | undefined;
}

/** A LUKS header, and what is below it. */
export interface FakeLuks {
  uuid: string;
  /** The passphrases of its key slots; `undefined` for a slot that was destroyed. */
  passphrases: (string | undefined)[];
  /** The numbers of the key slots with the priority `ignore`, which are tried only by their number; none by default. */
  ignored?: number[];
  /** Its subsystem; empty by default. */
  subsystem?: string;
  /** The number of its volume key. */
  volumeKey: number;
  /** True while its data is encrypted by two volume keys. */
  isReencrypting?: boolean;
  /** What its mapping shows. It is there also when no key slot is left. */
  content: DeviceContent;
}

/** Returns the content of an empty device. */
export function blankContent(): DeviceContent {
  return {
    zeroHead: true,
    signatures: [],
    filesystemBytes: 0n,
    blockBytes: 4096n,
    unreadable: false,
    checkStatus: 0,
    data: new Set(),
    writes: new Map(),
    isClean: true,
    isInconsistent: false,
  };
}

/** Returns a copy of a content, with data that it has of its own. */
export function copyOf(content: DeviceContent): DeviceContent {
  return {
    ...content,
    signatures: content.signatures.map((signature) => ({ ...signature })),
    data: new Set(content.data),
    ...(content.luks && {
      luks: { ...content.luks, passphrases: [...content.luks.passphrases], content: copyOf(content.luks.content) },
    }),
  };
}
