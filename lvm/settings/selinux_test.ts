import { assert, assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { contextIn, isSameContext, requestedContext } from "./selinux.ts";

const POD = "system_u:object_r:container_file_t:s0:c98,c684";

Deno.test("requestedContext() finds the one context that kubelet or a class requests", () => {
  assertEquals(requestedContext(["noatime", `context="${POD}"`]), POD);
  assertEquals(requestedContext(["context=system_u:object_r:local_t:s0"]), "system_u:object_r:local_t:s0");
  assertEquals(requestedContext([`context="${POD}"`, `context="${POD}"`]), POD);
  assertEquals(requestedContext(["noatime"]), undefined);
  const two = ["context=u:r:t:s0", `context="${POD}"`];
  assertThrows(() => requestedContext(two), StorageError, "a mount has one");
});

Deno.test("contextIn() reads the context of a filesystem from the mount table's options", () => {
  assertEquals(contextIn(`rw,context="${POD}",attr2,inode64`), POD);
  assertEquals(contextIn("rw,context=system_u:object_r:tmp_t:s0"), "system_u:object_r:tmp_t:s0");
  for (const without of ["rw,seclabel", "rw", "", "rw,fscontext=u:r:t:s0"]) assertEquals(contextIn(without), undefined);
});

Deno.test("isSameContext() knows the ways in which the kernel writes categories", () => {
  const same: [string, string][] = [
    ["u:r:t:s0:c3,c1", "u:r:t:s0:c1,c3"],
    ["u:r:t:s0:c0,c1,c2", "u:r:t:s0:c0.c2"],
    ["u:r:t:s0-s0:c0.c1023", "u:r:t:s0-s0:c0.c1023"],
    ["u:r:t:s0:c1,c1", "u:r:t:s0:c1"],
    ["u:r:t", "u:r:t"],
  ];
  for (const [left, right] of same) assert(isSameContext(left, right), `${left} ${right}`);
  const different: [string, string | undefined][] = [
    ["u:r:t:s0:c1,c3", "u:r:t:s0:c1,c4"],
    ["u:r:t:s0:c10", "u:r:t:s0:c1"],
    ["u:r:t:s0", "u:r:t2:s0"],
    ["u:r:t:s0", undefined],
  ];
  for (const [left, right] of different) assert(!isSameContext(left, right), `${left} ${right}`);
  assert(isSameContext(undefined, undefined));
});
