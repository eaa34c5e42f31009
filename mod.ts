/**
 * The driver as a library, for programs that embed it.
 *
 * @module
 */

export { type StandaloneDriver, type StandaloneOptions, startStandalone } from "./csi/standalone.ts";
export type { ThinPoolOptions } from "./lvm/machine.ts";
export { parseMountRoots } from "./csi/driver_options.ts";
export { parseGroupList } from "./csi/group_list.ts";
export { type Cause, ERROR_KINDS, type ErrorKind, type Reason, REASONS, StorageError } from "./base/error.ts";
export type { CommandStreams } from "./lvm/command_streams.ts";
export { type Command, type Deadlines, type Exec, HostExec, type Output, type Program, PROGRAMS } from "./lvm/exec.ts";
export type { GroupMatcher } from "./lvm/model/groups.ts";
export type { PoolAutoextend } from "./lvm/pools/pool.ts";
export type { SnapshotAutoextend } from "./lvm/snapshots/cow_autoextend.ts";
