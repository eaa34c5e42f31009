/**
 * Runs the doctor on a fake machine, for its tests.
 *
 * @module
 */

import { assertEquals, assertMatch } from "@std/assert";
import { healthyMachine } from "./healthy_machine.ts";
import { type FakeMachine, type FakePool, newUuid } from "./machine.ts";
import { type Diagnosis, type DoctorOptions, examine } from "../../../lvm/doctor/doctor.ts";
import { StorageError } from "../../../base/error.ts";
import { CHECK_NAMES } from "../../../lvm/doctor/doctor.ts";
import { snapshotIdOf, volumeIdOf } from "../../../base/ids.ts";

/** The name of the driver that the doctor looks for. */
export const DRIVER = "lvm.denolith.dev";

/** The id of the volume on a healthy machine. */
export const id = volumeIdOf("one");

/** The id of the snapshot on a healthy machine. */
export const snapshotId = snapshotIdOf("cut");

/** The UUID of the filesystem on a healthy machine. */
export const uuid = "11111111-2222-3333-4444-555555555555";

/** A healthy machine and what is on it. */
export type HealthyMachine = ReturnType<typeof healthyMachine>;

/** Examines a machine for the driver, as if the driver served on its socket. */
export function diagnose(machine: FakeMachine, options: Partial<DoctorOptions> = {}): Promise<Diagnosis> {
  return examine({ exec: machine, driver: DRIVER, socket: { path: "/run/x.sock", state: "listening" }, ...options });
}

/** Adds a thin pool of the driver that has free space. @returns the pool, for changes */
export function addPool({ machine, group, lv }: HealthyMachine): FakePool {
  const thinPool: FakePool = {
    ...{ metadataSize: 4n << 20n, transactionId: 0, dataPercent: 40, metadataPercent: 10.84, zeroes: true },
    ...{ health: "", monitored: false, residualData: new Set<string>() },
  };
  const tags = new Set([`denolith=${DRIVER}`, "denolith.pool=made"]);
  group.lvs.push({ ...lv, name: "data_thinpool", uuid: newUuid(), minor: machine.nextMinor(), tags, thinPool });
  return thinPool;
}

/** Puts the driver into a container, with the settings and the locks of the host. */
export function inContainer(machine: FakeMachine): void {
  machine.mounts.push({ ...tmpfs("/", false), fsType: "overlay", source: "overlay" });
  for (const path of ["/run/lock/lvm", "/etc/lvm"]) machine.mounts.push({ ...tmpfs(path, false), fsType: "ext4" });
}

/** Problems of a machine, with the expected findings: check, level, subject, and parts of message and remedy. */
export type Problems = Record<
  string,
  [(parts: HealthyMachine) => unknown, ...[string, string, string | RegExp, RegExp, RegExp?][]]
>;

/** Registers a test for each problem: the doctor reports the findings of the table and no others. */
export function testProblems(problems: Problems): void {
  for (const [name, [make, ...expected]] of Object.entries(problems)) {
    Deno.test(`examine(): ${name}`, async () => {
      const parts = healthyMachine();
      make(parts);
      const { level, checks, findings } = await diagnose(parts.machine);
      assertEquals(checks.map(({ check }) => check), [...CHECK_NAMES]);
      const summary = findings.map(({ check, level, subject, message }) => `${check} ${level} ${subject}: ${message}`)
        .join("\n");
      assertEquals(
        findings.map(({ check, level }) => `${check} ${level}`),
        expected.map(([check, level]) => `${check} ${level}`),
        summary,
      );
      for (const [index, [, , on, found, remedy]] of expected.entries()) {
        const finding = findings[index]!;
        if (typeof on === "string") assertEquals(finding.subject, on);
        else assertMatch(finding.subject, on);
        assertMatch(finding.message, found);
        if (remedy === undefined) assertEquals(finding.remedy, undefined);
        else assertMatch(finding.remedy ?? "", remedy);
      }
      const levels = findings.map((finding) => finding.level);
      assertEquals(level, (["error", "warning", "info"] as const).find((each) => levels.includes(each)) ?? "ok");
    });
  }
}

/** Fails as the exec seam does when a command exceeds its deadline. @throws {StorageError} Unavailable, always */
export function throwNoAnswer(): never {
  throw new StorageError("Unavailable", "lvm fullreport: no answer within 20 s");
}

/** Returns the mount of a tmpfs. */
export function tmpfs(target: string, readOnly: boolean) {
  return { target, source: "tmpfs", fsType: "tmpfs", root: "/", readOnly, deviceNumber: "0:23" };
}
