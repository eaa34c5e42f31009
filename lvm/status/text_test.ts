import { assertEquals, assertMatch } from "@std/assert";
import { healthyMachine } from "../../tests/fake/machine/healthy_machine.ts";
import { statusJson, statusText } from "./text.ts";
import { addInconsistencies, statusOf } from "../../tests/fake/machine/status_machine.ts";

Deno.test("a status as JSON has sizes as integers in bytes, and comes back as it was", async () => {
  const status = await statusOf(healthyMachine());
  const read = JSON.parse(statusJson(status));
  assertEquals([read.groups[0].size, read.volumes[0].size, read.snapshots[0].cowSize], [1 << 30, 64 << 20, 16 << 20]);
  assertEquals(Object.keys(read), [
    "driver",
    "groups",
    "pools",
    "volumes",
    "snapshots",
    "deleted",
    "inconsistencies",
    "orphans",
  ]);
});

Deno.test("a status as text has tables with aligned columns, and no line of prose is too long", async () => {
  const healthy = healthyMachine();
  addInconsistencies(healthy);
  const text = statusText(await statusOf(healthy));
  const volumes = text.slice(text.indexOf("\nVolumes"), text.indexOf("\nSnapshots")).split("\n");
  const column = volumes[2]!.indexOf("STATE");
  const rows = volumes.filter((line) => /^ {2}v1-/.test(line));
  assertEquals(rows.map((row) => row.slice(column).trim()).toSorted(), ["Inconsistent", "Lost", "Partial", "Ready"]);
  assertMatch(text, /\n {2}v1-\S+ +data +64 MiB +ext4 +1 % +Ready\n {6}\/staging\n/);
  assertMatch(text, /\n {6}of v1-[0-9a-f]{32}, 1970-01-01T00:00:01Z\n/);
  assertMatch(text, /\n {6}\/block \(read-only\)\n/);
  assertMatch(text, /\n {2}fast +1 GiB .* 1 of 1 missing\n/);
  assertEquals(
    text.split("\n").filter((line) => line.length > 100 && !/^ *\S+$/.test(line)),
    [],
  );
});

Deno.test("a status as text has a column for spare space where a group has some", async () => {
  const healthy = healthyMachine();
  assertEquals(statusText(await statusOf(healthy)).includes("SPARE"), false);
  healthy.group.tags.add("denolith.spare=100Mi");
  const text = statusText(await statusOf(healthy));
  assertMatch(text, /\n {2}NAME +SIZE +FREE +SPARE +VOLUMES .*\n {2}data +1 GiB +844 MiB +100 MiB +80 MiB /);
});

Deno.test("an empty status has none in each section", async () => {
  const healthy = healthyMachine();
  healthy.machine.groups.length = 0;
  assertEquals(statusText(await statusOf(healthy)), "Volume groups\n  none\n\nVolumes\n  none\n\nSnapshots\n  none");
});

Deno.test("a status as text names the layout of a volume that is not linear", async () => {
  const healthy = healthyMachine();
  const text = async () => statusText(await statusOf(healthy));
  assertEquals((await text()).includes("linear"), false);
  Object.assign(healthy.lv, { segment: { type: "striped", stripes: 2, stripeSize: 65_536n } });
  assertMatch(await text(), /Ready\n {6}striped with 2 stripes of 64Ki\n {6}\/staging\n/);
});

Deno.test("a status shows no control characters of names", async () => {
  const status = await statusOf(healthyMachine());
  const [volume] = status.volumes;
  const odd = { ...status, volumes: [{ ...volume!, mounts: [{ target: "/a\n\u001b[2J\u009b", readOnly: false }] }] };
  assertMatch(statusText(odd), /\n {6}\/a\ufffd\ufffd\[2J\ufffd\n/);
  assertEquals(statusJson(odd).includes("\u009b"), false);
  assertEquals(JSON.parse(statusJson(odd)).volumes[0].mounts, odd.volumes[0]!.mounts);
});

Deno.test("a status as text says which groups the host itself uses", async () => {
  const healthy = healthyMachine();
  healthy.machine.host.swapLvs.add(healthy.lv);
  healthy.lv.tags.clear();
  assertMatch(
    statusText(await statusOf(healthy)),
    /\n {6}only for classes that name it, since this host uses\s+vol-\w+\s+\(swap\)\n/,
  );
});
