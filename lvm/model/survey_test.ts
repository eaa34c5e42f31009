import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import missing from "../../tests/fixtures/doctor/survey_missing.json" with { type: "text" };
import missingWarnings from "../../tests/fixtures/doctor/survey_missing.stderr.txt" with { type: "text" };
import shared from "../../tests/fixtures/doctor/survey_shared.json" with { type: "text" };
import spare from "../../tests/fixtures/report_spare_disks.json" with { type: "text" };
import { StorageError } from "../../base/error.ts";
import type { Exec, Output } from "../exec.ts";
import { parseSurvey, parseUnassignedPvs, readSurvey, type SurveyedGroup } from "./survey.ts";

function execReturning(output: Partial<Output>): Exec {
  return {
    run: () => Promise.resolve({ code: 0, stdout: "", stderr: "", ...output }),
    idle: () => Promise.resolve(),
  };
}

Deno.test("parseSurvey() parses the report of LVM 2.03.16 on a group without one of its physical volumes", () => {
  const [fast, data] = parseSurvey(missing);
  assertEquals([fast?.name, fast?.missingPvs, fast?.metadataSize, fast?.metadataFree], ["fast", 1, 1044480n, 518656n]);
  assertEquals(fast?.pvs.map((pv) => [pv.path, pv.missing]), [["/dev/vdd", false], ["[unknown]", true]]);
  const partial = (group?: SurveyedGroup) =>
    group?.lvs.filter(({ health }) => health === "partial").map(({ name }) => name);
  assertEquals(partial(fast), ["vol-66666666666666666666666666666666", "vol-77777777777777777777777777777777"]);
  assertEquals([fast?.exported, fast?.systemId, fast?.lockType], [false, "", ""]);
  assertEquals([data?.name, partial(data), data?.lvs.length], ["data", [], 4]);
});

Deno.test("parseUnassignedPvs() parses the physical volumes that are in no group", () => {
  assertEquals(parseUnassignedPvs(spare).map(({ path, missing }) => [path, missing]), [["/dev/vdc", false], [
    "/dev/vdd",
    false,
  ]]);
  assertEquals(parseUnassignedPvs(missing), []);
  assertEquals(parseSurvey(spare).map(({ name, pvs }) => [name, pvs.map(({ path }) => path)]), [
    ["fast", ["/dev/vdf"]],
    ["data", ["/dev/vde"]],
  ]);
});

Deno.test("parseSurvey() parses the lock type of a shared group", () => {
  assertEquals(parseSurvey(shared).map(({ name, lockType }) => [name, lockType]), [["fast", "sanlock"], ["data", ""]]);
  const clustered = shared.replace('"vg_clustered":"0"', '"vg_clustered":"1"');
  assertEquals(parseSurvey(clustered)[0]?.lockType, "clvm");
});

Deno.test("readSurvey() returns LVM's warnings, and fails as a user other than root", async () => {
  const { warnings } = await readSurvey(execReturning({ stdout: missing, stderr: missingWarnings }));
  assertEquals(warnings, ["VG fast is missing PV kxqHKd-k73b-IfAJ-H383-Heuv-3AyZ-iXLIfe (last written to /dev/vdf)."]);

  // as such a user LVM reports no group at all, and exits with 0
  const stderr = "  WARNING: Running as a non-root user. Functionality may be unavailable.\n";
  const error = await assertRejects(
    () => readSurvey(execReturning({ stdout: '{"report": []}', stderr })),
    StorageError,
  );
  assertEquals(error.kind, "FailedPrecondition");
  assertEquals((await assertRejects(() => readSurvey(execReturning({ code: 5 })), StorageError)).kind, "CommandFailed");
});

Deno.test("readSurvey() returns the other groups of a report that LVM refuses because of one, and a warning about that one", async () => {
  const refused = { code: 5, stdout: missing, stderr: "  Internal error\n  Cannot process volume group fast\n" };
  const { groups, warnings } = await readSurvey(execReturning(refused));
  assertEquals(groups.map(({ name }) => name), ["data"]);
  assertEquals(warnings, ["volume group fast cannot be read: Internal error\n  Cannot process volume group fast"]);
  for (const output of [{ ...refused, stdout: "" }, { ...refused, stderr: "  Internal error\n" }]) {
    const error = await assertRejects(() => readSurvey(execReturning(output)), StorageError);
    assertEquals(error.kind, "CommandFailed");
  }
});

Deno.test("readSurvey() warns of each row that cannot be read, and shows the others", async () => {
  const odd = missing.replace(/"vg_mda_size":"\d+"/, '"vg_mda_size":"all"').replace(/"lv_size":"\d+"/, '"lv_size":""');
  const expected = await readSurvey(execReturning({ stdout: missing }));
  const { groups, warnings } = await readSurvey(execReturning({ stdout: odd }));
  assertEquals(
    groups.map(({ name, lvs }) => [name, lvs.length]),
    expected.groups.map(({ name, lvs }) => [name, lvs.length]),
  );
  assertEquals(warnings.filter((text) => !expected.warnings.includes(text)).map((text) => text.split(": ").at(-1)), [
    'expected an integer, found ""',
  ]);
  assertThrows(() => parseSurvey("no report"), StorageError, "not JSON");
});
