import { assertEquals, assertRejects } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { type ApiClient, ApiError } from "../client/client.ts";
import type { LvmNode } from "../api/lvm_objects.ts";
import type { PersistentVolume } from "../api/objects.ts";
import type { EventRecorder } from "../runtime/events.ts";
import type { Informer } from "../runtime/informer.ts";
import type { CommonStep, Handover, HandoverObjects } from "./handover.ts";
import { HandoverController, type HandoverControllerOptions, type HandoverKind } from "./handover_controller.ts";

const FINALIZER = "test/handover";
const RECORDED = { metadata: { uid: "p" }, spec: { persistentVolumeReclaimPolicy: "Delete" } };
const SELF: Handover = {
  metadata: { name: "h", uid: "u", resourceVersion: "1", finalizers: ["other", FINALIZER] },
  spec: { driverName: "d", persistentVolume: "pv", claim: { namespace: "n", name: "c", uid: "claim" } },
  status: { state: "Begun", message: "before", persistentVolume: RECORDED },
};
const PV = {
  metadata: { name: "pv", uid: "p", resourceVersion: "4", finalizers: ["kubernetes.io/pv-protection", "other/one"] },
} as PersistentVolume;
const DELETED = { ...PV, metadata: { ...PV.metadata, deletionTimestamp: "now" } };

type Step = { readonly do: "own" | "finish" };
type Kind = HandoverKind<Handover, HandoverObjects, Step>;

/** What a test gives. */
interface Harness {
  readonly self?: Handover;
  readonly persistentVolume?: PersistentVolume;
  readonly kind?: Partial<Kind>;
}

/** A controller whose kind has a step, over an API server that has one handover. */
class Fake {
  /** What was written, one line each. */
  readonly writes: string[] = [];
  /** The events. */
  readonly events: string[] = [];
  /** The kind. */
  readonly kind: Kind;
  readonly #controller: HandoverController<Handover, HandoverObjects, Step>;
  #self: Handover;

  /** Creates it. */
  constructor(step: Step | CommonStep, { self = SELF, persistentVolume = PV, kind = {} }: Harness = {}) {
    this.#self = self;
    this.kind = {
      name: "mover",
      resource: { group: "g", version: "v1", plural: "handovers", kind: "Handover", namespaced: false },
      informer: undefined as never,
      finalizer: FINALIZER,
      marksOf: () => ({ "test/mark": "m" }),
      watch: () => {},
      read: (self) => Promise.resolve({ self, volume: undefined, persistentVolume, claim: undefined }),
      refusalOf: () => undefined,
      nextStep: () => step,
      statusBefore: (_, { do: state }, failure) => ({ state, message: failure ?? "" }),
      carryOut: ({ do: name }) => Promise.resolve(void this.writes.push(name)),
      eventsBefore: (_, { state = "" }) => [{ type: "Normal", reason: "MoveStarted", message: state }],
      eventAfter: (_, { do: name }) => ({ type: "Normal", reason: "Moved", message: name }),
      ...kind,
    };
    const client = {
      get: () => Promise.resolve(this.#self),
      patch: ({ plural }: { plural: string }, { name }: { name: string }, options: { merge: Handover }) => {
        this.writes.push(`patch ${plural} ${name} ${JSON.stringify(options)}`);
        this.#self = { ...this.#self, status: { ...this.#self.status, ...options.merge.status } };
        return Promise.resolve(this.#self);
      },
      delete: ({ plural }: { plural: string }, { name }: { name: string }, options: object) =>
        Promise.resolve(void this.writes.push(`delete ${plural} ${name} ${JSON.stringify(options)}`)),
    } as unknown as ApiClient;
    const record = ({ kind }: { kind?: string }, type: string, reason: string, message: string) =>
      void this.events.push(`${kind} ${type} ${reason} ${message}`);
    this.#controller = new HandoverController(this.kind, {
      client,
      driverName: "d",
      events: { record } as unknown as EventRecorder,
      lvmNodes: { get: () => undefined } as unknown as Informer<LvmNode>,
    } as unknown as HandoverControllerOptions);
  }

  /** Reconciles the handover. @returns what was written, without the status before the step */
  async reconcile(): Promise<readonly string[]> {
    const { length } = this.writes;
    await this.#controller.reconcile("h");
    return this.writes.slice(length).filter((line) => !line.includes('"status"'));
  }

  /** Reconciles the handover, which fails. @returns the status that was written */
  async fail(): Promise<readonly string[]> {
    const { length } = this.writes;
    await assertRejects(() => this.#controller.reconcile("h"));
    return this.writes.slice(length).flatMap((line) => /"message":"([^"]*)"/.exec(line)?.[1] ?? []);
  }

  /** The handover. */
  get status(): Handover["status"] {
    return this.#self.status;
  }
}

const patched = (plural: string, name: string, merge: object, resourceVersion: string) => [
  `patch ${plural} ${name} ${JSON.stringify({ merge, resourceVersion })}`,
];
const withMetadata = (metadata: object, status: object = {}) => ({
  self: { ...SELF, metadata: { ...SELF.metadata, ...metadata }, status },
});
const finalizers = (...names: string[]) => patched("handovers", "h", { metadata: { finalizers: names } }, "1");

const STEPS: readonly [what: string, step: Step | CommonStep, harness: Harness, writes: readonly string[]][] = [
  ["a new one", { do: "own" }, withMetadata({ finalizers: ["other"] }), finalizers("other", FINALIZER)],
  ["a new one that is deleted", { do: "own" }, withMetadata({ finalizers: [], deletionTimestamp: "now" }), []],
  ["a finished one", { do: "own" }, withMetadata({}, { state: "Complete" }), []],
  ["a finished one without finalizer", { do: "own" }, withMetadata({ finalizers: [] }, { state: "Failed" }), []],
  [
    "a finished one that is deleted",
    { do: "own" },
    { ...withMetadata({ deletionTimestamp: "now" }, { state: "Failed" }), kind: { read: () => Promise.reject() } },
    finalizers("other"),
  ],
  ["one of another driver", { do: "own" }, { self: { ...SELF, spec: { ...SELF.spec, driverName: "other" } } }, []],
  ["one that goes on", { do: "own" }, {}, ["own"]],
  ["one that is undone", { do: "remove finalizer" }, {}, finalizers("other")],
  [
    "a PersistentVolume that is to be retained",
    { do: "retain" },
    {},
    patched("persistentvolumes", "pv", {
      metadata: { annotations: { "test/mark": "m" } },
      spec: { persistentVolumeReclaimPolicy: "Retain" },
    }, "4"),
  ],
  [
    "a PersistentVolume that is to be deleted",
    { do: "delete persistent volume" },
    {},
    ['delete persistentvolumes pv {"uid":"p","resourceVersion":"4"}'],
  ],
  [
    "a PersistentVolume that is being deleted",
    { do: "delete persistent volume" },
    { persistentVolume: DELETED },
    patched("persistentvolumes", "pv", { metadata: { finalizers: ["other/one"] } }, "4"),
  ],
  [
    "a PersistentVolume that was retained",
    { do: "restore policy" },
    {},
    patched("persistentvolumes", "pv", {
      metadata: { annotations: { "test/mark": null } },
      spec: { persistentVolumeReclaimPolicy: "Delete" },
    }, "4"),
  ],
];

for (const [what, step, harness, writes] of STEPS) {
  Deno.test(`a HandoverController writes, of ${what}, objects only as they were read`, async () => {
    assertEquals(await new Fake(step, harness).reconcile(), writes);
  });
}

Deno.test("a HandoverController records events of what the status says, and of steps that write the handover", async () => {
  const own = new Fake({ do: "own" });
  await own.reconcile();
  const about = (text: string) => ["Handover", "PersistentVolumeClaim"].map((kind) => `${kind} Normal ${text}`);
  assertEquals([own.status?.state, own.events], ["own", about("MoveStarted own")]);
  await own.reconcile();
  assertEquals(own.events.length, 2, "nothing of it changed");
  const written = new Fake({ do: "finish" }, { kind: { carryOut: () => Promise.resolve(SELF) } });
  await written.reconcile();
  assertEquals(written.events, about("Moved finish"));
  assertEquals(written.status?.state, "Begun", "the step writes the last state");
});

Deno.test("a HandoverController records why a handover fails, by one write", async () => {
  const fake = new Fake({ do: "fail", error: { code: "NoSpace", message: "full" } });
  await fake.reconcile();
  assertEquals(fake.writes.length, 1);
  const { state, message, error } = fake.status!;
  assertEquals([state, message, error], ["Undoing", "full", { code: "NoSpace", message: "full" }]);
});

Deno.test("a HandoverController says of a wait that an agent is away", async () => {
  const statusBefore: Kind["statusBefore"] = (_, step) => ({ message: "message" in step ? step.message : "" });
  const step = { do: "wait", message: "waits", agents: ["a"] } as const;
  const fake = new Fake(step, { kind: { statusBefore } });
  await fake.reconcile();
  assertEquals(fake.status?.message, "waits: node a has no agent of the driver");
});

const FAILURES: readonly [what: string, error: Error, said: readonly string[]][] = [
  ["a right that is missing", new ApiError("forbidden", { status: 403, reason: "Forbidden" }), ["forbidden"]],
  ["a webhook that does not answer", new ApiError("no answer", { status: 500, reason: "x" }), ["no answer"]],
  ["a failure of a node", new StorageError("Busy", "busy"), ["busy"]],
  ["a conflict", new ApiError("changed", { status: 409, reason: "Conflict" }), []],
  ["a server that is away", new ApiError("away", { status: 503, reason: "x" }), []],
  ["a mistake", new TypeError("mistake"), []],
];

for (const [what, error, said] of FAILURES) {
  Deno.test(`a HandoverController writes once of ${what} ${said.length === 0 ? "nothing" : "what it says"}`, async () => {
    const fake = new Fake({ do: "own" }, { kind: { carryOut: () => Promise.reject(error) } });
    assertEquals(await fake.fail(), ["", ...said]);
    assertEquals(await fake.fail(), []);
    const unread = new Fake({ do: "own" }, { kind: { read: () => Promise.reject(error) } });
    assertEquals(await unread.fail(), said);
    assertEquals(await unread.fail(), []);
  });
}

Deno.test("a HandoverController says why a step failed before the next attempt of it, and not before another step", async () => {
  let step: Step | CommonStep = { do: "own" };
  const carryOut = () => Promise.reject(new StorageError("Busy", "busy"));
  const fake = new Fake(step, { kind: { nextStep: () => step, carryOut } });
  for (const _ of [1, 2]) {
    await fake.fail();
    assertEquals(fake.status?.message, "busy");
  }
  step = { do: "retain" };
  await fake.reconcile();
  assertEquals([fake.status?.state, fake.status?.message], ["retain", ""]);
});

Deno.test("a HandoverController takes another step in place of one that failed for good", async () => {
  const done: string[] = [];
  const fake = new Fake({ do: "own" }, {
    kind: {
      carryOut: ({ do: name }) =>
        name === "own" ? Promise.reject(new Error("full")) : Promise.resolve(void done.push(name)),
      stepAfterFailure: () => ({ do: "finish" }),
    },
  });
  await fake.reconcile();
  assertEquals(done, ["finish"]);
});
