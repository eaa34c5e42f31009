import { assert, assertEquals, assertMatch } from "@std/assert";
import { FakeCgroups, KUBELET_CGROUP_PATHS } from "../../tests/fake/machine/cgroups.ts";
import { parseRates, PodCgroups } from "./cgroups.ts";

const POD = "0a1b2c3d-1111-2222-3333-444455556666";

/** Creates a hierarchy in a temporary directory, and the object that limits pods in it. */
async function setUpHierarchy() {
  const folder = await Deno.makeTempDir({ prefix: "denolith-cgroups-" });
  const fake = new FakeCgroups(`${folder}/cgroup`);
  return {
    fake,
    pods: new PodCgroups(fake.root),
    [Symbol.asyncDispose]: () => Deno.remove(folder, { recursive: true }),
  };
}

for (const [layout, path] of Object.entries(KUBELET_CGROUP_PATHS)) {
  Deno.test(`limit() finds a pod's cgroup: ${layout}`, async () => {
    await using cgroups = await setUpHierarchy();
    cgroups.fake.mount();
    const other = cgroups.fake.addPod(path("ffffffff-1111-2222-3333-444455556666"));
    assertEquals(await cgroups.pods.limit(POD, "253:7", { readIops: 500n }), { state: "waiting" });
    const file = cgroups.fake.addPod(path(POD));
    assertEquals(await cgroups.pods.limit(POD, "253:7", { readIops: 500n }), { state: "applied" });
    assertEquals(await Deno.readTextFile(file), "253:7 riops=500\n");
    assertEquals(await Deno.readTextFile(other), "");
  });
}

Deno.test("limit() writes what differs, and leaves limits without a rate unchanged", async () => {
  await using cgroups = await setUpHierarchy();
  cgroups.fake.mount();
  const file = cgroups.fake.addPod(`kubepods/pod${POD}`);
  await Deno.writeTextFile(
    file,
    "253:70 rbps=max wbps=max riops=7 wiops=max\n253:7 rbps=max wbps=4096 riops=9 wiops=5\n",
  );
  const before = await Deno.readTextFile(file);
  const same = { writeBps: 4096n, readIops: 9n, readBps: "max" } as const;
  assertEquals(await cgroups.pods.limit(POD, "253:7", same), { state: "applied" });
  assertEquals(await Deno.readTextFile(file), before);
  await cgroups.pods.limit(POD, "253:7", { ...same, readIops: "max", writeBps: 8192n });
  assertEquals(await Deno.readTextFile(file), "253:7 riops=max rbps=max wbps=8192\n");
});

Deno.test("parseRates() returns no limit for a key that io.max does not contain", () => {
  const none = { readIops: "max", writeIops: "max", readBps: "max", writeBps: "max" } as const;
  assertEquals(parseRates("", "253:7"), none);
  assertEquals(parseRates("253:70 riops=7\n", "253:7"), none);
  assertEquals(parseRates("8:0 riops=1\n253:7 rbps=1 wbps=max riops=2 wiops=3\n", "253:7"), {
    ...{ readIops: 2n, writeIops: 3n, readBps: 1n, writeBps: "max" },
  });
});

Deno.test("limit() reports why it cannot limit a device", async () => {
  await using cgroups = await setUpHierarchy();
  const { fake, pods } = cgroups;
  const limit = async () => {
    const answer = await pods.limit(POD, "253:7", { readIops: 500n });
    assert(answer.state === "refused", answer.state);
    assert(answer.message.includes(fake.root), answer.message);
    return answer;
  };
  assertEquals((await limit()).reason, "NoCgroup2");
  fake.mount("cpuset memory");
  const without = await limit();
  assertEquals(without.reason, "NoIoController");
  assertMatch(without.message, /cpuset memory/);
  fake.mount();
  const file = fake.addPod(`kubepods/burstable/pod${POD}`, { io: false });
  assertEquals((await limit()).reason, "IoControllerNotEnabled");
  await Deno.mkdir(file); // a directory cannot be written, whatever the user
  assertEquals((await limit()).reason, "IoControllerNotEnabled");
  await Deno.remove(file);
  await Deno.symlink("/proc/version", file);
  const refused = await limit();
  assertEquals(refused.reason, "Refused");
  assertMatch(refused.message, /writing "253:7 riops=500" to .*io\.max: /);
});
