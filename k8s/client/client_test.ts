import { assertEquals } from "@std/assert";
import { ApiError, isAlreadyExists, isConflict, isGone, isNotFound } from "./client.ts";

Deno.test("the predicates of errors tell an object that exists from one that changed, by status and reason", () => {
  const kindsOf = (error: unknown) =>
    Object.entries({ isNotFound, isConflict, isAlreadyExists, isGone }).filter(([, is]) => is(error)).map(([name]) =>
      name
    );
  const answer = (status: number, reason: string) => new ApiError("it failed", { status, reason });
  assertEquals(kindsOf(answer(404, "NotFound")), ["isNotFound"]);
  assertEquals(kindsOf(answer(409, "Conflict")), ["isConflict"]);
  assertEquals(kindsOf(answer(409, "AlreadyExists")), ["isAlreadyExists"]);
  assertEquals(kindsOf(answer(410, "Expired")), ["isGone"]);
  assertEquals(kindsOf(answer(500, "AlreadyExists")), []);
  assertEquals(kindsOf(Object.assign(new Error("no answer"), { status: 409, reason: "AlreadyExists" })), []);
});
