import { assert, assertEquals } from "@std/assert";
import type { Diagnosis } from "../../lvm/doctor/doctor.ts";
import { CHECK_NAMES, type Finding } from "../../lvm/doctor/doctor.ts";
import { readObjects } from "../../deploy/objects.ts";
import { DOCTOR_ANNOTATION, type LvmNode, type NodeDiagnosis } from "../api/lvm_objects.ts";
import { type ApiClient, ApiError } from "../client/client.ts";
import type { Informer } from "../runtime/informer.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { FakeInformer } from "../../tests/fake/cluster/informer.ts";
import { DoctorReconciler, nextDoctorStep, toNodeDiagnosis } from "./doctor_reconciler.ts";

const NOW = new Date("2026-02-03T04:05:06Z");

function node(asked: string | undefined, doctor?: NodeDiagnosis): LvmNode {
  return {
    metadata: { name: "n1", ...(asked !== undefined && { annotations: { [DOCTOR_ANNOTATION]: asked } }) },
    spec: { driverName: "lvm.denolith.dev" },
    status: { ...(doctor && { doctor }) },
  };
}

Deno.test("nextDoctorStep() answers a request once, and removes the answer with the request, or after ten minutes", () => {
  const step = (...args: Parameters<typeof node>) => nextDoctorStep(node(...args), NOW);
  assertEquals(step(undefined), { kind: "nothing" });
  assertEquals(step("a"), { kind: "examine", request: "a" });
  assertEquals(step("a", { request: "b", time: "2026-02-03T04:05:00Z" }), { kind: "examine", request: "a" });
  const answer = { request: "a", time: "2026-02-03T04:05:00Z", findings: [] };
  assertEquals(step("a", answer), { kind: "nothing", waitMs: 594_000 });
  assertEquals(step("a", { ...answer, time: "2026-02-03T03:55:06Z" }), { kind: "remove", request: "a" });
  assertEquals(step("a", { request: "a" }), { kind: "nothing" });
  assertEquals(step(undefined, answer), { kind: "remove" });
  assertEquals(step(undefined, { request: "a" }), { kind: "remove" });
  for (const odd of ["", "a b", "x".repeat(65), "a\n", "<script>"]) assertEquals(step(odd), { kind: "nothing" });
});

Deno.test("toNodeDiagnosis() keeps the worst findings, and no more than the schema allows", () => {
  const long = "ü".repeat(10_000);
  const finding = (level: Finding["level"]): Finding => ({
    ...{ check: "groups", level, subject: long, message: long, remedy: long },
  });
  const findings = [...Array.from({ length: 100 }, () => finding("info")), finding("error"), finding("warning")];
  const checks = CHECK_NAMES.map((check) => ({ check, level: "ok" as const, summary: long }));
  const diagnosis: Diagnosis = { level: "error", checks, findings };
  const answer = toNodeDiagnosis(diagnosis, "a", NOW);
  assertEquals([answer.findings!.length, answer.omitted], [50, 52]);
  assertEquals(answer.findings!.slice(-2).map(({ level }) => level), ["error", "warning"], "they keep their order");
  assert(JSON.stringify(answer).length < 100_000, "an object may have 1.5 MiB");
  const crd = readObjects("crds").find(({ spec }) => spec.names.kind === "LVMNode")!;
  const { properties } = crd.spec.versions[0].schema.openAPIV3Schema.properties.status.properties.doctor;
  assert(answer.findings!.length <= properties.findings.maxItems && CHECK_NAMES.length <= properties.checks.maxItems);
  for (const field of ["subject", "message", "remedy"] as const) {
    assert(answer.findings![0]![field]!.length <= properties.findings.items.properties[field].maxLength);
  }
  for (const { summary } of answer.checks!) {
    assert(summary.length <= properties.checks.items.properties.summary.maxLength);
  }
  assertEquals(Object.keys(answer).filter((field) => !(field in properties)), []);
});

/** Runs a reconciler whose answers meet these errors, one after the other. @returns what it did within a minute */
async function answerWith(errors: ApiError[], isNewEachTime = false) {
  const clock = new FakeClock();
  const counts = { examined: 0, written: 0 };
  const end = new AbortController();
  let wake = (_name: string) => {};
  const reconciler = new DoctorReconciler({
    ...{ driver: "lvm.denolith.dev", nodeName: "n1", end: end.signal, clock },
    client: {
      patch: () => {
        counts.written++;
        const error = errors.shift();
        return error === undefined ? Promise.resolve({}) : Promise.reject(error);
      },
    } as unknown as ApiClient,
    objects: {
      get: () => node(isNewEachTime ? crypto.randomUUID() : "a"),
      subscribe: (listener: typeof wake) => void (wake = listener),
    } as unknown as Informer<LvmNode>,
    examine: () => {
      counts.examined++;
      return Promise.resolve({ level: "ok", checks: [], findings: [] });
    },
  });
  wake("n1");
  for (let second = 0; second < 60; second++) {
    await reconciler.idle();
    if (isNewEachTime) wake("n1");
    await reconciler.idle();
    await clock.advance(1_000);
  }
  await reconciler.idle();
  end.abort();
  return counts;
}

Deno.test("DoctorReconciler: checks the node once for a request, also while the answer cannot be written", async () => {
  const down = () => new ApiError("down", { status: 503, reason: "ServiceUnavailable" });
  assertEquals(await answerWith([]), { examined: 1, written: 1 });
  assertEquals(await answerWith([down(), down(), down()]), { examined: 1, written: 4 });
  const refusals = Array.from({ length: 9 }, () => new ApiError("odd", { status: 422, reason: "Invalid" }));
  assertEquals(await answerWith(refusals), { examined: 1, written: 1 });
});

Deno.test("DoctorReconciler: who asks all the time keeps the node from nothing else", async () => {
  const { examined } = await answerWith([], true);
  assert(examined >= 9 && examined <= 11, `${examined} times in a minute`);
});

Deno.test("DoctorReconciler: answers a request again that was withdrawn, and made again under the same id", async () => {
  const end = new AbortController();
  const objects = new FakeInformer<LvmNode>();
  let examined = 0;
  const reconciler = new DoctorReconciler({
    ...{ driver: "lvm.denolith.dev", nodeName: "n1", end: end.signal, clock: new FakeClock(), objects },
    client: { patch: () => Promise.resolve({}) } as unknown as ApiClient,
    examine: () => {
      examined++;
      return Promise.resolve({ level: "ok", checks: [], findings: [] });
    },
  });
  const answer = { request: "a", time: "2026-01-01T00:00:00Z", findings: [] };
  for (const state of [node("a"), node("a", answer), node(undefined, answer), node(undefined), node("a")]) {
    objects.set("n1", state);
    await reconciler.idle();
  }
  end.abort();
  assertEquals(examined, 2);
});
