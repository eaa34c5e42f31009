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
    own: way(10_000, 30),
    official: way(12_500, 35),
    rssMiB: { controller: 120, agent: 130 },
  });
  assertEquals(text.split("\n").map((line) => line.trim().split(/ {2,}/)), [
    ["10 claims at once; requests and commands are per claim"],
    [""],
    ["Volumes made by", "Bound", "deleted", "ratio", "requests", "agent's requests", "LVM commands"],
    ["plain lvcreate", "5.0 s", "4.0 s", "1.0", "1.0"],
    ["denolith, all in pods", "15.0 s", "20.0 s", "3.0", "4.0", "2.5", "3.0"],
    ["denolith, controller on the host", "10.0 s", "20.0 s", "2.0", "4.0", "2.5", "3.0"],
    ["csi-provisioner, both on the host", "12.5 s", "20.0 s", "2.5", "4.0", "2.5", "3.5"],
    [""],
    ["Memory (RSS): controller 120 MiB, agent 130 MiB"],
  ]);
});
