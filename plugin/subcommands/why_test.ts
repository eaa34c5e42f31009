import { assertEquals } from "@std/assert";
import { coloursOf } from "../output.ts";
import { answerText } from "./why.ts";

Deno.test("answerText() has its facts in two columns, with two blanks between them", () => {
  const facts = [["Node", "n1"], ["Requested", "1Gi\nin ext4"]] as const;
  const answer = { object: "claim/shop/db", state: "Bound", problems: [], facts, unread: ["events: no"] };
  assertEquals(answerText(answer, { colours: coloursOf({ hasColours: false }), now: new Date() }).split("\n"), [
    ...["claim/shop/db is Bound", "", "Nothing is wrong in what you may read.", ""],
    ...["Node       n1", "Requested  1Gi in ext4", "Not read: events: no"],
  ]);
});
