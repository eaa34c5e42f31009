/**
 * Leader elections in which a naive candidate would act beside another leader.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { harness, LEASE } from "../../tests/fake/cluster/election.ts";
import { leases } from "../api/objects.ts";
import { HttpClient } from "../client/http_client.ts";
import { LeaderElection } from "./leader.ts";

Deno.test("LeaderElection: who reads its acquisition only after another one took over does not lead", async () => {
  await using s = harness();
  const a = s.candidate("a");
  using other = new HttpClient({ url: s.fake.url }, { userAgent: "someone else" });
  let isTaken = false;
  a.cut.onAnswer = async (verb) => {
    if (verb !== "create") return;
    s.clock.stall(20_000); // the process is stopped between the request and the answer
    await other.patch(leases, LEASE, { merge: { spec: { holderIdentity: "someone else" } } });
    isTaken = true;
  };
  await s.pass(0);
  await waitUntil(() => isTaken, "another holder");
  await s.pass(3_000);
  assertEquals([s.log, s.lease()?.holderIdentity], [[], "someone else"]);
});

Deno.test("LeaderElection: the first term counts from the request, too", async () => {
  await using s = harness();
  const a = s.candidate("a");
  a.cut.onAnswer = (verb) => {
    if (verb !== "create") return;
    s.clock.stall(4_900);
    a.cut.off = true;
  };
  await s.pass(0);
  assertEquals(s.log, ["a leads"]);
  await s.pass(5_200);
  assertEquals(s.log, ["a leads", "a ends", "a is done"], "10 s after the request");
});

Deno.test("LeaderElection: who stops while it learns that another took over leaves the other's record alone", async () => {
  await using s = harness();
  const a = s.candidate("a");
  await s.pass(100);
  using other = new HttpClient({ url: s.fake.url }, { userAgent: "someone else" });
  await other.patch(leases, LEASE, { merge: { spec: { holderIdentity: "someone else" } } });
  let hasStopped = false;
  a.cut.onAnswer = async (verb) => {
    if (verb !== "get" || hasStopped) return;
    a.stop.abort();
    await waitUntil(() => s.log.includes("a is done"), "the end of the work");
    hasStopped = true;
  };
  await s.pass(5_000);
  await waitUntil(() => hasStopped, "the end of the work");
  await s.pass(1_000);
  await s.seen();
  assertEquals(s.lease()?.holderIdentity, "someone else");
});

Deno.test("LeaderElection: while a holder renews, nobody else leads after a deletion of its lease", async () => {
  await using s = harness();
  s.candidate("a");
  await s.pass(100);
  s.candidate("b");
  await s.watched();
  using other = new HttpClient({ url: s.fake.url }, { userAgent: "someone else" });
  for (let time = 0; time < 3; time++) {
    await other.delete(leases, LEASE);
    await s.seen();
    for (let second = 0; second < 10; second++) {
      await s.pass(1_000);
      await s.seen();
    }
    assertEquals([s.log, s.lease()?.holderIdentity], [["a leads"], "a"]);
  }
});

Deno.test("LeaderElection: a deleted lease of a dead holder is acquired when it would have expired, and a free one at once", async () => {
  await using s = harness();
  using other = new HttpClient({ url: s.fake.url }, { userAgent: "someone else" });
  s.fake.put(leases, { metadata: LEASE, spec: { holderIdentity: "dead", leaseDurationSeconds: 15 } });
  const b = s.candidate("b");
  await s.watched();
  await other.delete(leases, LEASE);
  await s.seen();
  await s.pass(14_800);
  assertEquals(s.log, []);
  await s.pass(300);
  assertEquals(s.log, ["b leads"]);
  b.stop.abort();
  await waitUntil(() => s.lease()?.holderIdentity === "", "the release");
  s.candidate("c");
  await other.delete(leases, LEASE);
  await s.pass(2_500);
  assertEquals(s.log.at(-1), "c leads");
});

Deno.test("LeaderElection: a process that was stopped for longer than the lease ends before it asks again", async () => {
  await using s = harness();
  const a = s.candidate("a");
  await s.pass(100);
  a.cut.hangs = true;
  s.clock.stall(14_500);
  await s.pass(400); // 14.9 s after the acquisition
  await s.pass(200);
  assertEquals(s.log, ["a leads", "a ends", "a is done"]);
});

Deno.test("LeaderElection: a lease that is valid for months is watched once", async () => {
  await using s = harness();
  s.fake.put(leases, { metadata: LEASE, spec: { holderIdentity: "admin", leaseDurationSeconds: 2_147_483_647 } });
  using client = new HttpClient({ url: s.fake.url }, { userAgent: "candidate" });
  const stop = new AbortController();
  const done = new LeaderElection(client, { lease: LEASE, identity: "a" }).run(stop.signal, () => Promise.resolve());
  await new Promise((resolve) => setTimeout(resolve, 300));
  const { length } = s.fake.requests;
  stop.abort();
  await done;
  assert(length <= 2, `${length} requests`);
});
