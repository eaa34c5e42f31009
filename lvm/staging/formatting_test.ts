import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { failure, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { StorageError } from "../../base/error.ts";
import type { Signature } from "../host/device.ts";
import { checkFilesystem, type FilesystemFormat, nextFormatStep } from "./formatting.ts";

const [uuid, other, chosen] = ["1", "2", "3"].map((digit) => `0000000a-0000-4000-8000-00000000000${digit}`) as [
  ...[string, string, string],
];
const luks = { state: "formatted", uuid: other } as const;
const own = { type: "ext4", uuid };
const unformatted = { state: "unformatted", type: "ext4" } as const;
const formatting = { state: "formatting", type: "ext4", uuid } as const;
const formatted = { state: "formatted", type: "ext4", uuid } as const;
const copied = { state: "copied", type: "ext4", luks } as const;
const renewing = { state: "renewing", type: "ext4", uuid, luks } as const;

/** What is recorded, the signatures that are found, the step, and the error or the reason of the warning. */
const STEPS: readonly (readonly [FilesystemFormat, readonly Signature[], object | RegExp, string?])[] = [
  [unformatted, [], { do: "make", first: "require blank", filesystem: { ...formatting, uuid: chosen } }],
  [{ ...unformatted, luks }, [], {
    ...{ do: "make", first: "require blank", filesystem: { ...formatting, uuid: chosen, luks } },
  }],
  [formatting, [], { do: "make", filesystem: formatting }],
  [formatting, [own], { do: "make", first: "wipe", filesystem: formatting }],
  [formatting, [{ type: "ext3", uuid: uuid.toUpperCase() }], { do: "make", first: "wipe", filesystem: formatting }],
  [
    formatting,
    [{ type: "ext4", uuid: other }],
    /should hold ext4 with the UUID \S+1, but holds ext4 with the UUID \S+2\./,
  ],
  [formatting, [own, { type: "gpt" }], /but holds ext4 with the UUID \S+1 and gpt\./],
  [formatted, [own], { do: "check", filesystem: formatted }],
  [formatted, [{ ...own, uuid: uuid.toUpperCase() }], { do: "check", filesystem: formatted }],
  [formatted, [{ type: "gpt" }, own], { do: "check", filesystem: formatted }, "FurtherSignatures"],
  [formatted, [], /should hold ext4 with the UUID \S+1, but holds nothing\./],
  [formatted, [{ type: "ext3", uuid }], /but holds ext3 with the UUID \S+1\./],
  [formatted, [{ type: "ext4", uuid: other }, { type: "gpt" }], /but holds ext4 with the UUID \S+2 and gpt\./],
  [copied, [{ type: "gpt" }, { type: "ext4", uuid: other }], {
    ...{ do: "renew", filesystem: { ...renewing, uuid: chosen } },
  }],
  [copied, [], { do: "make", first: "require blank", filesystem: { ...formatting, uuid: chosen, luks } }],
  [copied, [{ type: "xfs", uuid }], /should hold ext4, but holds xfs with the UUID \S+1\./],
  [renewing, [], { do: "renew", filesystem: renewing }],
];

for (const [format, signatures, expected, reason] of STEPS) {
  const found = signatures.map(({ type, uuid }) =>
    uuid === undefined ? type : `${type} ${uuid[7]}${uuid.at(-1)}`
  ).join(" and ") || "nothing";
  const encrypted = "luks" in format ? ", encrypted" : "";
  Deno.test(`nextFormatStep() of ${format.state}${encrypted}, where the device holds ${found}`, () => {
    const step = nextFormatStep(format, { path: "/dev/x", signatures }, chosen);
    if (step.do === "refuse") {
      assertEquals(step.error.kind, "ForeignData");
      return assertMatch(step.error.message, expected instanceof RegExp ? expected : /^$/);
    }
    const { warning, ...rest } = step;
    assertEquals([rest, warning?.reason], [expected, reason] as unknown[]);
  });
}

Deno.test("checkFilesystem() believes no label of a damaged filesystem that says it is mounted", async () => {
  const machine = new FakeMachine();
  const text = "vol is mounted.\n: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY.\n\t(i.e., without -a or -p options)\n";
  machine.fault = ({ program }) => program === "e2fsck" ? { ...failure(4, ""), stdout: text } : undefined;
  const check = () => checkFilesystem(machine, "ext4", { devicePath: "/dev/mapper/data-vol", warn: () => {} });
  await assertRejects(check, StorageError, "UNEXPECTED INCONSISTENCY");
});
