import { assertEquals } from "@std/assert";
import { CLAIM_ANNOTATION, type LvmVolume } from "../../k8s/api/lvm_objects.ts";
import type { LvmImport, LvmImportStatus } from "../../k8s/handover/imports.ts";
import type { LvmMove, LvmMoveStatus } from "../../k8s/handover/moves.ts";
import { clusterState } from "../../tests/fake/cluster/cluster_states.ts";
import { volumeViews } from "../diagnosis/volumes.ts";
import { underWay, type Work } from "./under_way.ts";

const NOW = new Date("2026-05-01T12:00:00Z");
const CLAIM = { namespace: "shop", name: "db", uid: "u" };

const move = (status: LvmMoveStatus) =>
  ({ metadata: { name: "v1-a" }, spec: { claim: CLAIM, sourceNode: "n1", targetNode: "n2" }, status }) as LvmMove;

const importOf = (status: LvmImportStatus) =>
  ({
    metadata: { name: "v1-b" },
    spec: { claim: CLAIM, from: "TopoLVM", volume: { nodeName: "n3" } },
    status,
  }) as LvmImport;

function work(
  { moves = [], imports = [], volumes = [] }: { moves?: LvmMove[]; imports?: LvmImport[]; volumes?: object[] },
): Work[] {
  const own = { claims: [], claimEvents: [], storageClasses: [], moves, imports };
  const state = clusterState({ now: NOW, work: own, volumes: volumes as LvmVolume[] });
  return underWay(state, volumeViews(state), { context: "prod" });
}

Deno.test("underWay(): a move has its nodes, its progress, and the command that undoes it while that is possible", () => {
  const copying = {
    state: "Copying",
    copyMode: "Online",
    copy: { copied: "4Gi", total: "10Gi", percent: 40 },
  } as const;
  const [one] = work({ moves: [move(copying)] });
  assertEquals([one!.kind, one!.claim, one!.from, one!.to, one!.percent], ["move", "shop/db", "n1", "n2", 40]);
  assertEquals(one!.message, "Copying: online, 40% of 10Gi");
  const commandsOf = (status: LvmMoveStatus) => work({ moves: [move(status)] }).map(({ commands }) => commands);
  assertEquals(one!.commands, ["kubectl denolith move db --namespace shop --cancel --context prod"]);
  assertEquals(commandsOf({ state: "Removing", removing: true }), [[]]);
  assertEquals(commandsOf({ state: "Undoing" }), [[]]);
  assertEquals(commandsOf({ state: "Complete" }), []);
  assertEquals(commandsOf({ state: "Failed" }), [["kubectl delete lvmmoves.lvm.denolith.dev v1-a --context prod"]]);
});

Deno.test("underWay(): an import has the commands that finish it or give the volume back", () => {
  const commandsOf = (status: LvmImportStatus) =>
    work({ imports: [importOf(status)] }).map(({ from, to, commands }) => [from, to, ...commands]);
  const command = (flag: string) => `kubectl denolith import db --namespace shop --${flag} --context prod`;
  assertEquals(commandsOf({ state: "Switching" }), [["TopoLVM", "n3", command("cancel")]]);
  assertEquals(commandsOf({ state: "Imported" }), [["TopoLVM", "n3", command("finish"), command("cancel")]]);
  assertEquals(commandsOf({ state: "Finishing", finishing: true }), [["TopoLVM", "n3"]]);
  assertEquals(commandsOf({ state: "Complete" }), []);
});

Deno.test("underWay(): copies on a node and from another one, but not those of moves", () => {
  const volume = (name: string, spec: object, copy: object) => ({
    metadata: { name, annotations: { [CLAIM_ANNOTATION]: `shop/${name}` } },
    spec: { driverName: "d", requestName: name, nodeName: "n2", size: "1Gi", source: { volume: "v1-z" }, ...spec },
    status: { state: "Pending", copy },
  });
  const volumes = [
    volume("v1-a", {}, { copied: "1Gi", total: "4Gi" }),
    volume("v1-b", { sourceNode: "n1" }, { copied: "0", lastError: "no answer" }),
    volume("v1-c", { requestName: "denolith-move-u", sourceNode: "n1" }, { copied: "0" }),
  ];
  assertEquals(
    work({ volumes }).map(({ kind, claim, from, to, percent, message }) => [kind, claim, from, to, percent, message]),
    [
      ["copy", "shop/v1-a", "v1-z", "n2", 25, "1Gi of 4Gi copied"],
      ["transfer", "shop/v1-b", "n1", "n2", undefined, "0 copied; the last attempt failed: no answer"],
    ],
  );
});
