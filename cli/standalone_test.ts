import { assertEquals } from "@std/assert";
import { connect } from "../tests/contract/helpers/csi_client.ts";
import { FakeMachine } from "../tests/fake/machine/machine.ts";
import { collectPrinted, flagsOf, RunningSubcommand, SubcommandFolder } from "../tests/fake/subcommand.ts";
import { standalone } from "./standalone.ts";

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
