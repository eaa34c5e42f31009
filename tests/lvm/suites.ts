/**
 * The suites of `deno task test:lvm`. Each runs in a guest of its own, so that none sees what another one does.
 *
 * @module
 */

import type { DebianRelease } from "../rig/guest_image.ts";
import type { MachineKind } from "../rig/machine.ts";

/** A suite, or a part of one. */
export interface Suite {
  /** The name in the output, such as `contract-1`. */
  readonly name: string;
  /** The module in tests/lvm/ with its tests, without `_suite.ts`; csi-sanity has none. */
  readonly module?: string;
  /** The sizes of its disks, in GiB. */
  readonly disksGiB: readonly number[];
  /** Whether it runs only with `--full`, or when it is named. */
  readonly onlyFull?: true;
  /** The Debian of its guest, whatever that of the others is. */
  readonly debian?: DebianRelease;
  /** Parameters for the kernel of its guest. */
  readonly kernelParameters?: readonly string[];
  /** The SELinux policy that is enforced in its guest, as a file in tests/lvm/ in CIL. */
  readonly policy?: string;
  /** Profiles for AppArmor, as files in tests/lvm/. The suite finds them compiled, as /work/NAME. */
  readonly profiles?: readonly string[];
  /** The part of the module's tests that runs, such as `1/4`; all by default. */
  readonly part?: string;
}

/**
 * Prefixes of the tests that a kind of machine cannot pass. User-mode Linux mounts ext2 with its own driver, which cannot
 * grow a mounted filesystem; Debian's usual kernels use the ext4 driver.
 */
export const UNSUPPORTED_PREFIXES: Readonly<Record<MachineKind, readonly string[]>> = {
  uml: ["ext2: ", "a clone of a mounted ext2"],
  qemu: [],
};

const CONTRACT_PARTS = 4;

const POWER_CUTS_PARTS = 2;

/** The suites, the longest first. */
export const SUITES: readonly Suite[] = [
  { name: "csi-sanity-mount", disksGiB: [4] },
  ...Array.from({ length: CONTRACT_PARTS }, (_, i) => ({
    name: `contract-${i + 1}`,
    module: "contract",
    disksGiB: [1, 3],
    part: `${i + 1}/${CONTRACT_PARTS}`,
  })),
  { name: "sigkill", module: "sigkill", disksGiB: [1] },
  ...Array.from({ length: POWER_CUTS_PARTS }, (_, i) => ({
    name: `power_cuts-${i + 1}`,
    module: "power_cuts",
    disksGiB: [4],
    part: `${i + 1}/${POWER_CUTS_PARTS}`,
  })),
  { name: "group_snapshots", module: "group_snapshots", disksGiB: [1, 3] },
  { name: "csi-sanity-block", disksGiB: [4], onlyFull: true },
  { name: "csi-sanity-encrypted-mount", disksGiB: [4], onlyFull: true },
  { name: "csi-sanity-encrypted-block", disksGiB: [4], onlyFull: true },
  { name: "layouts", module: "layouts", disksGiB: [], onlyFull: true },
  { name: "faults", module: "faults", disksGiB: [1, 1] },
  { name: "differences", module: "differences", disksGiB: [1, 3], onlyFull: true },
  { name: "large_difference", module: "large_difference", disksGiB: [220], onlyFull: true },
  { name: "erasure", module: "erasure", disksGiB: [1, 3], onlyFull: true },
  { name: "encryption_cost", module: "encryption_cost", disksGiB: [1, 3], onlyFull: true },
  { name: "lvm_defaults", module: "lvm_defaults", disksGiB: [1, 3], onlyFull: true },
  { name: "differential", module: "differential", disksGiB: [1, 1, 1], onlyFull: true },
  { name: "debian_13", module: "debian_13", disksGiB: [1, 3], debian: "trixie", onlyFull: true },
  { name: "transfers", module: "transfers", disksGiB: [2] },
  {
    ...{ name: "selinux", module: "selinux", disksGiB: [1, 3] },
    ...{ kernelParameters: ["security=selinux"], policy: "selinux.cil", onlyFull: true },
  },
  {
    ...{ name: "apparmor", module: "apparmor", disksGiB: [1, 1] },
    ...{ kernelParameters: ["security=apparmor"], profiles: ["apparmor.profiles", "apparmor_path.profiles"] },
    ...{ onlyFull: true },
  },
  { name: "hosts", module: "hosts", disksGiB: [1, 1], onlyFull: true },
  { name: "disks", module: "disks", disksGiB: [2, 2] },
  { name: "stacked_devices", module: "stacked_devices", disksGiB: [1, 3] },
  { name: "hostile_tenants", module: "hostile_tenants", disksGiB: [1, 3] },
  { name: "permission_set", module: "permission_set", disksGiB: [2] },
];

/**
 * Returns a function that reports whether a test belongs to a part. It deals the tests out in the order in which they are
 * registered.
 *
 * @param part such as `2/4`, or empty for all tests
 */
export function partSelector(part: string): () => boolean {
  if (part === "") return () => true;
  const [number, parts] = part.split("/").map(Number) as [number, number];
  let count = 0;
  return () => count++ % parts === number - 1;
}
