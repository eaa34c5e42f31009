import { assertEquals } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { checkKernel, type KernelFacts } from "./kernel.ts";

const ERROR = { error: new StorageError("Unavailable", "dmsetup targets: exit status 1: why") };

const TARGETS = ["linear", "snapshot", "snapshot-origin", "striped", "raid"];

function kernel(targets: readonly string[], more: Partial<KernelFacts> = {}) {
  return checkKernel({
    targets: { value: new Map(targets.map((name) => [name, "1.0.0"])) },
    modules: { value: new Set(["dm-mod"]) },
    version: { value: { lvm: "2.03.16", dmDriver: "4.48.0" } },
    release: { value: "6.1.0" },
    root: true,
    ...more,
  });
}

Deno.test("checkKernel() names the targets that the kernel has, and that of thin pools only where it exists", () => {
  const summary = (targets: string[]) => kernel(targets).summary;
  assertEquals(summary(TARGETS), `device-mapper 4.48.0: ${TARGETS.join(", ")}`);
  assertEquals(summary([...TARGETS, "thin-pool"]), `device-mapper 4.48.0: ${TARGETS.join(", ")}, thin-pool`);
  assertEquals(summary([]), "device-mapper 4.48.0: no targets");
});

Deno.test("checkKernel() only warns when targets cannot be listed by a device-mapper that answers", () => {
  const levels = (more: Partial<KernelFacts>) => kernel([], more).findings.map(({ level }) => level);
  assertEquals(levels({ targets: ERROR }), ["warning"]);
  assertEquals(levels({ targets: ERROR, version: ERROR }), ["error"]);
});
