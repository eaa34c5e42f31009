import { type BenchResult, type Memory, type Operation, OPERATIONS, type Start } from "./result.ts";

/** Formats the result for people, in lines of less than 100 characters. */
export function tables(result: BenchResult): string {
  const { version, machine, start, memory, calls, operations } = result;
  const { first, later } = start;
  const startRow = (label: string, time: keyof Start) => [label, seconds(first[time]), seconds(later[time])];
  const memoryRow = (label: string, { rssMiB, anonymousMiB, pssMiB }: Memory) => [
    ...[label, mib(rssMiB), mib(anonymousMiB), mib(pssMiB)],
  ];
  const guest = { uml: "user-mode Linux", qemu: "emulated in software" }[machine.kind];
  return [
    [`denolith ${version} in a guest with Linux ${machine.kernel}, ${machine.cpus} CPUs, ${guest}`],
    columns([
      ["Start", "first ever", `later, median of ${later.runs}`],
      startRow("socket answers", "socketMs"),
      startRow("Probe answers: ready", "readyMs"),
      startRow("first call of a new connection", "firstCallMs"),
      ["… beside an empty file", "", (later.readyMs / start.emptyFileMs).toFixed(1)],
    ]),
    columns([
      ["Memory", "RSS", "anonymous", "PSS"],
      memoryRow("idle", memory.idle),
      memoryRow(`after ${calls.count} calls`, memory.afterCalls),
      memoryRow("after the operations", memory.afterOperations),
    ]),
    [`Calls that run no command, ${calls.atATime} at a time: ${Math.round(calls.perSecond)} per second`],
    columns([
      ["Operation", "driver", "plain", "ratio", "runs", "plain commands"],
      ...Object.entries(operations).map(([name, { driverMs, plainMs, ratio, commands, plain }]) => [
        OPERATIONS[name as Operation],
        seconds(driverMs),
        seconds(plainMs),
        ratio.toFixed(1),
        String(commands ?? ""),
        plain.map((command) => command.split(" ")[0]).join(", "),
      ]),
    ], [0, 5]),
  ].map((lines) => lines.join("\n")).join("\n\n");
}

/** Rows as lines: columns of words are aligned to the left, the others to the right. */
export function columns(rows: readonly (readonly string[])[], words: readonly number[] = [0]): string[] {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const aligned = (cell: string, column: number) =>
    words.includes(column) ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!);
  return rows.map((row) => row.map(aligned).join("  ").trimEnd());
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(2)} s`;
}

function mib(value: number | undefined): string {
  return value === undefined ? "" : `${value.toFixed(0)} MiB`;
}
