import { assertEquals } from "@std/assert";
import type { LvmVolume } from "../../k8s/api/lvm_objects.ts";
import type { ClaimState } from "../diagnosis/claim_state.ts";
import { clusterState } from "../../tests/fake/cluster/cluster_states.ts";
import { DRIVER } from "../../tests/fake/cluster/control_plane.ts";
import { claimPage } from "./claim_page.ts";
import { volumePage } from "./volume_page.ts";

const NOW = new Date("2026-05-01T12:00:00Z");

/** Returns a volume that the agent no longer finds. */
function lostVolume(): LvmVolume {
  const message = "the logical volume data/vol-1 is missing";
  const lost = {
    type: "Ready",
    status: "False" as const,
    reason: "Lost",
    message,
    lastTransitionTime: NOW.toISOString(),
  };
  return {
    metadata: { name: "v1-1" },
    spec: {
      ...{ driverName: DRIVER, requestName: "r", nodeName: "n1", size: "10Gi", volumeGroupPreference: "mostFree" },
      ...{ volumeMode: "Filesystem", fsType: "ext4", shared: false, erase: "zero" },
    },
    status: { state: "Lost", volumeGroup: "data", size: "10Gi", conditions: [lost] },
  } as LvmVolume;
}

/** Returns the reasons of the problems of the volume's page. */
function reasons(claim: Partial<ClaimState>): string[] {
  const volume = lostVolume();
  const state = clusterState({ now: NOW, volumes: [volume] });
  const evidence: ClaimState = {
    ...{ driver: DRIVER, now: NOW, key: "shop/db", volume, claimEvents: [], pods: [], podEvents: [], volumeEvents: [] },
    ...{ agentLeases: [], capacities: [], lvmNodes: [], absentAgents: [], otherClaims: [], unread: [], ...claim },
  };
  return volumePage("v1-1", { state, claim: evidence, target: { context: "" }, usage: "not known" })!.problems.map((
    { reason },
  ) => reason);
}

Deno.test("volumePage(): a Lost volume is Lost, also when its claim is gone", () => {
  assertEquals(reasons({}).slice(0, 1), ["Lost"]);
});

Deno.test("volumePage() and claimPage(): problems have commands for the cluster of the page", () => {
  const state = clusterState({ now: NOW, volumes: [lostVolume()] });
  const { problems } = volumePage("v1-1", { state, usage: "not known", target: { context: "prod" } })!;
  assertEquals(problems.map(({ commands }) => commands), [["kubectl denolith why lvmvolume/v1-1 --context prod"]]);
  const claim = { metadata: { name: "db", namespace: "shop" }, status: { phase: "Pending" } };
  const events = [{ metadata: { name: "e" }, reason: "ProvisioningFailed", message: "no [VolumeGroupUnresponsive]" }];
  const page = claimPage(
    {
      ...{
        driver: DRIVER,
        now: NOW,
        key: "shop/db",
        claim,
        claimEvents: events,
        pods: [],
        podEvents: [],
        nodeName: "n1",
      },
      ...{
        volumeEvents: [],
        agentLeases: [],
        capacities: [],
        lvmNodes: [],
        absentAgents: [],
        otherClaims: [],
        unread: [],
      },
      storageClass: { metadata: { name: "fast" }, provisioner: DRIVER },
    } as unknown as ClaimState,
    { context: "prod" },
  );
  assertEquals([page.state, page.events.map(({ reason }) => reason)], ["Pending", ["ProvisioningFailed"]]);
  assertEquals(page.problems[0]!.commands, [
    "kubectl denolith doctor n1 --context prod",
    "kubectl denolith why db --namespace shop --context prod",
  ]);
});

Deno.test("volumePage(): what the explanation of the claim says of the volume is there once", () => {
  const claim = { metadata: { name: "db", namespace: "shop" }, status: { phase: "Bound" } };
  assertEquals(reasons({ claim }), ["Lost"]);
});
