import { assertEquals } from "@std/assert";
import { snapshotIdOf, transferSnapshotName } from "../../base/ids.ts";
import { combinationsOf } from "../../tests/fake/combinations.ts";
import {
  adoption,
  claim,
  COPIED,
  copy,
  deleted,
  goneWith,
  lost,
  move,
  NAME,
  persistentVolume,
  RECORD,
  SNAPSHOT,
  START,
  stepText,
  SWITCHING,
  volume,
} from "../../tests/fake/cluster/move_objects.ts";
import type { LvmNode, LvmSnapshot, LvmVolume } from "../api/lvm_objects.ts";
import { formatGrant, grantAnnotation } from "../api/transfers.ts";
import type { Informer } from "../runtime/informer.ts";
import { nameAbsence } from "./handover_controller.ts";
import { copyIdOf, type LvmMove, type LvmMoveStatus, type MoveObjects, type MoveStep } from "./moves.ts";
import { nextStep, stateOf } from "./move_step.ts";

const STEPS: readonly [what: string, objects: Partial<MoveObjects>, step: string][] = [
  ["a volume that is not held", {}, "hold"],
  [
    "a volume whose agent has not answered",
    { volume: { ...volume("a"), status: { state: "Ready" } } },
    "wait: waits for the agent of node a",
  ],
  [
    "a volume in use",
    { volume: volume("a", { user: "a pod" }) },
    "wait: nobody else may begin to use it, but a pod still does",
  ],
  ["an unused volume", { volume: volume("a") }, "copy"],
  ["a complete copy", COPIED, "record"],
  ["a complete copy whose temporary snapshots are left", { ...COPIED, temporary: [SNAPSHOT] }, "discard snapshots"],
  ["a copy of a volume that was released since", { ...COPIED, volume: volume("a", { held: false }) }, "delete copy"],
  [
    "a volume that is held for an earlier move",
    { volume: volume("a", { by: "earlier" }) },
    "hold",
  ],
  [
    "a copy of a volume that was held for an earlier move since",
    { ...COPIED, volume: volume("a", { by: "earlier" }) },
    "delete copy",
  ],
  ["a PersistentVolume that is recorded", SWITCHING, "retain"],
  [
    "one that is retained for an earlier move",
    { ...SWITCHING, persistentVolume: persistentVolume("a", "Retain", {}, "earlier") },
    "retain",
  ],
  [
    "one that somebody retained no longer",
    { ...SWITCHING, persistentVolume: persistentVolume("b", "Delete") },
    "retain",
  ],
  [
    "one that is retained",
    { ...SWITCHING, persistentVolume: persistentVolume("a", "Retain") },
    "delete persistent volume",
  ],
  [
    "one that is retained and can be changed",
    {
      ...SWITCHING,
      self: move({ ...RECORD, affinityMethod: "Patch" }),
      persistentVolume: persistentVolume("a", "Retain"),
    },
    "patch affinity: b",
  ],
  [
    "one that is being deleted",
    {
      ...SWITCHING,
      persistentVolume: persistentVolume("a", "Retain", { ...deleted, finalizers: ["kubernetes.io/pv-protection"] }),
    },
    "delete persistent volume",
  ],
  [
    "one that somebody else keeps",
    { ...SWITCHING, persistentVolume: persistentVolume("a", "Retain", { ...deleted, finalizers: ["other/one"] }) },
    "wait: waits for others to remove the finalizers other/one of the PersistentVolume",
  ],
  ["none any more", { ...SWITCHING, persistentVolume: undefined, claim: claim("Lost") }, "create persistent volume: b"],
  [
    "a claim that is Lost",
    { ...SWITCHING, persistentVolume: persistentVolume("b", "Retain"), claim: claim("Lost") },
    "wait: waits until claim n/c is Bound again",
  ],
  ["a claim that is Bound", { ...SWITCHING, persistentVolume: persistentVolume("b", "Retain") }, "begin removing"],
  ["another claim of the name", {
    ...SWITCHING,
    persistentVolume: persistentVolume("b", "Retain"),
    claim: claim("Lost", "v"),
  }, "begin removing"],
  ["disks that were carried", { self: adoption(), volume: lost }, "record"],
  [
    "disks whose volume is on its node",
    {
      self: adoption({ ...RECORD, removing: true }),
      volume: volume("b", { held: false }),
      persistentVolume: persistentVolume("b", "Retain"),
    },
    "restore policy",
  ],
];

for (const [what, objects, expected] of STEPS) {
  Deno.test(`nextStep() of ${what}: ${expected}`, () => {
    assertEquals(stepText(nextStep({ ...START, ...objects })), expected);
  });
}

const STATES: readonly [step: MoveStep["do"], move: LvmMove, state: string][] = [
  ["fail", move(), "Pending"],
  ["hold", move(), "Holding"],
  ["wait", move(), "Holding"],
  ["copy", move(), "Copying"],
  ["difference", move(), "Copying"],
  ["take snapshot", move(), "Copying"],
  ["delete copy", move(), "Copying"],
  ["discard snapshots", move(), "Copying"],
  ["go offline", move(), "Copying"],
  ["discard snapshots", move({}, deleted), "Undoing"],
  ["discard snapshots", move(RECORD), "Switching"],
  ["stop removing", move({ ...RECORD, removing: true }), "Undoing"],
  ["record", move(), "Switching"],
  ["wait", move(RECORD), "Switching"],
  ["begin removing", move(RECORD), "Removing"],
  ["wait", move({ ...RECORD, removing: true }, deleted), "Removing"],
  ["release", move({}, deleted), "Undoing"],
  ["release", move(), "Holding"],
];

for (const [step, object, state] of STATES) {
  Deno.test(`stateOf() of the step ${step} is ${state}`, () => {
    assertEquals(stateOf({ do: step } as MoveStep, object), state);
  });
}

Deno.test("stateOf() of a wait with a state is that", () => {
  assertEquals(stateOf({ do: "wait", message: "", agents: [], state: "Copying" }, move()), "Copying");
});

Deno.test("nextStep() says of a wait for finalizers of others that they have to end it", () => {
  const object = persistentVolume("a", "Retain", { ...deleted, finalizers: ["other/one"] });
  const step = nextStep({ ...START, ...SWITCHING, persistentVolume: object });
  assertEquals(step.do === "wait" && step.isBlocked, true);
});

Deno.test("nextStep() of a move whose LVMVolume is gone waits", () => {
  assertEquals(nextStep({ ...START, volume: undefined }), { do: "wait", message: "its LVMVolume is gone", agents: [] });
});

/** What a move can wait for, and whose agents end it; without any, the message names who does. */
const WAITS = [
  "a and b: completes the copy",
  "a and b: copies all of it again: what changed could not be had",
  "a and b: copies it",
  "a and b: copies it while it may be used",
  "a and b: copies what changed meanwhile",
  "a and b: copies what changed since",
  "a: nobody else may begin to use it, but a pod still does",
  "a: waits for the agent of node a",
  "a: waits until snapshots s are deleted",
  "b: waits for the agent of node b",
  "others: its LVMVolume is gone", // the mover fails such a move before it plans the next step
  "others: keeps LVMVolume COPY on node b, which may be all that is left, because LVMVolume NAME was deleted, and its claim was not. Save the data and delete that LVMVolume",
  "others: keeps LVMVolume COPY on node b, which may be all that is left, because the volume on node a is Lost. Bring the disks of node a back, or save the data and delete that LVMVolume",
  "others: waits for others to remove the finalizers other/one of the PersistentVolume",
  "others: waits until claim n/c is Bound again",
];

Deno.test("nextStep() waits for nothing that it does not name, and for agents that are away, it says that", () => {
  const statuses: LvmMoveStatus[] = [{}, { copyMode: "Online" }, RECORD, { ...RECORD, removing: true }, {
    error: { code: "NoSpace", message: "" },
  }];
  const volumes = [
    undefined,
    volume("a"),
    volume("a", { held: false }),
    volume("a", { user: "a pod" }),
    goneWith("Lost"),
    volume("b", { held: false }),
  ];
  const unheld = { ...volume("a"), status: { state: "Ready" } } as LvmVolume;
  const id = copyIdOf(move());
  const goals = [[0], [1], [0, 7], [1, 7]].map(([round, generation]) => ({
    round: round!,
    snapshot: snapshotIdOf(transferSnapshotName(id, round!, ...(generation === undefined ? [] : [generation]))),
    last: generation !== undefined,
    ...(round === 1 && { base: snapshotIdOf("base") }),
  }));
  const filled = (goal: (typeof goals)[number], status: object) =>
    ({
      ...copy(),
      spec: { nodeName: "b", copy: goal },
      status: { state: "Pending", ...status },
    }) as unknown as LvmVolume;
  const annotations = { [grantAnnotation(id)]: formatGrant({ node: "b", until: 4e12 }) };
  const granted = goals.map(({ snapshot }) =>
    ({ metadata: { name: snapshot, annotations } }) as unknown as LvmSnapshot
  );
  const seen = new Map<string, MoveStep>();
  const all = combinationsOf<Partial<MoveObjects>>({
    self: statuses.map((status) => move(status)),
    volume: [...volumes, unheld, { ...volume("b", { held: false }), status: { state: "Pending" } }],
    copy: [
      ...[undefined, copy(), { ...copy(), status: { state: "Lost", lvUUID: "b" } } as LvmVolume],
      ...goals.flatMap((goal) =>
        [{}, { copy: { snapshot: "other" } }, { copy: { snapshot: goal.snapshot } }].map((status) =>
          filled(goal, status)
        )
      ),
    ],
    persistentVolume: [
      ...[undefined, persistentVolume("a", "Delete"), persistentVolume("b", "Retain")],
      persistentVolume("a", "Retain", { ...deleted, finalizers: ["other/one"] }),
    ],
    claim: [undefined, claim("Lost"), claim("Bound")],
    snapshots: [[], ["s"]],
    temporary: [[], granted],
    copyMode: [{ mode: "Online" }, { mode: "Offline" }],
  });
  for (const objects of all) {
    const step = nextStep({ ...START, ...objects });
    if (step.do !== "wait") continue;
    const message = step.message.replaceAll(copyIdOf(move()), "COPY").replaceAll(NAME, "NAME");
    seen.set(`${step.agents.join(" and ") || "others"}: ${message}`, step);
  }
  assertEquals([...seen.keys()].sort(), WAITS);
  const away = (...names: string[]) => ({
    driverName: "d",
    lvmNodes: { get: () => ({ spec: { driverName: "d" } }) } as unknown as Informer<LvmNode>,
    agents: { isSilent: (name: string) => names.includes(name) },
  });
  for (const [text, step] of seen) {
    if (step.do !== "wait") continue;
    for (const name of ["a", "b"]) {
      const said = nameAbsence(step, away(name));
      const isSaid = said.isBlocked === true &&
        said.message === `${step.message}: the agent of node ${name} has not reported for minutes`;
      assertEquals(isSaid, step.agents.includes(name), text);
    }
    assertEquals(nameAbsence(step, away("c")), step);
  }
});
