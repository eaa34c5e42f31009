import { assertEquals } from "@std/assert";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { volumeIdOf, volumeLvName } from "../../base/ids.ts";
import { createFinders } from "../inventory/inventory.ts";
import { Lvm } from "../client/client.ts";
import { volumeTags } from "../model/tags.ts";
import { CopySources } from "./sources.ts";

const DRIVER = "test";

/** Creates a report of a group for each of the copies, and the copies that are read from it. */
async function harness(...names: string[]) {
  const machine = new FakeMachine();
  const source = { kind: "volume", id: volumeIdOf("original") } as const;
  for (const [index, name] of names.entries()) {
    machine.addGroup(`data${index}`, 1n << 30n);
    const id = volumeIdOf(name);
    const format = { state: "raw" } as const;
    const tags = volumeTags(DRIVER, { id, format, mkfsOptions: [], shared: true, erase: "zero", source });
    const args = ["--size", `${32 << 20}b`, "--name", volumeLvName(id), ...tags.flatMap((tag) => ["--addtag", tag])];
    await machine.run({ program: "lvm", args: ["lvcreate", "--yes", ...args, `data${index}`], mutates: true });
  }
  const { volumes, snapshots } = createFinders(DRIVER);
  const sources = new CopySources({ driver: DRIVER, volumeFinder: volumes, snapshotFinder: snapshots });
  const groups = await new Lvm(machine).report();
  const read = (isResponsive: (index: number) => boolean = () => true) => {
    const errors: unknown[] = [];
    const seen = groups.map((group, index) => ({ ...group, responsive: isResponsive(index) }));
    const copies = sources.copies(seen, () => ({}), (error) => errors.push(error));
    return [copies.map(({ id }) => id), errors.map((error) => (error as { kind: string }).kind)];
  };
  return { read };
}

Deno.test("CopySources.copies() reports a copy that two LVs claim to be, and returns the others", async () => {
  const { read } = await harness("twice", "twice", "other");
  assertEquals(read(), [[volumeIdOf("other")], ["ForeignData", "ForeignData"]]);
});

Deno.test("CopySources.copies() leaves out a copy in an unresponsive group without an error", async () => {
  const { read } = await harness("hung", "other");
  assertEquals(read(() => false), [[], []]);
  assertEquals(read((index) => index === 1), [[], []], "the source may be in that group");
});
