import { assertEquals, assertThrows } from "@std/assert";
import { fillTemplate, parseColumns, parsePath, parseTemplate, valuesAt } from "./json_path.ts";

const DATA = {
  context: "prod",
  volumes: [
    { id: "v1-a", claim: "shop/db", size: 1024, state: "Ready", labels: { "app.io/tier": "x", "a b": 1 } },
    { id: "v1-b", size: 4096, state: "Lost", tags: ["one", "two"] },
  ],
};

Deno.test("templates give what those of kubectl give", () => {
  const cases: [template: string, expected: string][] = [
    ["{.context}", "prod"],
    ["{$.context}", "prod"],
    [".context", "prod"],
    ["in {.context}:", "in prod:"],
    ["{.volumes[*].id}", "v1-a v1-b"],
    ["{.volumes[0].id} {.volumes[-1].id}", "v1-a v1-b"],
    ["{.volumes[-5].id}{.volumes[5].id}{.volumes[0][0]}", ""],
    ["{.volumes[1:].id},{.volumes[:1].id},{.volumes[-1:].id}", "v1-b,v1-a,v1-b"],
    ["{.volumes[7].id}{.none.at.all}", ""],
    ["{.volumes[0].labels.app\\.io/tier}{.volumes[0].labels['a b']}", "x1"],
    ["{.volumes[1].tags}", '["one","two"]'],
    ["{.volumes[1].*}", 'v1-b 4096 Lost ["one","two"]'],
    ['{.volumes[?(@.state=="Lost")].id}', "v1-b"],
    ["{.volumes[?(@.state!='Lost')].id}", "v1-a"],
    ["{.volumes[?(@.size>1024)].id}{.volumes[?(@.size <= 1024)].id}", "v1-bv1-a"],
    ["{.volumes[?(@.claim)].id}", "v1-a"],
    ["{.volumes[?(@.tags[1]=='two')].id}", "v1-b"],
    ['{range .volumes[*]}{.id}{"\\t"}{.size}{"\\n"}{end}', "v1-a\t1024\nv1-b\t4096\n"],
    ["{range .volumes[*]}{range .tags[*]}<{@}>{end};{end}", ";<one><two>;"],
    ["{\"}\"}{'it\\'s'}", "}it's"],
    ["{.toString}{.volumes.length}", ""],
  ];
  const text = (value: unknown) => typeof value === "string" ? value : JSON.stringify(value);
  for (const [template, expected] of cases) {
    assertEquals(fillTemplate(parseTemplate(template), DATA, text), expected, template);
  }
});

Deno.test("what templates cannot be is refused by its name", () => {
  const cases: [template: string, words: string][] = [
    ["{.a", "a brace is not closed at"],
    ["{.id}{end}", "an {end} has no {range}"],
    ["{range .volumes[*]}{.id}", "a {range} has no {end}"],
    ["{..id}", 'a search at any depth (..) is not known at "..id"'],
    ["{.a['b','c']}", "a union ([a,b]) is not known"],
    ["{.a[0,1]}", "a union ([a,b]) is not known"],
    ["{.a[?(@.b =~ 'c')]}", "a filter of this form is not known"],
    ["{.a b}", 'it is not known at " b"'],
    ["{.a|b}", 'it is not known at "|b"'],
    ['{"\\q"}', "Bad escaped character"],
  ];
  for (const [template, words] of cases) assertThrows(() => parseTemplate(template), Error, words);
});

Deno.test("columns have a title and a path, with braces of none", () => {
  const columns = parseColumns("CLAIM:.claim,ID:id");
  assertEquals(columns.map(({ title, path }) => [title, ...valuesAt(path, DATA.volumes[0])]), [
    ["CLAIM", "shop/db"],
    ["ID", "v1-a"],
  ]);
  for (const text of ["", "CLAIM", "CLAIM:", ":.claim", "A:.a,,B:.b"]) {
    assertThrows(() => parseColumns(text), Error, "is no TITLE:PATH");
  }
  assertEquals(valuesAt(parsePath("@"), 7), [7]);
});
