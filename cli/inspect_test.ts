import { assertEquals, assertMatch } from "@std/assert";
import { lvmNodes, lvmSnapshots, lvmVolumes } from "../k8s/api/lvm_objects.ts";
import { lvmVolumeFor } from "../k8s/api/volume_mapping.ts";
import { volumeIdOf } from "../base/ids.ts";
import { FakeApiServer } from "../tests/fake/cluster/api_server.ts";
import { healthyMachine } from "../tests/fake/machine/healthy_machine.ts";
import type { FakeMachine } from "../tests/fake/machine/machine.ts";
import { namedRequest } from "../tests/fake/request.ts";
import { collectPrinted, flagsOf, SubcommandFolder } from "../tests/fake/subcommand.ts";
import { doctor, status } from "./inspect.ts";

/** Runs `denolith status` or `denolith doctor` on a machine. @returns what it prints, and its exit status */
async function run(machine: FakeMachine, subcommand: "status" | "doctor", ...args: string[]) {
  await using printed = collectPrinted();
  const exitStatus = await { status, doctor }[subcommand](flagsOf(subcommand, ...args), machine);
  return { exitStatus, output: printed.output.join("\n") };
}

async function json(machine: FakeMachine, subcommand: "status" | "doctor", ...args: string[]) {
  return JSON.parse((await run(machine, subcommand, ...args, "--json")).output);
}

Deno.test("denolith status: prints text, or JSON with --json, of the groups of the driver or of those that are named", async () => {
  const { machine } = healthyMachine();
  machine.addGroup("other", 1n << 30n);
  const text = await run(machine, "status");
  assertEquals(text.exitStatus, 0);
  assertMatch(text.output, /^Volume groups\n/);
  const groupsOf = async (...args: string[]) =>
    (await json(machine, "status", ...args)).groups.map(({ name }: { name: string }) => name);
  assertEquals(await groupsOf(), ["data"]);
  assertEquals(await groupsOf("--volume-groups", "other"), ["other"]);
});

Deno.test("denolith status: with --node-name, compares the volumes with the objects of the node", async () => {
  await using api = FakeApiServer.start({ resources: [lvmVolumes, lvmSnapshots, lvmNodes] });
  await using folder = await SubcommandFolder.create(api.url);
  const { machine, id, snapshotId } = healthyMachine();
  const driver = "lvm.denolith.dev";
  const request = namedRequest("one", 64n << 20n);
  api.put(lvmVolumes, lvmVolumeFor(request, { driver, nodeName: "n1" }));
  api.put(lvmVolumes, lvmVolumeFor({ ...request, id: volumeIdOf("two") }, { driver, nodeName: "n2" }));
  const flags = ["--node-name", "n1", "--kubeconfig", folder.kubeconfig];
  const { volumes, orphans } = await json(machine, "status", ...flags);
  assertEquals(volumes.map((volume: { id: string }) => volume.id), [id]);
  assertEquals(orphans.map((orphan: { taggedAs: { id: string } }) => orphan.taggedAs.id), [snapshotId]);
  assertEquals((await json(machine, "status")).orphans, []);
});

Deno.test("denolith doctor: ends with status 0 on a healthy machine, and with status 1 when it finds an error", async () => {
  const { machine } = healthyMachine();
  const healthy = await run(machine, "doctor");
  assertEquals(healthy.exitStatus, 0, healthy.output);
  assertMatch(healthy.output, /^. tools /m);
  machine.host.missing.add("lvm");
  const broken = await run(machine, "doctor", "--json");
  assertEquals([broken.exitStatus, JSON.parse(broken.output).level], [1, "error"]);
});

Deno.test("denolith doctor: reports a socket that a crashed driver left", async () => {
  await using folder = await SubcommandFolder.create("http://127.0.0.1:1");
  const { machine } = healthyMachine();
  const path = `${folder.path}/csi.sock`;
  const subjects = async () =>
    (await json(machine, "doctor", "--endpoint", `unix://${path}`)).findings.map(({ subject }: { subject: string }) =>
      subject
    );
  assertEquals((await subjects()).includes(path), false);
  {
    using _listener = Deno.listen({ transport: "unix", path: `${path}.new` });
    await Deno.rename(`${path}.new`, path);
  }
  assertEquals((await subjects()).includes(path), true);
});
