import { columns } from "./table.ts";

/** The times of one way to create volumes, for so many claims at once. */
export interface ProvisioningResult {
  /** From the first request to the last claim being Bound, in milliseconds. */
  readonly boundMs: number;
  /** From the first deletion until only LVs that are erased later are left, in milliseconds. */
  readonly deletedMs: number;
  /** Requests to the API server of who makes the volumes, the agent not among them, Leases left out, until all were Bound. */
  readonly controllerRequests: number;
  /** Requests of the agent until all were Bound. */
  readonly agentRequests: number;
  /** Commands of LVM on the node until all were Bound; absent where the node's kernel cannot record them. */
  readonly commands?: number;
}

/** Memory of a process, in MiB. */
export interface ProcessMemory {
  readonly rss: number;
  readonly anonymous: number;
}

/** Processor time, in milliseconds: of a process, and of the commands that it started and that have ended. */
export interface CpuResult {
  readonly own: number;
  readonly commands: number;
}

/** What pods wait for: medians, in milliseconds. */
export interface PodResult {
  /** The number of pods of each kind. */
  readonly runs: number;
  /** A pod without a volume: from its creation until it runs, and from its deletion until it is gone. */
  readonly plain: { readonly runningMs: number; readonly goneMs: number };
  /** From the creation of a claim and its pod until the pod runs. */
  readonly runningMs: number;
  /** From the deletion of both until pod, claim and PersistentVolume are gone. */
  readonly goneMs: number;
  /** The longest of these times. */
  readonly maximum: { readonly runningMs: number; readonly goneMs: number };
  /** Processor time of the agent for each claim and its pod, from creation to deletion. */
  readonly agentCpuMs: CpuResult;
}

/** The output of `deno task bench:cluster --json`. Times are in milliseconds, for all claims together. */
export interface ClusterBenchResult {
  /** The number of claims, all at once. */
  readonly claims: number;
  /** As many plain lvcreate, and lvremove, one after the other. */
  readonly plain: { readonly boundMs: number; readonly deletedMs: number };
  /** The controller in a pod. */
  readonly pod: ProvisioningResult;
  /** The controller on the host; absent with `--in-pods`. */
  readonly onHost?: {
    /** With its own loops: the faster of two runs. */
    readonly own: ProvisioningResult;
    /** Behind the official csi-provisioner: the faster of two runs, which alternate with the other two. */
    readonly official: ProvisioningResult;
  };
  /** A claim and its pod, one after the other, beside pods without a volume. */
  readonly pods: PodResult;
  /** Processor time while nothing happens, for each minute. */
  readonly idleCpuMs: { readonly controller: CpuResult; readonly node: CpuResult };
  /** Memory in MiB of both processes in their pods, after that: resident, and the anonymous part of it. */
  readonly memoryMiB: { readonly controller: ProcessMemory; readonly agent: ProcessMemory };
}

/** Formats the result for people. */
export function clusterTable({ claims, plain, pod, onHost, memoryMiB, pods, idleCpuMs }: ClusterBenchResult): string {
  const beside = (ms: number, plainMs: number) => [seconds(ms), (ms / plainMs).toFixed(1)];
  const times = ({ boundMs, deletedMs }: { boundMs: number; deletedMs: number }) => [
    ...beside(boundMs, plain.boundMs),
    ...beside(deletedMs, plain.deletedMs),
  ];
  const row = (label: string, result: ProvisioningResult) => [
    ...[label, ...times(result)],
    ...[result.controllerRequests, result.agentRequests, result.commands].map((count) =>
      count === undefined ? "" : (count / claims).toFixed(1)
    ),
  ];
  const { controller, agent } = memoryMiB;
  return [
    `${claims} claims at once; requests and commands are per claim`,
    "",
    ...columns([
      ["Volumes made by", "Bound", "ratio", "deleted", "ratio", "requests", "agent's requests", "LVM commands"],
      ["plain lvcreate", ...times(plain), "", "", "1.0"],
      row("denolith, all in pods", pod),
      ...onHost === undefined ? [] : [
        row("denolith, controller on the host", onHost.own),
        row("csi-provisioner, both on the host", onHost.official),
      ],
    ]),
    "",
    ...columns([
      [`Median of ${pods.runs} pods`, "runs after", "longest", "gone after", "longest"],
      ["without a volume", seconds(pods.plain.runningMs), "", seconds(pods.plain.goneMs), ""],
      [
        "with its claim and PV",
        ...[pods.runningMs, pods.maximum.runningMs, pods.goneMs, pods.maximum.goneMs].map(seconds),
      ],
    ]),
    "",
    `Processor time of the agent per claim and pod: ${cpuText(pods.agentCpuMs)}`,
    `Processor time while idle, per minute: controller ${cpuText(idleCpuMs.controller)}; agent ${
      cpuText(idleCpuMs.node)
    }`,
    `Memory, and anonymous: controller ${controller.rss} (${controller.anonymous}) MiB, agent ${agent.rss} (${agent.anonymous}) MiB`,
  ].join("\n");
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

function cpuText({ own, commands }: CpuResult): string {
  return `${(own / 1000).toFixed(2)} s and ${(commands / 1000).toFixed(2)} s of its commands`;
}
