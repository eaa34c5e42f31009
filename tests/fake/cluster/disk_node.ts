/**
 * A node with spare disks, its LVMNode, and an agent that takes what is accepted. The agent can crash at any command and request.
 *
 * @module
 */

import type { ApiClient } from "../../../k8s/client/client.ts";
import { type AcceptedDisk, type LvmNode, lvmNodes, type LvmVolume } from "../../../k8s/api/lvm_objects.ts";
import { nodes, type VolumeAttachment, volumeAttachments } from "../../../k8s/api/objects.ts";
import { DiskReports } from "../../../k8s/disks/disk_reports.ts";
import { DiskTaker } from "../../../k8s/disks/disk_taker.ts";
import { DiskTaking } from "../../../lvm/disks/taking.ts";
import { type DiskRule, readNamedDisks } from "../../../lvm/disks/reading.ts";
import { Lvm } from "../../../lvm/client/client.ts";
import type { Exec } from "../../../lvm/exec.ts";
import { readSurvey } from "../../../lvm/model/survey.ts";
import { type FakeDisk, spareDisk } from "../machine/disks.ts";
import { FakeMachine } from "../machine/machine.ts";

/** Runs before each command and each request of the agent, and after it. */
export type Interceptor = (what: string, when: "before" | "after") => Promise<void> | void;

const KUBELET = "/var/lib/kubelet";

/** The rule of the node: all disks for the volume group `data`. */
export const RULES: readonly DiskRule[] = [{ group: "data", names: { matches: () => true } }];

/** What the node and the API server have: all that outlives an agent. */
export class DiskNode {
  /** The machine, unless agents are given another one. */
  readonly machine = new FakeMachine();
  node: LvmNode = { metadata: { name: "n1", uid: "u1" }, spec: { driverName: "d" }, status: {} };
  volumes: LvmVolume[] = [];
  attachments: VolumeAttachment[] = [];
  readonly events: string[] = [];
  /** The number of times that an agent has asked for the next report before its time. */
  requeued = 0;

  /** Adds a disk that nobody uses. */
  addDisk(letter: string, change: Partial<FakeDisk> = {}): FakeDisk {
    const disk = spareDisk(letter, change);
    this.machine.host.disks.push(disk);
    return disk;
  }

  /**
   * Starts an agent.
   *
   * @param options.rules the rules; by default all disks are for the group `data`
   * @returns what lets it report and take once
   */
  agent(
    intercept: Interceptor = () => {},
    { machine = this.machine, rules = RULES, kubeletDirectory = KUBELET }: {
      readonly machine?: Pick<Exec, "run">;
      readonly rules?: readonly DiskRule[];
      readonly kubeletDirectory?: string;
    } = {},
  ): () => Promise<void> {
    const exec: Exec = {
      run: async (command) => {
        const what = `${command.program} ${command.args[0]}`;
        await intercept(what, "before");
        const output = await machine.run(command);
        await intercept(what, "after");
        return output;
      },
      idle: () => Promise.resolve(),
    };
    const client = this.#client(intercept);
    const events = {
      record: (_: unknown, type: string, reason: string, message: string) =>
        void this.events.push(`${type} ${reason} ${message}`),
    };
    const options = { rules, kubeletDirectory };
    const reports = new DiskReports({ events, read: () => readNamedDisks(exec, options) });
    const taker = new DiskTaker({
      ...{ client, events, nodeName: "n1", driver: "d", onChange: () => void this.requeued++ },
      volumeObjects: { hasSynced: true, list: () => this.volumes },
      taking: new DiskTaking({ lvm: new Lvm(exec), ...options }),
    });
    return async () => {
      const { groups } = await readSurvey(exec);
      const volumeGroups = groups.map(({ name, uuid, size }) => ({ name, uuid, size: `${size}` })) as never;
      const known = structuredClone(this.node);
      const conditions = taker.observe(groups) as never;
      const disks = await reports.update(known);
      const merge = { status: { volumeGroups, conditions, ...(disks && { disks }) } };
      await taker.reconcile(await client.patch(lvmNodes, { name: "n1" }, { merge, subresource: "status" }));
    };
  }

  /** Accepts a disk as it is reported now, as an administrator does. */
  accept(name: string, change: Partial<AcceptedDisk> = {}): void {
    const disk = this.node.status!.disks!.find((one) => one.name === name)!;
    const group = this.node.status!.volumeGroups!.find((one) => one.name === disk.volumeGroup);
    const accepted: AcceptedDisk = {
      ...{ name, volumeGroup: disk.volumeGroup, identity: disk.identity! },
      ...(group && { volumeGroupUUID: group.uuid }),
      ...change,
    };
    this.node.spec.acceptedDisks = [...this.node.spec.acceptedDisks ?? [], accepted];
  }

  /** What became of a disk. */
  outcome(name: string) {
    return this.node.status?.acceptedDisks?.find((one) => one.name === name);
  }

  /** A condition. */
  condition(type: string) {
    return this.node.status?.conditions?.find((one) => one.type === type);
  }

  /** The groups with the paths of their physical volumes, and the physical volumes without a group. */
  get layout(): string[] {
    const { groups, host: { unusedPvs } } = this.machine;
    return [
      ...groups.map(({ name, pvs }) => `${name}: ${pvs.map(({ path }) => path).join(" ")}`),
      ...unusedPvs.map(({ path }) => `unassigned: ${path}`),
    ];
  }

  #client(intercept: Interceptor): ApiClient {
    const request = async <T>(what: string, run: () => T): Promise<T> => {
      await intercept(what, "before");
      const answer = structuredClone(run());
      await intercept(what, "after");
      return answer;
    };
    return {
      get: (resource: unknown) => request("get", () => resource === nodes ? { metadata: { name: "n1" } } : this.node),
      list: (resource: unknown) => {
        if (resource !== volumeAttachments) throw new Error("no such list");
        return request("list", () => ({ items: this.attachments }));
      },
      patch: (resource: unknown, _: unknown, options: { merge: { status: object }; subresource?: string }) => {
        if (resource !== lvmNodes || options.subresource !== "status") throw new Error("agents patch the status alone");
        return request("patch", () => {
          Object.assign(this.node.status!, structuredClone(options.merge.status));
          return this.node;
        });
      },
    } as unknown as ApiClient;
  }
}
