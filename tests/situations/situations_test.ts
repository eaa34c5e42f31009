import { assert, assertEquals } from "@std/assert";
import { SITUATIONS } from "./all.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

const rows = Object.values(SITUATIONS).flat();

for (const { seen: [first], here, shown } of rows) {
  if (typeof shown === "function") Deno.test(`${first}: ${here}`, shown);
}

Deno.test("each situation that names a test names one that exists", async () => {
  const missing: string[] = [];
  for (const { seen: [first], shown } of rows) {
    for (const { file, test } of typeof shown === "function" ? [] : shown) {
      const text = await Deno.readTextFile(`${ROOT}${file}`).catch(() => "");
      const names = text.split("\n").filter((line) => !/^\s*(?:\*|\/[/*])/.test(line) && /["`]/.test(line));
      if (!names.some((name) => name.includes(test))) missing.push(`${first}: ${file}: ${test}`);
    }
  }
  assertEquals(missing, []);
});

Deno.test("each situation is in one row, with its public number and whole sentences", () => {
  const numbers = rows.flatMap(({ seen }) => seen);
  assertEquals(numbers.filter((number, index) => numbers.indexOf(number) !== index), []);
  for (const { seen, happened, here } of rows) {
    for (const number of seen) assert(/^[a-z0-9/._-]+#\d+$|^[a-z0-9_.-]+\(\d\)$|^[A-Z]/i.test(number), number);
    for (const sentence of [happened, here]) assert(/^[A-Za-z`/].*[^.]\.$/s.test(sentence), sentence);
  }
});

Deno.test("the reference has each situation under its project and its public number", async () => {
  const page = (await Deno.readTextFile(`${ROOT}docs/reference/situations.md`)).replaceAll("\n  ", " ");
  const items = [...page.matchAll(/^- (.*)$/gm)].map(([, item]) => item!);
  assertEquals(items.length, rows.length);
  const missing = rows.flatMap(({ seen }, index) => {
    const numbers = items[index]!.split(": ")[0]!;
    return seen.filter((number) => {
      const [project, id] = number.split("#");
      return !numbers.includes(project!) || id !== undefined && !new RegExp(`#${id}(?:, |$)`).test(numbers);
    });
  });
  assertEquals(missing, []);
});
