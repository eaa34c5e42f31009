import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { passphraseHarness, REENCRYPTION, type Secret } from "../../tests/fake/machine/passphrase_harness.ts";
import { headersOf } from "../../tests/fake/machine/luks.ts";
import { StorageError } from "../../base/error.ts";

Deno.test("a header whose data has another volume key since is not replaced by its backup, and opens by its own passphrase", async () => {
  const s = await passphraseHarness("OLD");
  await s.interrupt("NEW");
  for (const args of REENCRYPTION) await s.cryptsetup("NEW", ...args);
  assertEquals([s.keys(), s.luks().volumeKey], [["NEW"], 1]);
  const refusal = await assertRejects(() => s.use("OLD"), StorageError, "nothing was changed");
  assertMatch(
    refusal.message,
    /opens data\/hdr-\w+.* its data was encrypted by another volume key since.* Give the secret/,
  );
  assertEquals([refusal.kind, s.keys(), s.luks().volumeKey], ["FailedPrecondition", ["NEW"], 1]);
  await s.use("NEW");
  assertEquals([s.keys(), s.luks().volumeKey, s.backups()], [["NEW"], 1, []]);
});

Deno.test("a header is not replaced by its backup while the data of a volume in use is being encrypted again", async () => {
  const s = await passphraseHarness("OLD");
  await s.stage("OLD");
  await s.interrupt("NEW");
  s.luks().isReencrypting = true;
  s.luks().passphrases = [undefined, "NEW"];
  await s.publish("OTHER", "OLD");
  assertMatch(`${s.errors}`, /its data is being encrypted by another volume key since/);
  assertEquals([s.luks().isReencrypting, s.keys(), s.errors.length], [true, ["NEW"], 1]);
});

Deno.test("a header is not replaced by its backup when nothing tells what it is", async () => {
  const s = await passphraseHarness("OLD");
  await s.interrupt("NEW");
  s.luks().passphrases = ["OTHER"];
  s.machine.fault = ({ args }) =>
    args[0] === "luksDump" ? { code: 1, stdout: "", stderr: "Cannot lock memory." } : undefined;
  await assertRejects(() => s.use("OLD"), StorageError, "Cannot lock memory");
  s.machine.fault = undefined;
  assertEquals(s.keys(), ["OTHER"]);
});

Deno.test("an interrupted change is completed also where its backup is damaged, or cannot be read for a moment", async () => {
  for (const isDamaged of [false, true]) {
    const s = await passphraseHarness("OLD");
    await s.interrupt("NEW");
    if (isDamaged) s.backups()[0]!.content.signatures = [];
    let failures = isDamaged ? 0 : 1;
    s.machine.fault = ({ args }) => {
      if (args[0] !== "luksDump" || failures-- <= 0) return;
      throw new StorageError("Unavailable", "cryptsetup luksDump: no answer in 30 s");
    };
    if (!isDamaged) await assertRejects(() => s.use("OLD"), StorageError, "no answer");
    await s.use("OLD");
    assertEquals([s.keys(), s.backups()], [["OLD"], []]);
  }
});

Deno.test("a backup names all key slots that the previous passphrase opens, so that the new one completes the change alone", async () => {
  const s = await passphraseHarness("OLD");
  s.luks().passphrases.push("OTHER", "OLD");
  let isDead = false;
  s.machine.fault = ({ args }) => {
    isDead ||= args[0] === "luksKillSlot";
    if (isDead) throw new Error("the node died");
  };
  await assertRejects(() => s.use("NEW", "OLD"), Error, "died");
  s.machine.fault = undefined;
  assertEquals(s.keys(), ["OLD", "OTHER", "OLD", "NEW"]);
  const [backup] = s.backups();
  assertMatch([...backup!.tags].join(), /denolith\.header=v1-\w+:0\.2:0=\w{8}\.1=\w{8}\.2=\w{8}:\w{8}:3=\w{8}(?:,|$)/);
  s.restart();
  await s.use("NEW");
  assertEquals([s.keys(), s.backups()], [["OTHER", "NEW"], []]);
});

Deno.test("a previous passphrase that is taken back keeps all key slots that it had", async () => {
  const s = await passphraseHarness("OLD");
  s.luks().passphrases.push("OTHER", "OLD");
  await s.interrupt("NEW", [0, 2]);
  await s.use("OLD");
  assertEquals([s.keys(), s.backups()], [["OLD", "OTHER", "OLD"], []]);
});

/** The key slots, each with its passphrase, that an administrator leaves after a change from OLD to NEW was interrupted. */
const REPLACED: (string | undefined)[][] = [
  ["ADMIN"],
  ["ADMIN", "B", "NEW"],
  [undefined, "B", "ADMIN"], // in the slot of the new one
  [undefined, undefined, undefined, "ADMIN"],
  [undefined, "B"],
  [undefined, undefined],
  [undefined, "X", "NEW"],
  [undefined, "B", "NEW", "ADMIN"],
];

Deno.test("a header whose key slots were destroyed or replaced by hand is not replaced by its backup", async () => {
  for (const left of REPLACED) {
    const s = await passphraseHarness("OLD");
    s.luks().passphrases.push("B");
    await s.interrupt("NEW");
    s.luks().passphrases = left;
    const refusal = await assertRejects(() => s.use("OLD"), StorageError, "was destroyed or replaced since");
    assertEquals([refusal.kind, s.luks().passphrases], ["FailedPrecondition", left]);
    const [key] = s.keys();
    if (key === undefined) continue;
    await s.use(key, "NEW");
    assertEquals([s.keys().includes("OLD"), s.keys().includes("NEW"), s.backups()], [false, false, []]);
  }
});

Deno.test("a header whose key slots were replaced by hand before the new one was added is not replaced by its backup", async () => {
  const s = await passphraseHarness("OLD");
  s.machine.fault = ({ args }) => {
    if (args[0] === "luksAddKey") throw new Error("the node died");
  };
  await assertRejects(() => s.use("NEW", "OLD"), Error, "died");
  s.machine.fault = undefined;
  s.luks().passphrases = [undefined, "ADMIN"];
  await assertRejects(() => s.use("NEW", "OLD"), StorageError, "was destroyed or replaced since");
  assertEquals(s.keys(), ["ADMIN"]);
});

Deno.test("a previous passphrase is taken back also after its key slot was destroyed", async () => {
  const s = await passphraseHarness("OLD");
  s.luks().passphrases.push("B");
  await s.interrupt("NEW");
  s.luks().passphrases = [undefined, "B", "NEW"];
  await s.use("OLD");
  assertEquals([s.keys(), s.backups()], [["OLD", "B"], []]);
});

Deno.test("a header is not replaced by its backup where the disk fails, and so nobody finds one", async () => {
  for (const failures of ["wipefs", "wipefs dd"]) {
    const s = await passphraseHarness("OLD");
    await s.interrupt("NEW");
    s.luks().passphrases = ["ADMIN"];
    let [isFailing, calls] = [true, 0];
    s.machine.fault = ({ program, args }) => {
      if (program !== "wipefs" && !args.includes("of=/dev/null")) return;
      isFailing &&= failures.split(" ").includes(program) && calls++ < 2;
      s.lv.content.unreadable = isFailing;
      return undefined;
    };
    const error = await assertRejects(() => s.use("NEW", "OLD"), StorageError);
    assertMatch(error.message, failures === "wipefs" ? /it failed for a moment/ : /Input\/output error/);
    assertEquals(s.keys(), ["ADMIN"]);
  }
});

Deno.test("a header that is there is not replaced by its backup where cryptsetup fails, which prints that there is none", async () => {
  for (const secret of [["NEW", "OLD"], ["OLD"]] as Secret[]) {
    const s = await passphraseHarness("OLD");
    await s.interrupt("NEW");
    Object.assign(s.luks(), { volumeKey: 1, passphrases: [undefined, "ADMIN"] });
    s.machine.fault = ({ args }) =>
      args[0] === "luksDump"
        ? { code: 1, stdout: "", stderr: `Device ${args[1]} is not a valid LUKS device.` }
        : undefined;
    const refusal = await assertRejects(() => s.use(...secret), StorageError, "nothing was changed");
    assertMatch(refusal.message, /write it back: dd if=\S+hdr-\S+ of=\S+vol-.*is not a valid LUKS device/);
    assertEquals([s.keys(), s.luks().volumeKey], [["ADMIN"], 1]);
  }
});

Deno.test("a former passphrase is taken back after two crashes: one before the new key slot was recorded, one before the end", async () => {
  for (const [second, third] of [[["NEW", "OLD"], ["OLD"]], [["NEW"], ["THIRD", "OLD"]]] as [Secret, Secret][]) {
    const s = await passphraseHarness("OLD");
    const dieAt = async (secret: Secret, ...words: string[]) => {
      s.machine.fault = ({ program, args }) => {
        if (words.every((word) => program === word || args.includes(word))) throw new Error("the node died");
      };
      await assertRejects(() => s.use(...secret), Error, "the node died");
      s.machine.fault = undefined;
      s.restart();
    };
    await dieAt(["NEW", "OLD"], "lvchange", "--deltag");
    assertEquals(s.keys(), ["OLD", "NEW"]);
    await dieAt(second, "blkdiscard");
    assertEquals(s.keys(), ["NEW"]);
    await s.use(...third);
    assertEquals([s.keys(), s.backups()], [[third[0]], []]);
  }
});

Deno.test("another header than the recorded one is neither changed nor used to complete a change, and the backup stays", async () => {
  const secrets: Secret[] = [["NEW", "OLD"], ["NEW"], ["OLD"]];
  for (const secret of secrets) {
    const s = await passphraseHarness("OLD");
    await s.interrupt("NEW");
    const uuid = "11111111-2222-4333-8444-555555555555";
    Object.assign(s.luks(), { uuid, passphrases: ["OLD", "NEW", "ADMIN"] });
    s.lv.content.signatures = headersOf(uuid);
    await assertRejects(() => s.use(...secret), StorageError, "it should hold a LUKS header with the UUID");
    assertEquals([s.keys(), s.backups().length], [["OLD", "NEW", "ADMIN"], 1]);
    assertEquals(s.backups()[0]!.content.luks?.passphrases, ["OLD"]);
  }
});

Deno.test("a damaged backup does not keep a volume from being opened by its own header", async () => {
  const s = await passphraseHarness("OLD");
  await s.interrupt("NEW");
  s.backups()[0]!.active = false;
  let isActivated = false;
  s.machine.fault = ({ args }) => {
    if (args[0] === "lvchange" && args.includes("--activate")) isActivated = true;
    if (args.includes("--test-passphrase") && isActivated) throw new Error("activated before it is needed");
    return undefined;
  };
  await s.use("NEW");
  assertEquals([s.keys(), s.backups()], [["NEW"], []]);
});

Deno.test("a header with a damaged key slot is replaced by its backup, if it has all key slots of it", async () => {
  const s = await passphraseHarness("OLD");
  await s.interrupt("NEW");
  const { lv: { devicePath } } = await s.find();
  let isDamaged = true; // the key slot is overwritten and still listed
  s.machine.fault = ({ program, args }) => {
    if (program === "dd" && args.includes(`of=${devicePath}`)) isDamaged = false;
    if (!isDamaged || !args.includes("--test-passphrase") || args.at(-1) !== devicePath) return;
    return { code: 2, stdout: "", stderr: "No key available with this passphrase." };
  };
  await s.use("OLD");
  assertEquals([isDamaged, s.keys(), s.backups()], [false, ["OLD"], []]);
});

Deno.test("no key slot is destroyed by its number where the data was encrypted by another volume key since", async () => {
  const slots: (string | undefined)[][] = [
    [undefined, undefined, "OLD", "RECOVERY", "NEW"],
    ["RECOVERY", "NEW", "OLD"],
    ["NEW", "OLD", "RECOVERY"],
  ];
  for (const left of slots) {
    for (const previous of [undefined, "OLD"]) {
      const s = await passphraseHarness("OLD");
      s.luks().passphrases.push("RECOVERY");
      await s.interrupt("NEW");
      s.luks().volumeKey++;
      s.luks().passphrases = [...left];
      await s.use("NEW", previous);
      const isLeft = (key?: string) => key !== undefined && key !== previous;
      const outcome = previous === undefined ? "Complete" : "PassphraseReplaced";
      assertEquals([s.keys(), s.backups(), await s.state()], [left.filter(isLeft), [], outcome]);
    }
  }
});

Deno.test("a key slot that was replaced by hand after a change was interrupted is destroyed, as each that was added since", async () => {
  const cases = [[["NEW", "OLD"], "NEW"], [["OLD", "NEW"], "OLD"], [["ADMIN", "B", "NEW"], "NEW"]] as const;
  for (const [left, passphrase] of cases) {
    const s = await passphraseHarness("OLD");
    s.luks().passphrases.push("B");
    await s.interrupt("NEW");
    s.luks().passphrases = [...left];
    await s.use(passphrase);
    const kept = left.filter((key) => key === passphrase || key === "B");
    assertEquals([s.keys(), await s.state()], [kept, "PassphraseReplaced"]);
  }
});

Deno.test("a previous passphrase opens nothing afterwards, also where its key slot has the priority ignore", async () => {
  const s = await passphraseHarness("OLD");
  s.luks().passphrases.push("NEW", "OLD");
  s.luks().ignored = [2];
  await s.use("NEW", "OLD");
  assertEquals([s.keys(), await s.state()], [["NEW"], "PassphraseReplaced"]);
});

Deno.test("a change in use waits while the data is being encrypted by another volume key, and is made afterwards", async () => {
  const secrets: Secret[] = [["NEW", "OLD"], ["OLD", "NEW"]];
  for (const secret of secrets) {
    for (const isInterrupted of [true, false]) {
      const s = await passphraseHarness("OLD");
      await s.stage("OLD");
      if (isInterrupted) await s.interrupt("NEW");
      else s.luks().passphrases.push("NEW");
      s.luks().isReencrypting = true;
      await s.publish(...secret);
      assertMatch(
        `${s.errors}`,
        /another volume key.*wait for its end, or stop its pods and start one with both passphrases/,
      );
      delete s.luks().isReencrypting;
      await s.publish(...secret);
      assertEquals([s.keys(), s.backups(), s.errors.length], [[secret[0]], [], 1]);
    }
  }
});

Deno.test("what a refused change tells completes it: both passphrases, once its pods are stopped, also where the new one would do", async () => {
  const secrets: Secret[] = [["NEW", "OLD"], ["NEW"]];
  for (const secret of secrets) {
    const s = await passphraseHarness("OLD");
    await s.interrupt("NEW");
    await s.cryptsetup("NEW", ...REENCRYPTION[0]!);
    await s.use(...secret);
    assertEquals([s.keys(), s.luks().isReencrypting, s.luks().volumeKey, s.backups()], [["NEW"], undefined, 1, []]);
  }
});

Deno.test("a thin volume whose encryption an administrator began is completed by the command that the refusal tells", async () => {
  const s = await passphraseHarness("OLD");
  await s.interrupt("NEW");
  await s.cryptsetup("NEW", ...REENCRYPTION[0]!);
  const volume = await s.find();
  const thin = { ...volume, lv: { ...volume.lv, pool: "pool" } };
  const refusal = await assertRejects(() => s.stageVolume(thin, "NEW", "OLD"), StorageError, "it is thin");
  const [, command] = /run cryptsetup (reencrypt --resume-only \/\S+)$/.exec(refusal.message) ?? [];
  assertEquals(command, `reencrypt --resume-only ${volume.lv.devicePath}`);
  await s.cryptsetup("NEW", ...REENCRYPTION[1]!);
  await s.stageVolume(thin, "NEW", "OLD");
  assertEquals([s.keys(), s.luks().volumeKey, s.backups()], [["NEW"], 1, []]);
});
