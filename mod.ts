/**
 * denolith as a library: the driver for those who embed it.
 *
 * @module
 */

export { type Driver, type StandaloneOptions, startStandalone } from "./csi/standalone.ts";
export type { ThinOptions } from "./lvm/machine.ts";
export { parseMountRoots } from "./csi/mount_roots.ts";
export { parseGroupList } from "./csi/parameters.ts";
export { type ErrorKind, StorageError } from "./lvm/error.ts";
export { type Command, type Deadlines, type Exec, HostExec, type Output, type Program, PROGRAMS } from "./lvm/exec.ts";
export type { GroupMatcher } from "./lvm/model/groups.ts";
export type { PoolGrowth } from "./lvm/pools/pool_growth.ts";
export type { StorePolicy } from "./lvm/snapshots/cow_growth.ts";
