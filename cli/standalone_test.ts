import { assertEquals, assertRejects } from "@std/assert";
import { connect } from "../tests/contract/csi_client.ts";
import { FakeMachine } from "../tests/fake/machine.ts";
import { collectPrinted, flagsOf, RunningSubcommand, SubcommandFolder } from "../tests/fake/subcommand.ts";
import { UsageError } from "./command_line.ts";
import { standalone } from "./standalone.ts";

/** Runs `denolith standalone` without --volume-groups on a machine. @returns the error */
async function refusalOn(machine: FakeMachine): Promise<string> {
  await using _printed = collectPrinted();
  const end = new AbortController();
  return (await assertRejects(() => standalone(flagsOf("standalone"), end.signal, () => machine), UsageError)).message;
}

Deno.test("denolith standalone: without --volume-groups, it names the volume groups of the host", async () => {
  const machine = new FakeMachine();
  assertEquals(
    await refusalOn(machine),
    "--volume-groups is required; this host has none yet: create one with vgcreate",
  );
  machine.addGroup("data", 1n << 30n);
  machine.addGroup("fast", 2n << 30n);
  assertEquals(
    await refusalOn(machine),
    "--volume-groups is required; this host has data (1 GiB free), fast (2 GiB free)",
  );
  machine.host.missing.add("lvm");
  assertEquals(
    await refusalOn(machine),
    "--volume-groups is required; the volume groups of this host cannot be listed: lvm: not found",
  );
});

Deno.test("denolith standalone: serves the volume groups that it is given until it is asked to end", async () => {
  await using folder = await SubcommandFolder.create("http://127.0.0.1:1");
  await using printed = collectPrinted();
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  machine.addGroup("other", 1n << 40n);
  const socket = `${folder.path}/socket/csi.sock`;
  const own = ["--endpoint", `unix://${socket}`, "--mount-roots", folder.path, "--node-id", "here"];
  const flags = flagsOf("standalone", "--volume-groups", "data", ...own);
  const isServing = () => printed.log.some((line) => line.includes("info standalone serving "));
  await using running = await RunningSubcommand.start((end) => standalone(flags, end, () => machine), isServing);
  {
    using csi = connect(socket);
    assertEquals((await csi.node.nodeGetInfo()).nodeId, "here");
    assertEquals((await csi.controller.getCapacity()).availableCapacity, 1n << 30n);
  }
  assertEquals(await running.stop(), 0);
  assertEquals([...Deno.readDirSync(`${folder.path}/socket`)], []);
});
