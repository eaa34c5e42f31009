/**
 * What an operation costs a node by the number of its volumes, on the fake machine: commands, and the bytes that they
 * print. `deno task bench:scale --node` prints it.
 *
 * @module
 */

import { openMachine } from "../../../lvm/machine.ts";
import type { Command, Exec } from "../../../lvm/exec.ts";
import { ANY_GROUP } from "../../../lvm/model/groups.ts";
import { DRIVER } from "../../fake/cluster/control_plane.ts";
import { FakeMachine } from "../../fake/machine/machine.ts";
import { namedRequest } from "../../fake/request.ts";
import { cpuMs } from "../../fake/cpu_time.ts";
import { columns } from "../table.ts";
import { round } from "../statistics.ts";

/** What an operation cost. */
export interface OperationCost {
  readonly operation: string;
  readonly volumes: number;
  readonly commands: number;
  readonly kib: number;
  readonly cpuMs: number;
}

const MIB = 1n << 20n;

/** A machine whose commands and output are counted. */
class CountedExec implements Exec {
  readonly machine = new FakeMachine();
  commands = 0;
  bytes = 0;

  async run(command: Command) {
    const output = await this.machine.run(command);
    this.commands++;
    this.bytes += output.stdout.length;
    return output;
  }

  idle(): Promise<void> {
    return this.machine.idle();
  }
}

/** Measures operations on a node with so many volumes. */
export async function measureNode(count: number): Promise<OperationCost[]> {
  const exec = new CountedExec();
  // the metadata of a group takes some 800 volumes
  for (let group = 0; group * 400 < count; group++) exec.machine.addGroup(`data${group}`, 410n * 16n * MIB);
  const { volumes } = openMachine({
    ...{ exec, driver: DRIVER, groups: ANY_GROUP, mountRoots: ["/mnt"], scratch: "/mnt" },
    recorded: { volume: () => undefined, snapshot: () => undefined },
  });
  for (let index = 0; index < count; index++) await volumes.create(namedRequest(`volume-${index}`, 8n * MIB));
  const wanted = namedRequest("measured", 8n * MIB);
  const measure = async (operation: string, body: () => Promise<unknown>) => {
    const [commands, bytes, cpu] = [exec.commands, exec.bytes, cpuMs()];
    await body();
    const kib = round((exec.bytes - bytes) / 1024, 1);
    return { operation, volumes: count, commands: exec.commands - commands, kib, cpuMs: round(cpuMs() - cpu, 1) };
  };
  return [
    await measure("CreateVolume", () => volumes.create(wanted)),
    await measure("ControllerExpandVolume", () => volumes.expand(wanted.id, { required: 12n * MIB })),
    await measure("ListVolumes", () => volumes.list()),
    await measure("DeleteVolume", () => volumes.delete(wanted.id)),
  ];
}

/** Formats the costs for people. */
export function nodeTable(costs: readonly OperationCost[]): string {
  const rows = costs.map(({ operation, volumes, commands, kib, cpuMs }) => [
    ...[operation, `${volumes}`, `${commands}`, `${kib} KiB`, `${cpuMs} ms`],
  ]);
  return columns([["Operation", "volumes", "commands", "output", "CPU"], ...rows]).join("\n");
}
