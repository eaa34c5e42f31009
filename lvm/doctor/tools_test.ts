import { assertEquals } from "@std/assert";
import { PROGRAMS } from "../exec.ts";
import { checkTools } from "./tools.ts";

Deno.test("checkTools() refuses versions of LVM before 2.02.158", () => {
  const check = (lvm: string) => {
    const version = { value: { lvm } };
    return checkTools({ programs: { value: new Set(PROGRAMS) }, version, root: true }).findings.map(({ level }) =>
      level
    );
  };
  for (const lvm of ["2.02.157", "2.02.9", "2.01.200", "1.99.999", "2.02"]) assertEquals(check(lvm), ["error"], lvm);
  for (const lvm of ["2.02.158", "2.02.158.1", "2.02.200", "2.03.0", "3.0.0"]) assertEquals(check(lvm), [], lvm);
});
