/**
 * An agent's report of a node, over a fake machine and a fake API server.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { NodeReconciler, type NodeReconcilerOptions } from "../../../k8s/agent/node_reconciler.ts";
import { type LvmNode, lvmNodes } from "../../../k8s/api/lvm_objects.ts";
import { HttpClient } from "../../../k8s/client/http_client.ts";
import { Informer } from "../../../k8s/runtime/informer.ts";
import { ANY_GROUP } from "../../../lvm/model/groups.ts";
import type { SurveyedGroup } from "../../../lvm/model/survey.ts";
import { FakeApiServer } from "./api_server.ts";
import { FakeMachine } from "../machine/machine.ts";

/** A gibibyte in bytes. */
export const GiB = 1n << 30n;

/** Creates a machine with two volume groups. */
export function machine(): FakeMachine {
  const fake = new FakeMachine();
  fake.addGroup("data", 10n * GiB);
  fake.addGroup("fast", 2n * GiB, 1n << 20n);
  return fake;
}

/** Creates a logical volume by hand. */
export async function lvcreate(fake: FakeMachine, ...args: string[]): Promise<void> {
  const { code, stderr } = await fake.run({
    program: "lvm",
    args: ["lvcreate", "--yes", "--wipesignatures", "n", ...args],
    mutates: true,
  });
  assertEquals([code, stderr], [0, ""]);
}

/** Starts an API server, and creates an agent that reports when it is asked to. */
export async function harness(fake: FakeMachine, options: Partial<NodeReconcilerOptions> = {}) {
  const api = FakeApiServer.start({ resources: [lvmNodes] });
  const client = new HttpClient({ url: api.url }, { userAgent: "denolith/test" });
  const stop = new AbortController();
  const objects = new Informer(client, lvmNodes);
  const running = [objects.start(stop.signal)];
  await objects.synced;
  const reports: string[][] = [];
  const newAgent = (more: Partial<NodeReconcilerOptions> = {}): NodeReconciler =>
    new NodeReconciler({
      client,
      exec: fake,
      driver: "lvm.denolith.dev",
      nodeName: "n1",
      groups: ANY_GROUP,
      onReport: (groups: readonly SurveyedGroup[]) => void reports.push(groups.map(({ name }) => name)),
      batchMs: 1,
      objects,
      namespace: "driver",
      ...options,
      ...more,
    });
  const agent = newAgent();
  return {
    api,
    client,
    objects,
    agent,
    newAgent,
    reports,
    start: () => void running.push(agent.run(stop.signal)),
    waitForObject: (predicate: (object: LvmNode | undefined) => boolean) =>
      objects.waitFor("n1", predicate, { timeoutMs: 10_000 }),
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await Promise.all(running);
      client[Symbol.dispose]();
      await api[Symbol.asyncDispose]();
    },
  };
}
