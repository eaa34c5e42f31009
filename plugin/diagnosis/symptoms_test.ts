import { assert, assertEquals } from "@std/assert";
import { type SymptomChapter, symptomOf, SYMPTOMS } from "./symptoms.ts";

Deno.test("symptomOf() looks for the pieces of a quote in their order, with anything between them", () => {
  const reasonOf = (message: string) => symptomOf("pending", message)?.reason;
  assertEquals(reasonOf("a: not enough free space in data (1 GiB free); b"), "NoSpace");
  assertEquals(reasonOf("not enough free space in data\n (.*+?free free)"), "NoSpace");
  assertEquals(reasonOf("(1 GiB free) not enough free space in data"), undefined);
  assertEquals(
    reasonOf("not enough free space in data (2 of its physical volumes are missing)"),
    "PhysicalVolumesMissing",
  );
  assertEquals(reasonOf(""), undefined);
});

Deno.test("symptomOf() is quick whatever the message is: whoever may write events chooses it", () => {
  const began = performance.now();
  for (const chapter of Object.keys(SYMPTOMS) as SymptomChapter[]) {
    for (const quote of SYMPTOMS[chapter].flatMap(({ quotes }) => quotes)) {
      const pieces = quote.split("…").filter((piece) => piece !== "");
      symptomOf(chapter, pieces.slice(0, -1).join(" x ").repeat(300));
      symptomOf(chapter, pieces[0]!.repeat(300));
    }
  }
  assert(performance.now() - began < 2_000);
});
