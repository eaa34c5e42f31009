/**
 * The volume groups that the fake machine's `lvm` does not change, after LVM 2.03.
 *
 * @module
 */

import type { Output } from "../../../lvm/exec.ts";
import { failure, type FakeMachine } from "./machine.ts";
import { refuseDuplicates } from "./stacked_devices.ts";

/** The subcommands that change the metadata of a group. Activation changes none. */
const WRITING = ["lvcreate", "lvremove", "lvextend", "lvchange", "lvconvert", "lvrename", "vgchange", "vgextend"];

/** Returns the refusal of a command that changes a group; `undefined` when LVM accepts changes of it. */
export function refuseAccess(machine: FakeMachine, subcommand: string, args: readonly string[]): Output | undefined {
  if (!WRITING.includes(subcommand)) return undefined;
  const [group, ...others] = machine.groups.filter(({ name }) =>
    args.some((arg) => arg === name || arg.startsWith(`${name}/`))
  );
  if (group === undefined) return undefined;
  const { name } = group;
  const refusal = (reason: string) => failure(5, `  ${reason}\n  Cannot process volume group ${name}`);
  if (others.some((other) => other.name === name && other.uuid !== group.uuid)) {
    const hint = "  Use --select vg_uuid=<uuid> in place of the VG name.";
    return failure(5, `  Multiple VGs found with the same name: skipping ${name}\n${hint}`);
  }
  const duplicates = refuseDuplicates(machine, group.uuid);
  if (duplicates !== undefined) return duplicates;
  if (group.exported) return refusal(`Volume group ${name} is exported`);
  const isActivation = args.includes("--activate") || args.includes("--refresh");
  if (group.unchangeable !== undefined && !isActivation) return failure(5, `  ${group.unchangeable}`);
  return group.readOnly && !isActivation ? refusal(`Volume group ${name} is read-only`) : undefined;
}
