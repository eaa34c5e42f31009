import { assertEquals, assertRejects } from "@std/assert";
import { FakeClock } from "../../tests/fake/clock.ts";
import { nextTurn } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import type { VolumeGroup } from "../model/report.ts";
import { currentRequestId, withRequestId } from "../../base/request_id.ts";
import { type RemovalRunner, Removals } from "./removals.ts";

const GROUP = { name: "data", uuid: "g" } as VolumeGroup;

/** Creates removals whose commands take some time each, and what they ran. */
function harness(run: (lvs: readonly string[]) => readonly boolean[] | StorageError = (lvs) => lvs.map(() => true)) {
  const clock = new FakeClock();
  const commands: string[] = [];
  let ms = 100;
  const answer = async (lvs: readonly string[]) => {
    commands.push(lvs.join(" "));
    await nextTurn();
    clock.stall(ms);
    const result = run(lvs);
    if (result instanceof StorageError) throw result;
    return result;
  };
  const namesOf = (args: readonly string[]) => args.filter((arg) => arg.startsWith("data/"));
  const runner: RemovalRunner = {
    removeOne: async (_group, args) => (await answer(namesOf(args)))[0]!,
    removeTogether: async (_group, args, parts) => {
      assertEquals(namesOf(args), parts.flatMap(namesOf));
      return await answer(namesOf(args));
    },
  };
  const removals = new Removals(runner, clock);
  const remove = (...names: string[]) =>
    Promise.allSettled(names.map((name) => removals.remove(GROUP, { yes: true, uuid: name }, `data/${name}`)))
      .then((results) => results.map((result) => result.status === "fulfilled" ? result.value : result.reason.kind));
  return { commands, removals, remove, setMs: (value: number) => ms = value };
}

Deno.test("a removal runs at once, and those that come meanwhile run together after it", async () => {
  const { commands, remove } = harness();
  assertEquals(await remove("a", "b", "c", "d"), [true, true, true, true]);
  assertEquals(commands.splice(0), ["data/a", "data/b data/c data/d"]);
  assertEquals(await remove("e"), [true]);
  assertEquals(commands, ["data/e"]);
});

Deno.test("a command removes at most 16 LVs, and no more than it removes in two seconds", async () => {
  const { commands, remove, setMs } = harness();
  const names = Array.from({ length: 30 }, (_, index) => `v${index}`);
  const sizes = () => commands.splice(0).map((command) => command.split(" ").length);
  await remove(...names);
  assertEquals(sizes(), [1, 16, 13]);
  setMs(700); // a removal takes 0.7 s, and so do those that run together
  await remove(...names);
  assertEquals(sizes(), [1, 2, 5, 14, 8]);
  setMs(5_000);
  await remove("a", "b", "c");
  assertEquals(sizes(), [1, 1, 1]);
});

Deno.test("a command runs with the ids of the requests that it removes LVs for", async () => {
  const ids: (string | undefined)[] = [];
  const { remove } = harness((lvs) => {
    ids.push(currentRequestId());
    return lvs.map((lv) => lv !== "data/c" || lvs.length === 1);
  });
  await Promise.all([
    ...["first", "second", "third"].map((id, index) => withRequestId(id, () => remove("abc"[index]!))),
    remove("d"),
  ]);
  assertEquals(ids, ["first", "second,third", "third"]);
});

Deno.test("a group does not wait for another one", async () => {
  const { commands, removals } = harness();
  const other = { ...GROUP, uuid: "h" };
  await Promise.all([
    removals.remove(GROUP, { yes: true, uuid: "a" }, "data/a"),
    removals.remove(other, { yes: true, uuid: "b" }, "data/b"),
  ]);
  assertEquals(commands, ["data/a", "data/b"]);
});

Deno.test("what a common command does not remove is left to a command of its own, which decides", async () => {
  const { commands, remove } = harness((lvs) => lvs.map((lv) => lv !== "data/c"));
  assertEquals(await remove("a", "b", "c", "d"), [true, true, false, true]);
  assertEquals(commands, ["data/a", "data/b data/c data/d", "data/c"]);
});

Deno.test("when a common command fails, each LV gets a command, and its own answer", async () => {
  const { commands, remove } = harness((lvs) =>
    lvs.length > 1 || lvs[0] === "data/c" ? new StorageError("InUse", "in use") : [lvs[0] !== "data/b"]
  );
  assertEquals(await remove("a", "b", "c", "d"), [true, false, "InUse", true]);
  assertEquals(commands, ["data/a", "data/b data/c data/d", "data/b", "data/c", "data/d"]);
});

Deno.test("behind a command that does not end, nothing more is removed from the group", async () => {
  const hang = () => new StorageError("StillRunning", "hangs", { completion: new Promise(() => {}) });
  for (const hanging of ["data/a", "data/b data/c", "data/b"]) {
    const { commands, remove } = harness((lvs) => {
      if (lvs.join(" ") === hanging) return hang();
      return lvs.length > 1 ? new StorageError("InUse", "in use") : [true];
    });
    const expected = {
      "data/a": ["StillRunning", "Unavailable", "Unavailable"],
      "data/b data/c": [true, "StillRunning", "StillRunning"],
      "data/b": [true, "StillRunning", "Unavailable"],
    }[hanging];
    assertEquals(await remove("a", "b", "c"), expected);
    assertEquals(commands.at(-1), hanging);
    commands.length = 0;
    assertEquals((await remove("d"))[0], true, "the next caller tries again");
  }
});

Deno.test("what comes while a common command hangs is not removed behind it", async () => {
  const { commands, removals, remove } = harness((lvs) => {
    if (lvs.length === 1) return [true];
    late.push(removals.remove(GROUP, { yes: true, uuid: "d" }, "data/d").catch(({ kind }) => kind));
    return new StorageError("StillRunning", "hangs", { completion: new Promise(() => {}) });
  });
  const late: Promise<unknown>[] = [];
  assertEquals(await remove("a", "b", "c"), [true, "StillRunning", "StillRunning"]);
  assertEquals([await Promise.all(late), commands], [["Unavailable"], ["data/a", "data/b data/c"]]);
});

Deno.test("a caller learns for which LV it waited in vain", async () => {
  const { removals } = harness(() => new StorageError("StillRunning", "hangs", { completion: new Promise(() => {}) }));
  const first = removals.remove(GROUP, { yes: true, uuid: "a" }, "data/a").catch(() => {});
  const text = "removing data/b: the removal of another LV of its volume group does not end";
  await assertRejects(() => removals.remove(GROUP, { yes: true, uuid: "b" }, "data/b"), StorageError, text);
  await first;
});
