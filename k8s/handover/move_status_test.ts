import { assertEquals } from "@std/assert";
import { heldConditions } from "../api/volume_conditions.ts";
import { type LvmVolume, MOVE_ANNOTATION } from "../api/lvm_objects.ts";
import type { PersistentVolumeClaim } from "../api/objects.ts";
import type { LvmMove, LvmMoveStatus, MoveObjects, MoveStage, MoveStep } from "./moves.ts";
import {
  copyModeText,
  downtimeSeconds,
  eventAfter,
  eventsOf,
  finalStatus,
  moveProgressText,
  outcomeText,
  sentText,
  statusBefore,
} from "./move_status.ts";
import { MAX_MESSAGE_LENGTH } from "./handover.ts";

const NOW = new Date("2026-01-02T03:04:05Z");
const NAME = `v1-${"a".repeat(32)}`;
const SNAPSHOT = `v1-${"b".repeat(32)}`;
const WAIT = { do: "wait", message: "copies it", agents: [], state: "Copying" } as const;

function move(
  status?: LvmMoveStatus,
  { metadata = {}, spec = {} }: { metadata?: object; spec?: object } = {},
): LvmMove {
  return {
    metadata: { name: NAME, uid: "m", ...metadata },
    spec: {
      ...{ driverName: "d", persistentVolume: "pv", claim: { namespace: "n", name: "c", uid: "u" } },
      ...{ sourceNode: "a", targetNode: "b", ...spec },
    },
    ...(status && { status }),
  };
}

function volume({ node = "a", held = true, by = "m", user, state = "Ready" }: {
  node?: string;
  held?: boolean;
  by?: string;
  user?: string;
  state?: string;
} = {}): LvmVolume {
  const object = {
    metadata: { name: NAME, annotations: { [MOVE_ANNOTATION]: by } },
    spec: { nodeName: node, ...(held && { held }) },
    status: { state, lvUUID: "a" },
  } as unknown as LvmVolume;
  object.status!.conditions = held ? heldConditions(object, user === undefined ? {} : { user }) : [];
  return object;
}

/** Returns a copy that should have a snapshot. @param status.has whether it has that */
function copy(
  { round = 0, last = false }: { round?: number; last?: boolean },
  { received, has = true, isReady = false }: { received?: string; has?: boolean; isReady?: boolean } = {},
): LvmVolume {
  return {
    metadata: { name: "copy" },
    spec: { nodeName: "b", copy: { round, snapshot: SNAPSHOT, last } },
    status: {
      ...(isReady ? { state: "Ready", lvUUID: "b" } : { state: "Pending" }),
      copy: { copied: "1Mi", ...(has && { snapshot: SNAPSHOT }), ...(received && { received }) },
    },
  } as unknown as LvmVolume;
}

const objects = (given: Partial<MoveObjects>): MoveObjects => ({
  ...{ self: move(), volume: volume({ held: false }), copy: undefined, persistentVolume: undefined },
  ...{ claim: { metadata: { name: "c", uid: "u" }, status: { phase: "Bound" } } as PersistentVolumeClaim },
  ...{ snapshots: [], temporary: [], isSnapshotted: false, hasSpaceForSnapshot: true, topologyKey: "k", ...given },
});
const before = (given: Partial<MoveObjects>, step: MoveStep = WAIT, failure?: string) =>
  statusBefore(objects(given), step, { now: NOW, failure });

Deno.test("statusBefore() has the copy mode of a move once it is known, and does not change it", () => {
  assertEquals(before({ copyMode: { mode: "Online" } }), {
    state: "Copying",
    message: "copies it",
    copyMode: "Online",
  });
  const offline = before({ copyMode: { mode: "Offline", reason: "no space" } });
  assertEquals([offline.copyMode, offline.offlineReason], ["Offline", "no space"]);
  assertEquals(
    before({ self: move({ copyMode: "Online" }), copyMode: { mode: "Offline", reason: "no space" } }).copyMode,
    undefined,
  );
  assertEquals("copyMode" in before({}), false);
  const adopted = move({}, { spec: { adopt: true } });
  assertEquals("copyMode" in before({ self: adopted, copyMode: { mode: "Online" } }), false);
  const undone = move({}, { metadata: { deletionTimestamp: "now" } });
  assertEquals("copyMode" in before({ self: undone, copyMode: { mode: "Online" } }), false);
});

Deno.test("statusBefore() says what a step waits for, why it failed, or why the move did", () => {
  const step = { do: "record" } as const;
  assertEquals(before({}).message, "copies it");
  assertEquals(before({}, step, "no answer").message, "no answer");
  assertEquals(before({ self: move({ error: { code: "Lost", message: "lost" } }) }, step).message, "lost");
  assertEquals(before({}, step).message, "");
  const long = "x".repeat(MAX_MESSAGE_LENGTH + 1);
  assertEquals(before({}, step, long).message!.length, MAX_MESSAGE_LENGTH);
});

Deno.test("statusBefore() has the time from which nobody can use the volume, once", () => {
  assertEquals(before({ volume: volume() }).heldTime, "2026-01-02T03:04:05Z");
  for (
    const given of [
      { volume: undefined },
      { volume: volume({ held: false }) },
      { volume: volume({ user: "a pod" }) },
      { volume: volume({ by: "another" }) },
      { volume: volume(), self: move({ heldTime: "before" }) },
      { volume: volume(), self: move({}, { metadata: { deletionTimestamp: "now" } }) },
    ]
  ) assertEquals("heldTime" in before(given), false);
});

Deno.test("statusBefore() forgets the time from which nobody could use the volume, if it may be used before the move goes on", () => {
  const held = { volume: volume(), self: move({ state: "Holding", heldTime: "before" }) };
  const after = before(held, { do: "release" });
  assertEquals(after.heldTime, null);
  assertEquals(eventsOf(held.self, after, { do: "release" }), []);
  assertEquals("heldTime" in before({ volume: volume() }, { do: "release" }), false, "it is held in vain");
  assertEquals("heldTime" in before({ volume: volume({ held: false }) }, { do: "release" }), false);
  const undone = move({ heldTime: "before" }, { metadata: { deletionTimestamp: "now" } });
  assertEquals("heldTime" in before({ volume: volume(), self: undone }, { do: "release" }), false);
});

Deno.test("statusBefore() has the time from which the volume can be used again, once", () => {
  const moved = { volume: volume({ node: "b", held: false }), self: move({ removing: true }) };
  assertEquals(before(moved).releasedTime, "2026-01-02T03:04:05Z");
  const lost = { metadata: { name: "c" }, status: { phase: "Lost" } } as PersistentVolumeClaim;
  for (
    const given of [
      { volume: undefined },
      { self: move() },
      { volume: volume({ held: false }) },
      { volume: volume({ node: "b", held: false, state: "Pending" }) },
      { claim: lost },
      { claim: undefined },
      { self: move({ removing: true, releasedTime: "before" }) },
    ]
  ) assertEquals("releasedTime" in before({ ...moved, ...given }), false);
});

Deno.test("statusBefore() has what was sent of each snapshot that the copy has had", () => {
  const stages = (known: MoveStage[] | undefined, object: LvmVolume | undefined, step: MoveStep = WAIT) =>
    before({ self: move(known && { stages: known }), copy: object }, step).stages;
  const first = { difference: 0, received: "5Mi", held: false };
  assertEquals(stages(undefined, undefined), undefined);
  assertEquals(stages(undefined, copy({}, { received: "5Mi", has: false })), undefined, "it is being sent");
  assertEquals(stages(undefined, copy({})), undefined, "it is not known");
  assertEquals(stages(undefined, copy({}, { received: "5Mi" })), [first]);
  const last = copy({ round: 1, last: true }, { received: "64Ki", has: false, isReady: true });
  assertEquals(stages([first], last), [first, { difference: 1, received: "64Ki", held: true }]);
  assertEquals(stages([first], copy({}, { received: "64Ki" })), [first], "the agent was restarted");
  assertEquals(stages([first], copy({}, { received: "6Mi" })), [{ ...first, received: "6Mi" }]);
  const later = { difference: 1, received: "1Mi", held: false };
  assertEquals(stages([first, later], copy({}, { received: "5Mi" })), [first]);
  assertEquals(stages([first, later], undefined), [first, later]);
  assertEquals(stages([first, later], copy({}, { received: "5Mi" }), { do: "delete copy" }), []);
});

Deno.test("statusBefore() has the progress and the number of the snapshot of a copy", () => {
  const status = before({ copy: copy({ round: 2 }, { has: false }) });
  assertEquals([status.differences, status.copy], [2, { copied: "1Mi" }]);
  const plain = { metadata: { name: "copy" }, spec: { nodeName: "b" } } as unknown as LvmVolume;
  const none = before({ copy: plain });
  assertEquals(["differences" in none, "copy" in none], [false, false]);
});

Deno.test("eventsOf() reports the beginning of a move, whom it waits for, and the hold", () => {
  const online = { state: "Copying", copyMode: "Online" } as const;
  const reasons = (from: LvmMove, to: LvmMoveStatus, step: MoveStep = WAIT) =>
    eventsOf(from, to, step).map(({ type, reason, message }) => `${type} ${reason}: ${message}`);
  assertEquals(reasons(move(), online), [
    "Normal MoveStarted: moves from node a to node b, online, so that it is copied while it is used",
  ]);
  assertEquals(reasons(move(), { ...online, copyMode: "Offline", offlineReason: "no space" }), [
    "Normal MoveStarted: moves from node a to node b, offline, so that it is copied while nobody can use it: no space",
  ]);
  assertEquals(reasons(move({}, { spec: { adopt: true } }), { state: "Pending" }), [
    "Normal MoveStarted: moves from node a to node b, with the disks that were carried there",
  ]);
  assertEquals(reasons(move(), { state: "Undoing" }), []);
  assertEquals(reasons(move(online), online), []);
  const blocked = { do: "wait", message: "a pod uses it", agents: [], isBlocked: true } as const;
  const holding = { state: "Holding", message: "a pod uses it" } as const;
  assertEquals(reasons(move(online), holding, blocked), ["Normal MoveWaiting: a pod uses it"]);
  assertEquals(reasons(move(holding), holding, blocked), []);
  assertEquals(reasons(move(online), holding), [], "it goes on by itself");
  const held = { state: "Copying", heldTime: "now" } as const;
  assertEquals(reasons(move(online), held), ["Normal MoveHeld: nobody can use it until the move ends"]);
  const stages = [{ difference: 0, received: "5Mi", held: false }];
  assertEquals(reasons(move(online), { ...held, stages }), [
    "Normal MoveHeld: nobody can use it until the move ends; sent 5 MiB while it was used",
  ]);
  assertEquals(reasons(move(held), held), []);
});

const TIMES = { heldTime: "2026-01-02T03:04:00Z", releasedTime: "2026-01-02T03:04:03Z" };

Deno.test("finalStatus() has the outcome of a move", () => {
  const complete = { do: "finish", state: "Complete" } as const;
  const status = { copyMode: "Online", ...TIMES } as const;
  const message = "moved online; nobody could use it for 3 s";
  assertEquals(finalStatus(move(status), complete, NOW), {
    state: "Complete",
    releasedTime: TIMES.releasedTime,
    message,
  });
  const { releasedTime: _, ...unreleased } = status;
  assertEquals(finalStatus(move(unreleased), complete, NOW), {
    ...{
      state: "Complete",
      releasedTime: "2026-01-02T03:04:05Z",
      message: "moved online; nobody could use it for 5 s",
    },
  });
  assertEquals(finalStatus(move(), complete, NOW).message, "");
  assertEquals(finalStatus(move(status), { do: "finish", state: "Failed" }, NOW), { state: "Failed" });
  const forgotten = { do: "finish", state: "Failed", message: "forgotten" } as const;
  assertEquals(finalStatus(move(status), forgotten, NOW), { state: "Failed", message: "forgotten" });
});

Deno.test("eventAfter() reports the end of a move, and that it goes on offline", () => {
  const error = { code: "NoSpace", message: "no space" } as const;
  const textOf = (step: MoveStep, status: LvmMoveStatus = {}) => {
    const event = eventAfter(move(status), step, NOW);
    return event && `${event.type} ${event.reason}: ${event.message}`;
  };
  assertEquals(
    textOf({ do: "finish", state: "Complete" }, { copyMode: "Offline", ...TIMES }),
    "Normal Moved: is on node b: moved offline; nobody could use it for 3 s",
  );
  assertEquals(textOf({ do: "finish", state: "Failed" }, { error }), "Warning MoveFailed: stays on node a: no space");
  assertEquals(
    textOf({ do: "finish", state: "Failed", message: "forgotten" }, { error }),
    "Warning MoveFailed: forgotten",
  );
  assertEquals(textOf({ do: "go offline", reason: "no space" }), "Warning MoveOffline: goes on offline: no space");
  assertEquals(
    textOf({ do: "remove finalizer" }, { state: "Undoing" }),
    "Normal MoveUndone: stays on node a: the LVMMove was deleted",
  );
  assertEquals(textOf({ do: "remove finalizer" }, { state: "Complete" }), undefined);
  assertEquals(textOf({ do: "record" }, { state: "Undoing" }), undefined);
});

const USED = { difference: 0, received: "5Mi", held: false };
const AGAIN = { difference: 1, received: "2Mi", held: false };
const HELD = { difference: 2, received: "64Ki", held: true };

Deno.test("sentText() has what was sent while the volume could be used, and while it could not", () => {
  assertEquals(sentText({}), undefined);
  assertEquals(sentText({ stages: [] }), undefined);
  assertEquals(sentText({ stages: [USED] }), "sent 5 MiB while it was used");
  assertEquals(sentText({ stages: [{ ...HELD, difference: 0 }] }), "sent 64 KiB while nobody could use it");
  const all = "sent 5 MiB and 2 MiB while it was used, 64 KiB while nobody could use it";
  assertEquals(sentText({ stages: [USED, AGAIN, HELD] }), all);
  assertEquals(sentText({ stages: [{ ...USED, received: "?" }] }), "sent 0 B while it was used");
});

Deno.test("copyModeText() says how a volume is copied", () => {
  assertEquals(copyModeText({ copyMode: "Online" }), "online, so that it is copied while it is used");
  const offline = copyModeText({ copyMode: "Offline", offlineReason: "no space" });
  assertEquals(offline, "offline, so that it is copied while nobody can use it: no space");
});

const LINES: readonly [status: LvmMoveStatus | undefined, line: string][] = [
  [undefined, "Pending"],
  [{ state: "Holding", message: "" }, "Holding"],
  [{ state: "Holding", copyMode: "Online", message: "a pod uses it" }, "Holding: online, a pod uses it"],
  [
    { state: "Copying", copy: { copied: "1", percent: 40, total: "5Mi" }, message: "copies it" },
    "Copying: 40% of 5Mi, copies it",
  ],
  [{ state: "Copying", copy: { copied: "1" } }, "Copying: 0% of ?"],
  [{ state: "Copying", copy: { copied: "1", snapshot: "s" }, stages: [USED] }, "Copying: sent 5 MiB while it was used"],
  [{ state: "Switching", copy: { copied: "1", percent: 40 } }, "Switching"],
  [{ state: "Complete", copyMode: "Online", message: "moved online" }, "Complete"],
  [{ state: "Failed", copyMode: "Online", message: "no space" }, "Failed"],
];

for (const [status, line] of LINES) {
  Deno.test(`moveProgressText(): ${line}`, () => {
    assertEquals(moveProgressText({ metadata: { name: "m" }, spec: {} as never, ...(status && { status }) }), line);
  });
}

Deno.test("downtimeSeconds() is the time between the hold and the end of it, in whole seconds", () => {
  const [heldTime, releasedTime] = ["2026-01-02T03:04:05.000Z", "2026-01-02T03:05:07.600Z"];
  assertEquals(downtimeSeconds({ status: { heldTime, releasedTime } }), 63);
  assertEquals(downtimeSeconds({ status: { heldTime: releasedTime, releasedTime: heldTime } }), 0);
  assertEquals(downtimeSeconds({ status: { heldTime } }), undefined);
  assertEquals(downtimeSeconds({}), undefined);
});

Deno.test("outcomeText() has the copy mode, what was sent, and the downtime, as far as they are known", () => {
  assertEquals(outcomeText({}), "");
  const times = { heldTime: "2026-01-02T03:04:05Z", releasedTime: "2026-01-02T03:04:06Z" };
  const text = "moved online; sent 5 MiB while it was used; nobody could use it for 1 s";
  assertEquals(outcomeText({ copyMode: "Online", stages: [USED], ...times }), text);
});
