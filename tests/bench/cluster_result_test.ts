import { assertEquals } from "@std/assert";
import { clusterTable, type ProvisioningResult } from "./cluster_result.ts";

const way = (boundMs: number, commands: number): ProvisioningResult => ({
  boundMs,
  deletedMs: 20_000,
  controllerRequests: 40,
  agentRequests: 25,
  commands,
});

Deno.test("the cluster bench's table has requests and commands per claim, and times beside plain lvcreate", () => {
  const text = clusterTable({
    claims: 10,
    plain: { boundMs: 5_000, deletedMs: 4_000 },
    pod: way(15_000, 30),
    onHost: { own: way(10_000, 30), official: way(12_500, 35) },
    pods: {
      runs: 10,
      plain: { runningMs: 2_000, goneMs: 1_500 },
      runningMs: 6_000,
      goneMs: 7_000,
      maximum: { runningMs: 8_000, goneMs: 9_040 },
      agentCpuMs: { own: 300, commands: 400 },
    },
    idleCpuMs: { controller: { own: 500, commands: 0 }, node: { own: 200, commands: 170 } },
    memoryMiB: { controller: { rss: 120, anonymous: 60 }, agent: { rss: 130, anonymous: 70 } },
  });
  assertEquals(text.split("\n").map((line) => line.trim().split(/ {2,}/)), [
    ["10 claims at once; requests and commands are per claim"],
    [""],
    ["Volumes made by", "Bound", "ratio", "deleted", "ratio", "requests", "agent's requests", "LVM commands"],
    ["plain lvcreate", "5.0 s", "1.0", "4.0 s", "1.0", "1.0"],
    ["denolith, all in pods", "15.0 s", "3.0", "20.0 s", "5.0", "4.0", "2.5", "3.0"],
    ["denolith, controller on the host", "10.0 s", "2.0", "20.0 s", "5.0", "4.0", "2.5", "3.0"],
    ["csi-provisioner, both on the host", "12.5 s", "2.5", "20.0 s", "5.0", "4.0", "2.5", "3.5"],
    [""],
    ["Median of 10 pods", "runs after", "longest", "gone after", "longest"],
    ["without a volume", "2.0 s", "1.5 s"],
    ["with its claim and PV", "6.0 s", "8.0 s", "7.0 s", "9.0 s"],
    [""],
    ["Processor time of the agent per claim and pod: 0.30 s and 0.40 s of its commands"],
    [
      "Processor time while idle, per minute: controller 0.50 s and 0.00 s of its commands; agent 0.20 s and 0.17 s of its commands",
    ],
    ["Memory, and anonymous: controller 120 (60) MiB, agent 130 (70) MiB"],
  ]);
});
