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
  /** Commands of LVM on the node until all were Bound. */
  readonly commands: number;
}

/** The output of `deno task bench:cluster --json`. Times are in milliseconds, for all claims together. */
export interface ClusterBenchResult {
  /** The number of claims, all at once. */
  readonly claims: number;
  /** As many plain lvcreate, and lvremove, one after the other. */
  readonly plain: { readonly boundMs: number; readonly deletedMs: number };
  /** The controller in a pod. */
  readonly pod: ProvisioningResult;
  /** The controller on the host, with its own loops: the faster of two runs. */
  readonly own: ProvisioningResult;
  /**
   * The controller on the host, behind the official csi-provisioner: the faster of two runs, which alternate with the
   * other two.
   */
  readonly official: ProvisioningResult;
  /** Memory in MiB, after it. */
  readonly rssMiB: { readonly controller: number; readonly agent: number };
}

/** Formats the result for people. */
export function clusterTable({ claims, plain, rssMiB, ...results }: ClusterBenchResult): string {
  const row = (label: string, result: ProvisioningResult) => [
    label,
    ...[result.boundMs, result.deletedMs].map((ms) => `${(ms / 1000).toFixed(1)} s`),
    (result.boundMs / plain.boundMs).toFixed(1),
    ...[result.controllerRequests, result.agentRequests, result.commands].map((count) => (count / claims).toFixed(1)),
  ];
  return [
    `${claims} claims at once; requests and commands are per claim`,
    "",
    ...columns([
      ["Volumes made by", "Bound", "deleted", "ratio", "requests", "agent's requests", "LVM commands"],
      ["plain lvcreate", ...[plain.boundMs, plain.deletedMs].map((ms) => `${(ms / 1000).toFixed(1)} s`), "1.0"]
        .concat(["", "", "1.0"]),
      row("denolith, all in pods", results.pod),
      row("denolith, controller on the host", results.own),
      row("csi-provisioner, both on the host", results.official),
    ]),
    "",
    `Memory (RSS): controller ${rssMiB.controller} MiB, agent ${rssMiB.agent} MiB`,
  ].join("\n");
}
