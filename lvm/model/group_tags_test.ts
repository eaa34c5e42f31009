import { assertEquals } from "@std/assert";
import { groupSnapshotIdOf } from "../../base/ids.ts";
import { markConfirmed, membershipTag, parseMembership } from "./tags.ts";

const id = groupSnapshotIdOf("group");

Deno.test("parseMembership() reads what membershipTag() writes", () => {
  for (const membership of [{ id, count: 1, confirmed: false }, { id, count: 64, confirmed: true }]) {
    assertEquals(parseMembership(["denolith=d", membershipTag(membership)]), membership);
  }
  assertEquals(parseMembership(["denolith=d"]), undefined);
  for (const value of ["", id, `${id}:0`, `${id}:x`, `foreign:1`, `${id}:1:old`, `${id}:10000`]) {
    assertEquals(parseMembership([`denolith.group=${value}`]), undefined, value);
  }
});

Deno.test("markConfirmed() replaces the tag of a new snapshot", () => {
  const membership = { id, count: 3, confirmed: false };
  assertEquals(markConfirmed(membership), [
    ...["--deltag", `denolith.group=${id}:3:new`],
    ...["--addtag", `denolith.group=${id}:3`],
  ]);
});
