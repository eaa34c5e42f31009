import { columns } from "../table.ts";
import type { BoundTimes, ControllerMemory, Cost, ScaleReport, ScaleResult } from "./result.ts";

/** Formats a run for people. */
export function scaleTable({ version, cpus, load, results }: ScaleReport): string {
  const title = `denolith ${version}, ${cpus} processors, load ${load.join(" to ")}`;
  return [title, ...results.map(tableOf)].join("\n\n");
}

function tableOf(result: ScaleResult): string {
  const { nodes, volumes, start, memory, memoryAfter, burst, steady, immediate, deletion, reboot, takeover } = result;
  const row = (label: string, { cpuMs, stall, requests, bytes }: Cost, took = "") => [
    ...[label, `${(cpuMs / 1000).toFixed(2)} s`, `${stall.longestMs} ms`, `${stall.p99Ms} ms`, String(requests)],
    ...[`${(bytes / (1 << 20)).toFixed(1)} MiB`, took],
  ];
  const bound = ({ p50Ms, p99Ms }: BoundTimes) => `Bound: p50 ${seconds(p50Ms)}, p99 ${seconds(p99Ms)}`;
  const memoryRow = (
    label: string,
    { heapMiB, rssMiB, anonymousMiB }: ControllerMemory,
  ) => [label, ...[heapMiB, anonymousMiB, rssMiB].map((mib) => `${mib.toFixed(0)} MiB`)];
  return [
    `${nodes} nodes, ${volumes} volumes`,
    ...columns([
      ["Controller", "CPU", "longest stall", "p99", "requests", "received", "took"],
      row("start, until it leads and is idle", start),
      row(`${burst.count} claims at once`, burst, bound(burst)),
      row(`${steady.count} claims, ${steady.perSecond}/s`, steady, bound(steady)),
      row(`${immediate.count} claims at once, Immediate`, immediate, bound(immediate)),
      row(`${deletion.count} claims deleted at once`, deletion, seconds(deletion.ms)),
      row(`${reboot.nodes} nodes are silent`, reboot.silent, `others ${bound(reboot.others)}`),
      row("… and are back", reboot.back, seconds(reboot.back.ms)),
      row("a second process takes over", takeover, seconds(takeover.ms)),
    ], [0, 6]),
    "",
    ...columns([
      ["Memory", "heap", "anonymous", "RSS"],
      memoryRow("after the start", memory),
      memoryRow("of the second process", memoryAfter),
    ]),
  ].join("\n");
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(2)} s`;
}
