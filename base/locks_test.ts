import { assertEquals, assertRejects } from "@std/assert";
import { StorageError } from "./error.ts";
import { type LockMode, Locks } from "./locks.ts";

function holdLock(locks: Locks, ...requests: [string, LockMode][]): { release: () => void; done: Promise<void> } {
  const { promise, resolve } = Promise.withResolvers<void>();
  const done = locks.run("first", requests.map(([key, mode]) => ({ key, mode })), () => promise);
  return { release: resolve, done };
}

async function tryLock(locks: Locks, key: string, mode: LockMode): Promise<string> {
  try {
    await locks.run("second", [{ key, mode }], () => Promise.resolve());
    return "ok";
  } catch (error) {
    return error instanceof StorageError ? error.kind : String(error);
  }
}

Deno.test("Locks: exclusive excludes all, shared excludes exclusive, at once", async () => {
  const locks = new Locks();
  const table: [LockMode, LockMode, string][] = [
    ["exclusive", "exclusive", "Busy"],
    ["exclusive", "shared", "Busy"],
    ["shared", "exclusive", "Busy"],
    ["shared", "shared", "ok"],
  ];
  for (const [first, second, expected] of table) {
    const holder = holdLock(locks, ["a", first]);
    assertEquals([await tryLock(locks, "a", second), await tryLock(locks, "b", second)], [expected, "ok"]);
    holder.release();
    await holder.done;
    assertEquals(await tryLock(locks, "a", second), "ok");
  }
});

Deno.test("Locks: a key that one caller takes in both modes, as for a clone of itself, is exclusive until the end", async () => {
  for (const modes of [["exclusive", "shared"], ["shared", "exclusive"]] as const) {
    const locks = new Locks();
    const holder = holdLock(locks, ...modes.map((mode): [string, LockMode] => ["a", mode]));
    assertEquals(await tryLock(locks, "a", "shared"), "Busy");
    holder.release();
    await holder.done;
    assertEquals(await tryLock(locks, "a", "exclusive"), "ok");
  }
});

Deno.test("Locks: all keys are taken, or none", async () => {
  const locks = new Locks();
  const holder = holdLock(locks, ["b", "exclusive"]);
  await assertRejects(() =>
    locks.run("both", [{ key: "a", mode: "exclusive" }, { key: "b", mode: "shared" }], () => Promise.resolve())
  );
  assertEquals(await tryLock(locks, "a", "exclusive"), "ok");
  holder.release();
  await holder.done;
});

Deno.test("Locks: released when the body fails, but kept while its command is still running", async () => {
  const locks = new Locks();
  const key = { key: "a", mode: "exclusive" } as const;
  await assertRejects(() => locks.run("fails", [key], () => Promise.reject(new Error("no"))), Error, "no");
  assertEquals(await tryLock(locks, "a", "exclusive"), "ok");

  const command = Promise.withResolvers<void>();
  const still = new StorageError("StillRunning", "still running", { completion: command.promise });
  await assertRejects(() => locks.run("hangs", [key], () => Promise.reject(still)), StorageError);
  assertEquals(await tryLock(locks, "a", "exclusive"), "Busy");
  command.resolve();
  await new Promise((resolve) => setTimeout(resolve));
  assertEquals(await tryLock(locks, "a", "exclusive"), "ok");
});

Deno.test("Locks: a body releases some of its locks before it ends, once", async () => {
  const locks = new Locks();
  const [own, source] = [{ key: "own", mode: "exclusive" }, { key: "source", mode: "shared" }] as const;
  const end = Promise.withResolvers<void>();
  const done = locks.run("copy", [own, source], async (release) => {
    release([source]);
    release([source]);
    await end.promise;
  });
  assertEquals([await tryLock(locks, "source", "exclusive"), await tryLock(locks, "own", "shared")], ["ok", "Busy"]);
  const holder = holdLock(locks, ["source", "exclusive"]);
  end.resolve();
  await done;
  assertEquals(await tryLock(locks, "source", "shared"), "Busy");
  holder.release();
  await holder.done;
});

Deno.test("Locks: who needs what is being made waits for its end, and fails when a command of it outlasts its deadline", async () => {
  const locks = new Locks();
  const key = { key: "a", mode: "exclusive" } as const;
  const order: string[] = [];
  const made = Promise.withResolvers<void>();
  const making = locks.runYielding("formatting", [key], () => made.promise);
  const users = ["first", "second"].map((name) =>
    locks.run(name, [key], () => Promise.resolve(void order.push(name))).catch(() => void order.push(`${name} Busy`))
  );
  await new Promise((resolve) => setTimeout(resolve));
  assertEquals(order, []);
  made.resolve();
  await Promise.all([making, ...users]);
  assertEquals(order.length, 2);

  for (let turns = 0; turns < 12; turns++) {
    const running = locks.runYielding("formatting", [key], () => Promise.resolve());
    for (let turn = 0; turn < turns; turn++) await Promise.resolve();
    assertEquals(await tryLock(locks, "a", "exclusive"), "ok", `${turns}`);
    await running;
  }

  const command = Promise.withResolvers<void>();
  const still = new StorageError("StillRunning", "still running", { completion: command.promise });
  const end = Promise.withResolvers<void>();
  const hanging = locks.runYielding("formatting", [key], () => end.promise);
  const user = locks.run("stage", [key], () => Promise.resolve());
  end.reject(still);
  await assertRejects(() => hanging, StorageError, "still running");
  await assertRejects(() => user, StorageError, "formatting of it is running");
  command.resolve();
  await new Promise((resolve) => setTimeout(resolve));
  assertEquals(await tryLock(locks, "a", "exclusive"), "ok");
});
