import { assertEquals, assertThrows } from "@std/assert";
import fc from "fast-check";
import { StorageError } from "../error.ts";
import { AnswerSplitter, parseAnswer, parseMessages } from "./answer.ts";

/** What the shell of LVM 2.03.16 wrote, with the profile lvmdbusd. */
const entry = (fields: Record<string, string>) => {
  const all = { seq_num: "1", context: "processing", object_type: "vg", object_name: "g", message: "", ret_code: "0" };
  return `          {${
    Object.entries({ ...all, ...fields }).map(([name, value]) => `"log_${name}":"${value}"`).join(", ")
  }}`;
};

const answerOf = (...entries: string[]) => `  {\n      "log": [\n${entries.join(",\n")}\n      ]\n  }\n`;

const status = (name: string, code: number) =>
  entry({
    ...{ type: "status", context: "shell", object_type: "cmd", object_name: name },
    ...{ message: code === 1 ? "success" : "failure", ret_code: String(code) },
  });

const REPORT = `  {
      "report": [
          {
              "lv": [
                  {"lv_name":"a{b}\\"c", "lv_size":"4"}
              ]
          }
      ]
      ,
      "log": [
${status("lvs", 1)}
      ]
  }
`;

Deno.test("AnswerSplitter: finds the answers in pieces of any size", () => {
  const answers = [REPORT, answerOf(status("lvcreate", 5)), answerOf(status("version", 1))];
  const text = answers.join("\n");
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: text.length })), (cuts) => {
      const splitter = new AnswerSplitter();
      const points = [0, ...cuts.toSorted((a, b) => a - b), text.length];
      const found = points.slice(1).flatMap((end, i) => splitter.push(text.slice(points[i], end)));
      assertEquals(found.map((answer) => answer.trim()), answers.map((answer) => answer.trim()));
      assertEquals(splitter.isPartial, false);
    }),
    { numRuns: 100 },
  );
  const splitter = new AnswerSplitter();
  assertEquals(splitter.push(text.slice(0, 10)), []);
  assertEquals(splitter.isPartial, true);
});

Deno.test("AnswerSplitter: refuses what is outside of an answer", () => {
  for (const text of ["lvm> ", "x", `"`, "}", `${REPORT}lvm> `, `${REPORT}]`]) {
    assertThrows(() => new AnswerSplitter().push(text), StorageError, "outside of an answer");
  }
});

Deno.test("parseAnswer(): returns the exit status of a process", () => {
  assertEquals(parseAnswer("lvs", REPORT), { code: 0, hasReports: true });
  for (const code of [2, 3, 5]) {
    assertEquals(parseAnswer("lvcreate", answerOf(status("lvcreate", code))), { code, hasReports: false });
  }
  const error = entry({ type: "error", context: "shell", object_type: "cmd", object_name: "no", message: "No such" });
  assertEquals(parseAnswer("no", answerOf(error, status("no", 2))).code, 2);
});

Deno.test("parseMessages(): reads a message with the name of a device, of which LVM does not escape the backslashes", () => {
  const name = String.raw`/dev/mapper/luks\x281\x29`;
  const answer = answerOf(entry({ type: "error", message: `"${name}"`.replaceAll('"', '\\"') }), status("lvcreate", 5));
  assertEquals(parseMessages(answer).stderr, `  "${name}"\n`);
  assertEquals(new AnswerSplitter().push(answer), [answer.trim()]);
});

Deno.test("parseAnswer(): refuses an answer to another command, and one without one status at its end", () => {
  const wrong: [string, string][] = [
    [answerOf(status("lvremove", 1)), "it is not to lvcreate"],
    [answerOf(), "not one status"],
    [answerOf(entry({ type: "status" })), "not one status"],
    [answerOf(entry({ type: "error", context: "shell", object_type: "cmd" })), "not one status"],
    [answerOf(status("lvcreate", 1), status("lvcreate", 1)), "not one status"],
    [answerOf(status("lvcreate", 1), entry({ type: "error" })), "not one status"],
    [answerOf(status("lvcreate", 1).replace(`code":"1"`, `code":"x"`)), "no number"],
    [`{"report": []}`, "expected a list"],
    [`{"log": [1]}`, "expected an object"],
    [`{"log": [{}]}`, "expected text"],
    [`{"log": `, "JSON"],
  ];
  for (const [answer, message] of wrong) {
    assertThrows(() => parseAnswer("lvcreate", answer), StorageError, message);
  }
});

Deno.test("parseMessages(): returns what a process prints on standard output and standard error", () => {
  const log = answerOf(
    entry({ type: "print", message: `Logical volume \\"x\\" created.` }),
    entry({ type: "status", message: "success" }),
    entry({ type: "warn", message: "WARNING: This metadata update is NOT backed up." }),
    entry({ type: "error", message: "two\nlines\tand a tab" }),
    status("lvcreate", 5),
  );
  assertEquals(parseMessages(log), {
    stdout: `  Logical volume "x" created.\n`,
    stderr: "  WARNING: This metadata update is NOT backed up.\n  two lines and a tab\n",
  });
});
