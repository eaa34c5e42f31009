import { assertEquals, assertMatch } from "@std/assert";
import { findings } from "./findings.ts";
import { isDeathError } from "./lives.ts";
import { isRunningCommands, parseProcess, type Phase, type ProcessSample, type Sample } from "./sample.ts";

const PROCESS: ProcessSample = {
  ...{ pid: 7, rssMiB: 200, anonMiB: 100, threads: 12, queued: 0 },
  descriptors: 40,
  descriptorKinds: { pipe: 10, "socket: unix /csi/csi.sock": 30 },
};

/** Returns a sample as it should be, with changes. */
function sample(
  seconds: number,
  phase: Phase,
  changes: Partial<Sample> & { node?: Partial<ProcessSample> } = {},
): Sample {
  const { node, ...others } = changes;
  const processes = { node: { ...PROCESS, ...node }, controller: { ...PROCESS, pid: 8 } };
  return { seconds, phase, cycle: 1, lives: 0, processes, lvs: 1, objects: { lvmvolumes: 0 }, ...others };
}

/** Returns a soak of one cycle: the first rest, twenty samples while it is calm, and the last rest. */
function soak(calm: (index: number) => Partial<ProcessSample>, rest: Parameters<typeof sample>[2] = {}): Sample[] {
  const calmSamples = Array.from({ length: 20 }, (_, index) => sample(60 + 30 * index, "calm", { node: calm(index) }));
  return [sample(30, "rest", { cycle: 0 }), ...calmSamples, sample(700, "rest", { lives: 9, ...rest })];
}

Deno.test("findings() has nothing to say of a soak in which all is flat", () => {
  assertEquals(findings(soak((index) => ({ anonMiB: 100 + index % 3 }))), []);
});

Deno.test("findings() names what is left at rest: LVs, objects, keys in queues, descriptors", () => {
  assertEquals(findings(soak(() => ({}), { lvs: 2 })), ["at the end of cycle 1: 2 LVs, at first 1"]);
  assertEquals(findings(soak(() => ({}), { objects: { lvmvolumes: 3 } })), [
    "at the end of cycle 1: 3 lvmvolumes, at first 0",
  ]);
  assertEquals(findings(soak(() => ({}), { node: { queued: 2 } })), [
    "at the end of cycle 1: 2 keys in the queues of the node",
  ]);
  const descriptorKinds = { pipe: 12, "socket: unix /csi/csi.sock": 30, "/dev/null": 18 };
  assertEquals(findings(soak(() => ({}), { node: { descriptors: 60, descriptorKinds } })), [
    "at the end of cycle 1: 60 descriptors of the node, at first 40; more: 2 pipe, 18 /dev/null",
  ]);
});

Deno.test("findings() names a process whose memory grows while it lives", () => {
  const [found = ""] = findings(soak((index) => ({ anonMiB: 100 + 3 * index })));
  assertMatch(found, /^cycle 1: the node's memory grew from \d+(\.5)? to \d+(\.5)? MiB$/);
});

Deno.test("findings() does not compare the memory of two processes, and names one that ended while it was calm", () => {
  const restarted = soak((index) => ({ pid: 100 + index, anonMiB: 100 + 3 * index }));
  assertEquals(findings(restarted), [
    "cycle 1: the node ended 17 times while it was calm",
    "the node never ran long enough to judge its memory",
  ]);
});

Deno.test("findings() names a process that did not run while it was calm", () => {
  const samples = soak(() => ({})).map((each) => {
    if (each.seconds !== 300) return each;
    const { controller } = each.processes;
    return { ...each, processes: { ...(controller && { controller }) } };
  });
  assertEquals(findings(samples), ["cycle 1: the node did not run in 1 of 18 samples while it was calm"]);
});

Deno.test("findings() names a cycle without lives of volumes, and a soak without a cycle", () => {
  assertEquals(findings(soak(() => ({}), { lives: 0 })), ["cycle 1: no life of a volume ended"]);
  assertEquals(findings([sample(30, "rest", { cycle: 0 })]), ["no sample at rest after a cycle"]);
});

Deno.test("parseProcess() reads the figures of a process, and the sum of its queues", () => {
  const text = "pid 12\nVmRSS:\t  204800 kB\nRssAnon:\t  102400 kB\nThreads:\t15\n" +
    "descriptor pipe\ndescriptor /dev/null\ndescriptor pipe\n" +
    'denolith_workqueue_depth{controller="provisioner"} 2\ndenolith_workqueue_depth{controller="resizer"} 1\n';
  assertEquals(parseProcess(text), {
    ...{ pid: 12, rssMiB: 200, anonMiB: 100, threads: 15, queued: 3 },
    descriptors: 3,
    descriptorKinds: { "/dev/null": 1, pipe: 2 },
  });
  assertEquals(parseProcess(text.split("\n").slice(0, 5).join("\n")).queued, undefined);
});

Deno.test("isDeathError() knows what a dead component does to kubectl, and nothing else", () => {
  for (
    const message of [
      "The connection to the server 127.0.0.1:6443 was refused - did you specify the right host or port?",
      "error: unable to upgrade connection: container not found",
      "Error from server (ServiceUnavailable): apiserver not ready",
    ]
  ) assertEquals(isDeathError(message), true, message);
  assertEquals(isDeathError("sha256sum: WARNING: 1 of 1 computed checksums did NOT match"), false);
  assertEquals(isDeathError('admission webhook "x" denied the request'), false);
});

Deno.test("isRunningCommands() knows a command by its pidfd", () => {
  assertEquals(isRunningCommands(sample(0, "rest")), false);
  const descriptorKinds = { ...PROCESS.descriptorKinds, "anon_inode:[pidfd]": 1 };
  assertEquals(isRunningCommands(sample(0, "rest", { node: { descriptorKinds } })), true);
});
