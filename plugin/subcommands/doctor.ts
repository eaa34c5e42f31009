/**
 * `kubectl denolith doctor`: asks the agents of one node or all for a diagnosis, by an annotation of the LVMNode, and waits for
 * the answer in its status.
 *
 * @module
 */

import type { Diagnosis } from "../../lvm/doctor/doctor.ts";
import { worstLevel } from "../../lvm/doctor/finding.ts";
import { diagnosisText } from "../../lvm/doctor/text.ts";
import { sleep, systemClock } from "../../base/clock.ts";
import { messageOf, StorageError } from "../../base/error.ts";
import { formatTable } from "../../base/text_table.ts";
import { type ApiClient, isGone, orAbsent, orAbsentOrChanged } from "../../k8s/client/client.ts";
import { DEFINITIONS_CONDITION } from "../../k8s/client/definitions.ts";
import { patchWithRetry } from "../../k8s/client/patches.ts";
import { DOCTOR_ANNOTATION, LVM_GROUP, type LvmNode, lvmNodes, type NodeDiagnosis } from "../../k8s/api/lvm_objects.ts";
import { EXIT } from "../../cli/command_line.ts";
import type { KubectlClient } from "../kubectl_client.ts";
import { seconds } from "../plugin_flags.ts";
import { conditionOf } from "../problem.ts";
import type { Session } from "../session.ts";

/** The delay before a watch that ended is started again, in milliseconds. */
const REWATCH_MS = 1_000;

/** The number of agents that are asked at once: a run of kubectl waits for each. */
const MAX_CONCURRENT = 8;

/** What a node's agent found, or why it did not answer. */
export type NodeResult =
  & { readonly node: string }
  & (Required<Omit<NodeDiagnosis, "request">> | { readonly error: string });

/** Shows what the agent of a node finds, or those of all nodes. @returns 1 when it is an error, and 0 otherwise */
export async function diagnose(session: Session): Promise<number> {
  const waitSeconds = seconds(session.flags["timeout"]!, "--timeout");
  const name = session.flags["NODE"];
  if (name === undefined) return showAll(session, await diagnoseAll(session, waitSeconds));
  const result = await diagnoseNode(session, name, waitSeconds);
  const { node, checks, findings, omitted, level } = result;
  const more = omitted === 0 ? "" : `\n${omitted} more findings are not shown: see denolith doctor on the node.`;
  session.print({
    data: result,
    text: () => `Node ${node}, by its agent\n\n${diagnosisText({ level, checks, findings } as Diagnosis)}${more}`,
  });
  return level === "error" ? EXIT.failure : EXIT.success;
}

/** Has all nodes of the driver checked. @returns the results in the order of their names @throws {ApiError} */
export async function diagnoseAll(session: Session, waitSeconds: number): Promise<NodeResult[]> {
  const { client, driver, signal } = session;
  const { items } = await client.list(lvmNodes);
  const names = items.filter(({ spec }) => spec.driverName === driver).map(({ metadata }) => metadata.name).sort();
  session.note(`Asking the agents of ${names.length} nodes, for up to ${waitSeconds} s each …`);
  const results = new Map<string, NodeResult>();
  const pending = names.values();
  const work = async () => {
    for (const name of pending) {
      results.set(
        name,
        await diagnoseNode(session, name, waitSeconds).catch((error) => {
          if (signal.aborted) throw error;
          return { node: name, error: messageOf(error).replace(/^doctor: /, "") };
        }),
      );
    }
  };
  // of an interrupted one, too, all requests are withdrawn
  for (const outcome of await Promise.allSettled(Array.from({ length: MAX_CONCURRENT }, work))) {
    if (outcome.status === "rejected") throw outcome.reason;
  }
  return names.map((name) => results.get(name)!);
}

/** Shows all nodes in a table, with the errors and warnings below them. */
function showAll(session: Session, nodes: readonly NodeResult[]): number {
  const rows = nodes.map((result) => {
    if ("error" in result) return { cells: [result.node, "no answer", "", ""], notes: [result.error] };
    const found = (level: string) => result.findings.filter((finding) => finding.level === level);
    const [errors, warnings] = [found("error"), found("warning")];
    const notes = [...errors, ...warnings].map(({ level, check, subject, message }) =>
      `${level} ${check}: ${subject}: ${message}`
    );
    return { cells: [result.node, result.level, `${errors.length}`, `${warnings.length}`], notes };
  });
  const columns = [["NODE", "left"], ["RESULT", "left"], ["ERRORS", "right"], ["WARNINGS", "right"]] as const;
  session.print({
    data: { nodes },
    text: () =>
      nodes.length === 0 ? "No node has an agent of the driver." : [
        ...formatTable(columns, rows),
        "",
        "What to do about them: kubectl denolith doctor NODE",
      ].join("\n"),
  });
  return nodes.some((result) => "error" in result || result.level === "error") ? EXIT.failure : EXIT.success;
}

/** Has a node checked by its agent. @throws {StorageError} when it does not answer */
async function diagnoseNode(
  session: Session,
  name: string,
  waitSeconds: number,
): Promise<Exclude<NodeResult, { error: string }>> {
  const { client, signal } = session;
  const request = crypto.randomUUID();
  const asked = await ask(session, { name, request });
  let answer: NodeDiagnosis | undefined;
  const timeout = new AbortController();
  const timer = setTimeout(() => timeout.abort(), waitSeconds * 1_000);
  const onEnd = () => timeout.abort();
  signal.addEventListener("abort", onEnd);
  if (signal.aborted) onEnd();
  try {
    answer = await waitForAnswer(client, asked, { request, signal: timeout.signal });
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onEnd);
    await withdraw(client, { name, request });
  }
  if (answer === undefined && signal.aborted) {
    throw new StorageError("Unavailable", `doctor: interrupted; the agent of node ${name} is no longer asked`);
  }
  if (answer === undefined) {
    throw new StorageError(
      "Unavailable",
      `doctor: the agent of node ${name} has not answered within ${waitSeconds} s: it is down, or of an older version, or ` +
        `somebody else asked meanwhile; see kubectl denolith nodes`,
    );
  }
  const outdated = await outdatedDefinitions(client, asked);
  const { findings = [], omitted = 0, checks = [], level = "ok", time = "" } = answer;
  if (outdated === undefined) return { node: name, time, level, checks, findings, omitted };
  const about = { check: "crds", level: outdated.level };
  return {
    ...{ node: name, time, omitted, level: worstLevel([level, outdated.level]) },
    checks: [{ ...about, summary: "too old" }, ...checks],
    findings: [{ ...about, subject: LVM_GROUP, message: outdated.message }, ...findings],
  };
}

/** Returns the definitions that are too old for the agent, or only for this plugin: the agent checks its machine alone. */
async function outdatedDefinitions(
  { definitions }: KubectlClient,
  node: LvmNode,
): Promise<{ readonly level: "error" | "warning"; readonly message: string } | undefined> {
  const { status, message } = conditionOf(node, DEFINITIONS_CONDITION) ?? { status: "Unknown", message: "" };
  if (status === "True") return { level: "error", message };
  await definitions.read();
  return definitions.outdated === undefined ? undefined : { level: "warning", message: definitions.outdated };
}

/** Asks the agent. @returns the LVMNode as it is then @throws {StorageError} `NotFound` without an LVMNode */
async function ask(
  { client, driver }: Session,
  { name, request }: { name: string; request: string },
): Promise<LvmNode> {
  const node = await orAbsent(client.get(lvmNodes, { name }));
  if (node === undefined) {
    throw new StorageError(
      "NotFound",
      `doctor: node ${name} has no LVMNode: no agent of the driver has reported on it`,
    );
  }
  if (node.spec.driverName !== driver) {
    throw new StorageError("NotFound", `doctor: node ${name} is of the driver ${node.spec.driverName}`);
  }
  return await client.patch(lvmNodes, { name }, {
    merge: { metadata: { annotations: { [DOCTOR_ANNOTATION]: request } } },
  });
}

/** Waits for the answer to a request. @returns the answer; `undefined` when the signal is aborted */
async function waitForAnswer(
  client: ApiClient,
  { metadata: { name, resourceVersion: askedAt = "0" } }: LvmNode,
  { request, signal }: { readonly request: string; readonly signal: AbortSignal },
): Promise<NodeDiagnosis | undefined> {
  const selection = { fieldSelector: `metadata.name=${name}`, signal };
  const answerOf = ({ status }: LvmNode) =>
    status?.doctor?.request === request && status.doctor.findings !== undefined ? status.doctor : undefined;
  let resourceVersion: string | undefined = askedAt;
  while (!signal.aborted) {
    try {
      if (resourceVersion === undefined) {
        const node: LvmNode = await client.get(lvmNodes, { name }, { signal });
        const answer = answerOf(node);
        if (answer !== undefined) return answer;
        resourceVersion = node.metadata.resourceVersion ?? "0";
      }
      for await (const { object } of client.watch(lvmNodes, { ...selection, resourceVersion })) {
        const answer = answerOf(object);
        if (answer !== undefined) return answer;
        resourceVersion = object.metadata.resourceVersion ?? resourceVersion;
      }
    } catch (error) {
      if (signal.aborted) return undefined;
      if (!isGone(error)) throw error;
      resourceVersion = undefined; // the server remembers changes for minutes only
    }
    await sleep(systemClock, REWATCH_MS, signal); // a server may end watches at once
  }
  return undefined;
}

/** Withdraws a request, unless somebody else has asked since. The agent then removes its answer. */
async function withdraw(client: ApiClient, { name, request }: { name: string; request: string }): Promise<void> {
  const node = await orAbsent(client.get(lvmNodes, { name }));
  if (node === undefined) return;
  const withdrawn = ({ metadata }: LvmNode) =>
    metadata.annotations?.[DOCTOR_ANNOTATION] === request
      ? { metadata: { annotations: { [DOCTOR_ANNOTATION]: null } } }
      : undefined;
  await orAbsentOrChanged(patchWithRetry(client, lvmNodes, node, withdrawn, {}));
}
