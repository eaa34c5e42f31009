import { assertEquals } from "@std/assert";
import { activationArguments } from "./activation.ts";
import { Lvm } from "../client/client.ts";
import { parseReport } from "../model/report_parser.ts";
import { REPORT_COMMAND } from "../model/report_command.ts";
import { poolTags } from "../model/tags.ts";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";

Deno.test("activationArguments(): RAID is activated without a physical volume, and our pools without dmeventd", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n, 4n << 20n, 2);
  const lvcreate = (...args: string[]) =>
    machine.run({ program: "lvm", args: ["lvcreate", "--yes", ...args], mutates: true });
  const size = ["--size", `${64 << 20}b`];
  await lvcreate(...size, "--name", "linear", "data");
  await lvcreate(...size, "--name", "raid", "--type", "raid1", "--mirrors", "1", "data");
  await lvcreate(...size, "--name", "cut", "--snapshot", "data/raid");
  for (const [name, tags] of [["ours", poolTags("test")], ["theirs", []]] as const) {
    const addTags = tags.flatMap((tag) => ["--addtag", tag]);
    await lvcreate(...size, "--name", name, "--type", "thin-pool", "--zero", "y", ...addTags, "data");
    await lvcreate("--type", "thin", "--thinpool", name, "--virtualsize", "4194304b", "--name", `in-${name}`, "data");
  }
  const [group] = parseReport((await machine.run(REPORT_COMMAND)).stdout);
  const actual = Object.fromEntries(
    group!.lvs.map((lv) => {
      const args = activationArguments("test", group!, lv);
      const first = ["lvchange", "--activate", "y", "--ignoreactivationskip"];
      assertEquals([...args.slice(0, 4), args.at(-1)], [...first, `data/${lv.name}`]);
      return [lv.name, args.slice(4, -1).join(" ")];
    }),
  );
  const [degraded, unmonitored] = ["--activationmode degraded", "--config activation/monitoring=0"];
  assertEquals(actual, {
    ...{ linear: "", raid: degraded, cut: `--yes ${degraded}` },
    ...{ ours: "", "in-ours": unmonitored, theirs: "", "in-theirs": "" },
  });
});

Deno.test("activationArguments() answers LVM's question whether to activate a snapshot with its origin", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const lvm = async (...args: string[]) => {
    const { code, stderr } = await machine.run({ program: "lvm", args, mutates: true });
    assertEquals(code, 0, stderr);
  };
  await lvm("lvcreate", "--name", "origin", "--size", "16777216b", "data");
  await lvm("lvcreate", "--snapshot", "--name", "cow", "--size", "8388608b", "data/origin");
  await lvm("lvchange", "--activate", "n", "data/origin");
  const [group] = await new Lvm(machine).report();
  const snapshot = group!.lvs.find(({ name }) => name === "cow")!;
  assertEquals(snapshot.active, false);
  await lvm(...activationArguments("test", group!, snapshot));
});
