/**
 * All fuzz targets.
 *
 * @module
 */

import { API_TARGET } from "./api_target.ts";
import { DIFFERENCE_TARGETS } from "./difference_targets.ts";
import { KUBECONFIG_TARGET } from "./kubeconfig_target.ts";
import { LVM_TARGETS } from "./lvm_targets.ts";
import { TEXT_TARGETS } from "./text_targets.ts";
import { OBJECT_TARGETS } from "./object_target.ts";
import { RPC_TARGET } from "./rpc_target.ts";
import { SOCKET_TARGET } from "./socket_target.ts";
import { TRANSFER_TARGET } from "./transfer_target.ts";
import type { Target } from "./target.ts";

/** All targets, in the order in which they run. */
export const TARGETS: readonly Target[] = [
  ...LVM_TARGETS,
  ...DIFFERENCE_TARGETS,
  ...TEXT_TARGETS,
  KUBECONFIG_TARGET,
  API_TARGET,
  ...OBJECT_TARGETS,
  RPC_TARGET,
  SOCKET_TARGET,
  TRANSFER_TARGET,
];
