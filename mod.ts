/**
 * denolith as a library: the driver for those who embed it.
 *
 * @module
 */

export { type Driver, type StandaloneOptions, startStandalone } from "./csi/driver.ts";
export type { ThinOptions } from "./csi/machine.ts";
export { parseMountRoots } from "./csi/mount_roots.ts";
export { parseGroupList } from "./csi/parameters.ts";
export { type ErrorKind, StorageError } from "./lvm/error.ts";
export { type Command, type Deadlines, type Exec, HostExec, type Output, type Program, PROGRAMS } from "./lvm/exec.ts";
export type { GroupMatcher } from "./lvm/groups.ts";
export type { PoolGrowth } from "./lvm/pool_growth.ts";
export type { StorePolicy } from "./lvm/store_growth.ts";
