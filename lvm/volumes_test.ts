import { assertEquals } from "@std/assert";
import { FakeMachine, refuse } from "../tests/fake/machine.ts";
import type { Command } from "./exec.ts";
import { Lvm } from "./lvm.ts";
import { volumeIdOf } from "./ids.ts";
import { Upkeep } from "./upkeep.ts";
import { Volumes } from "./volumes.ts";

Deno.test("create() takes the next group when one was filled since the report", async () => {
  const machine = new FakeMachine();
  machine.addGroup("small", 1n << 30n);
  machine.addGroup("large", 2n << 30n);
  const tried: string[] = [];
  machine.fault = ({ args }: Command) => {
    const group = args.at(-1)!;
    if (args[0] !== "lvcreate" || tried.push(group) > 1) return undefined;
    return refuse(5, `  Volume group "${group}" has insufficient free space (0 extents): 8 required.`);
  };
  const lvm = new Lvm(machine);
  const volumes = new Volumes({
    lvm,
    driver: "test",
    groups: { matches: () => true },
    upkeep: new Upkeep({ lvm, driver: "test", onError: () => {} }),
  });
  const size = await volumes.create({
    id: volumeIdOf("one"),
    range: { required: 32n << 20n },
    groups: { matches: () => true },
    preference: "leastFree",
    content: { state: "raw" },
    mkfsOptions: [],
    shared: true,
    erase: "zero",
  });
  assertEquals([size, tried], [32n << 20n, ["small", "large"]]);
  assertEquals(machine.allLvs().map(({ group }) => group.name), ["large"]);
});
