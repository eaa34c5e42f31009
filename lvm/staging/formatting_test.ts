import { assertRejects } from "@std/assert";
import { failure, FakeMachine } from "../../tests/fake/machine.ts";
import { StorageError } from "../../base/error.ts";
import { checkFilesystem } from "./formatting.ts";

Deno.test("checkFilesystem() believes no label of a damaged filesystem that says it is mounted", async () => {
  const machine = new FakeMachine();
  const text = "vol is mounted.\n: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY.\n\t(i.e., without -a or -p options)\n";
  machine.fault = ({ program }) => program === "e2fsck" ? { ...failure(4, ""), stdout: text } : undefined;
  const check = () => checkFilesystem(machine, "ext4", { path: "/dev/mapper/data-vol", warn: () => {} });
  await assertRejects(check, StorageError, "UNEXPECTED INCONSISTENCY");
});
