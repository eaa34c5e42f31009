import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/fake/clock.ts";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { harness, LEASE } from "../../tests/fake/cluster/election.ts";
import { HttpClient } from "../client/http_client.ts";
import { controllerLeaseName, LeaderElection, sidecarLeaseName } from "./leader.ts";
import { leases } from "../api/objects.ts";

Deno.test("LeaderElection: the first takes the lease and renews it, and the second waits", async () => {
  await using s = harness();
  s.candidate("a");
  await s.pass(100);
  s.candidate("b");
  const { renewTime } = s.lease()!;
  await s.pass(30_000);
  assertEquals(s.log, ["a leads"]);
  const { holderIdentity, leaseDurationSeconds, leaseTransitions, renewTime: later } = s.lease()!;
  assertEquals([holderIdentity, leaseDurationSeconds, leaseTransitions], ["a", 15, 0]);
  assertEquals([renewTime, later], ["2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:30.000000Z"]);
});

Deno.test("LeaderElection: a renewal is one request every 5 s, and a candidate that watches sends none", async () => {
  await using s = harness();
  s.candidate("a");
  await s.pass(100);
  assertEquals(s.requests(), "GET POST");
  await s.pass(60_000);
  assertEquals(s.requests(), Array(12).fill("PUT").join(" "));
  s.candidate("b");
  await s.watched();
  assertEquals(s.requests(), "GET WATCH");
  for (let second = 0; second < 60; second++) {
    await s.pass(1_000);
    await s.seen();
  }
  assertEquals(s.requests(), Array(12).fill("PUT").join(" "));
  assertEquals(s.log, ["a leads"]);
});

Deno.test("LeaderElection: elections of a process renew at the same moments", async () => {
  await using s = harness();
  s.candidate("a");
  await s.pass(3_700);
  s.requests();
  await s.pass(1_200);
  assertEquals(s.requests(), "");
  await s.pass(100);
  assertEquals(s.requests(), "PUT");
});

Deno.test("LeaderElection: a clean stop hands over at once, but not before the work is done", async () => {
  await using s = harness();
  const a = s.candidate("a", true);
  await s.pass(100);
  s.candidate("b");
  await s.watched();
  a.stop.abort();
  await s.pass(20_000);
  assertEquals(s.log, ["a leads", "a ends"]);
  a.finish.resolve();
  await waitUntil(() => s.log.includes("b leads"), "the next leader"); // no time passes
  assertEquals(s.log, ["a leads", "a ends", "a is done", "b leads"]);
  assertEquals(s.lease()?.leaseTransitions, 1);
});

Deno.test("LeaderElection: who cannot renew ends before another may begin, and comes back later", async () => {
  await using s = harness();
  const a = s.candidate("a");
  await s.pass(100);
  const b = s.candidate("b");
  await s.pass(2_000);
  a.cut.off = true;
  await s.pass(8_000); // until 10.1 s: 10 s after the last renewal
  assertEquals([s.log, a.election.isLeading], [["a leads", "a ends", "a is done"], false]);
  await s.pass(7_000);
  assertEquals(s.log.slice(3), ["b leads"]);
  a.cut.off = false;
  b.stop.abort();
  await s.pass(3_000);
  assertEquals(s.log.slice(4), ["b ends", "b is done", "a leads"]);
});

Deno.test("LeaderElection: who gets no answer ends 10 s after the last renewal", async () => {
  await using s = harness();
  const a = s.candidate("a");
  await s.pass(100);
  a.cut.hangs = true;
  await s.pass(9_800);
  assertEquals(s.log, ["a leads"]);
  await s.pass(200);
  assertEquals(s.log, ["a leads", "a ends", "a is done"]);
});

Deno.test("LeaderElection: a lease that someone else took is lost at the next renewal", async () => {
  await using s = harness();
  const a = s.candidate("a");
  await s.pass(100);
  using other = new HttpClient({ url: s.fake.url }, { userAgent: "someone else" });
  await other.patch(leases, LEASE, { merge: { spec: { holderIdentity: "someone else" } } });
  await s.pass(5_000);
  assertEquals([s.log, a.election.isLeading], [["a leads", "a ends", "a is done"], false]);
  assertEquals(s.lease()?.holderIdentity, "someone else");
});

Deno.test("LeaderElection: a candidate that sees no renewals takes nothing while they go on", async () => {
  await using s = harness();
  s.candidate("a");
  await s.pass(100);
  s.fake.faults.stalledWatches = true; // as a connection that is dead, and does not say so
  s.candidate("b");
  await s.pass(120_000);
  assertEquals([s.log, s.lease()?.leaseTransitions], [["a leads"], 0]);
});

Deno.test("LeaderElection: a candidate that cannot watch asks about every 2 s, and takes over when its turn comes", async () => {
  await using s = harness();
  const a = s.candidate("a");
  await s.pass(100);
  s.candidate("b").cut.refusesWatches = true;
  await s.pass(30_000);
  assertEquals(s.log, ["a leads"]);
  a.cut.off = true;
  await s.pass(22_500); // the renewal before may be 5 s old, the Lease is valid for 15 s, and b asks every 2 s
  assertEquals(s.log, ["a leads", "a ends", "a is done", "b leads"]);
});

Deno.test("LeaderElection: a candidate takes over 15 s after the last renewal", async () => {
  await using s = harness();
  const a = s.candidate("a");
  await s.pass(100);
  s.candidate("b");
  await s.watched();
  await s.pass(5_000);
  await s.seen(); // the renewal at 5 s
  a.cut.off = true;
  await s.pass(14_700);
  assertEquals(s.log, ["a leads", "a ends", "a is done"]);
  await s.pass(500);
  assertEquals(s.log.slice(3), ["b leads"]);
});

Deno.test("LeaderElection ignores the time of day of a holder, and observes for how long it does not renew", async () => {
  await using s = harness();
  const spec = { holderIdentity: "dead", leaseDurationSeconds: 15, renewTime: "1999-01-01T00:00:00.000000Z" };
  s.fake.put(leases, { metadata: LEASE, spec });
  s.candidate("a");
  await s.pass(14_900);
  assertEquals(s.log, []);
  await s.pass(2_300);
  assertEquals(s.log, ["a leads"]);
});

Deno.test("LeaderElection: a conflict while renewing is no loss", async () => {
  await using s = harness();
  s.candidate("a");
  await s.pass(100);
  s.fake.faults.conflicts = 2;
  await s.pass(20_000);
  assertEquals([s.log, s.fake.faults.conflicts], [["a leads"], 0]);
});

Deno.test("LeaderElection: who could not even ask, because the process was stalled, asks once before it ends", async () => {
  await using s = harness();
  const a = s.candidate("a");
  await s.pass(100);
  s.clock.stall(12_000);
  await s.pass(3_000);
  assertEquals([s.log, a.election.isLeading], [["a leads"], true]);
  await s.pass(30_000);
  assertEquals(s.log, ["a leads"]);
  s.clock.stall(12_000);
  a.cut.off = true;
  await s.pass(100);
  assertEquals(s.log, ["a leads", "a ends", "a is done"]);
});

Deno.test("LeaderElection: a stalled process ends when another took the lease meanwhile", async () => {
  await using s = harness();
  const a = s.candidate("a");
  await s.pass(100);
  using other = new HttpClient({ url: s.fake.url }, { userAgent: "someone else" });
  s.clock.stall(60_000);
  await other.patch(leases, LEASE, { merge: { spec: { holderIdentity: "someone else" } } });
  await s.pass(100);
  assertEquals([s.log, a.election.isLeading], [["a leads", "a ends", "a is done"], false]);
  assertEquals(s.lease()?.holderIdentity, "someone else");
});

Deno.test("LeaderElection: the term counts from the request, so that a slow answer does not prolong it", async () => {
  await using s = harness();
  const a = s.candidate("a");
  await s.pass(100);
  a.cut.delayMs = 3_000;
  await s.pass(8_500); // one renewal, from 5 s to 8 s
  a.cut.off = true;
  await s.pass(6_000);
  assertEquals(s.log, ["a leads"]);
  await s.pass(500); // until 15.1 s, which is 10 s after the request
  assertEquals(s.log, ["a leads", "a ends", "a is done"]);
});

Deno.test("LeaderElection: candidates ask about every 2 s, at most a tenth earlier or later", async () => {
  const client = { get: () => Promise.reject(new Error("cut off")) } as unknown as HttpClient;
  for (const [random, expectedMs] of [[0, 1_800], [0.5, 2_000], [1, 2_200]] as const) {
    const clock = Object.assign(new FakeClock(), { random: () => random });
    const stop = new AbortController();
    const running = new LeaderElection(client, { lease: LEASE, identity: "a", clock }).run(
      stop.signal,
      () => Promise.resolve(),
    );
    await clock.advance(0);
    assertEquals(Math.round(clock.msUntilNextTimer), expectedMs);
    stop.abort();
    await running;
  }
});

Deno.test("sidecarLeaseName() returns the names of the Leases that the official sidecars use", () => {
  const driver = "lvm.denolith.dev";
  assertEquals(sidecarLeaseName("csi-provisioner", driver), "lvm-denolith-dev");
  assertEquals(sidecarLeaseName("csi-resizer", driver), "external-resizer-lvm-denolith-dev");
  assertEquals(sidecarLeaseName("csi-snapshotter", driver), "external-snapshotter-leader-lvm-denolith-dev");
  assertEquals(sidecarLeaseName("snapshot-controller", driver), "snapshot-controller-leader");
  assertEquals(sidecarLeaseName("csi-provisioner", "example.com/lvm_1"), "example-com-lvm-1");
  assertEquals(sidecarLeaseName("csi-resizer", "odd."), "external-resizer-odd-X");
  assertEquals(controllerLeaseName("capacity", driver), "capacity-lvm-denolith-dev");
});

Deno.test("LeaderElection: who cannot write a lease that has run out does not lead, and tries every 2 s", async () => {
  await using s = harness();
  const spec = { holderIdentity: "gone", leaseDurationSeconds: 15 };
  s.fake.put(leases, { metadata: LEASE, spec: spec as never });
  s.candidate("a");
  await s.pass(100);
  s.requests();
  s.fake.faults.conflicts = 3_000;
  await s.pass(35_000);
  const writes = 3_000 - s.fake.faults.conflicts;
  assertEquals([s.log, writes > 10 && writes < 30], [[], true], `${writes} writes in 20 s`);
  s.fake.faults.conflicts = 0;
  await s.pass(3_000);
  assertEquals(s.log, ["a leads"]);
});
