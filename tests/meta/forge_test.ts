/**
 * What a forge shows of the repository beside code and documents: forms for issues, and the text that a pull request begins with.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { parse } from "@std/yaml";
import { DENOLITH } from "../../cli/help/denolith.ts";
import manifest from "../../deno.json" with { type: "json" };
import { PLUGIN } from "../../plugin/subcommands.ts";
import { anchors, inlineCode } from "./markdown.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

const FORMS = `${ROOT}.github/ISSUE_TEMPLATE`;

/** The labels that a new repository of GitHub has. It leaves out others without a word. */
const LABELS = [
  ...["bug", "documentation", "duplicate", "enhancement", "good first issue", "help wanted", "invalid", "question"],
  "wontfix",
];

/** The kinds of elements of a form, with those of their attributes that must be there. */
const ELEMENTS: Readonly<Record<string, readonly string[]>> = {
  markdown: ["value"],
  input: ["label"],
  textarea: ["label"],
  dropdown: ["label", "options"],
  checkboxes: ["label", "options"],
};

/** An element of a form. */
interface Element {
  readonly type: string;
  readonly id?: string;
  readonly attributes: {
    readonly label?: string;
    readonly description?: string;
    readonly value?: string;
    readonly options?: readonly (string | { readonly label: string; readonly required?: boolean })[];
  };
  readonly validations?: { readonly required?: boolean };
}

/** A form for an issue. */
interface Form {
  readonly name: string;
  readonly description: string;
  readonly labels: readonly string[];
  readonly body: readonly Element[];
}

const forms = new Map(
  [...Deno.readDirSync(FORMS)].filter(({ name }) => name !== "config.yml").map(({ name }) => {
    return [name, parse(Deno.readTextFileSync(`${FORMS}/${name}`)) as Form];
  }),
);

/** Returns what people read of a form. */
function textOf({ body }: Form): string {
  return body.flatMap(({ attributes: { label, description, value, options = [] } }) => [
    ...[label, description, value].map((text) => text ?? ""),
    ...options.map((option) => typeof option === "string" ? option : option.label),
  ]).join("\n");
}

Deno.test("forms for issues have what GitHub requires of them, and labels that there are", () => {
  assert(forms.size >= 3, "the test sees them");
  for (const [file, { name, description, labels, body }] of forms) {
    assert(/\.yml$/.test(file), `${file}: GitHub reads .yml alone`);
    assert(name.length > 0 && description.length > 0, file);
    assertEquals(labels.filter((label) => !LABELS.includes(label)), [], file);
    for (const { type, id, attributes } of body) {
      const missing = (ELEMENTS[type] ?? ["type"]).filter((key) => !Object.hasOwn(attributes, key));
      assertEquals(missing, [], `${file}: ${type} ${id}`);
      assertEquals(id === undefined, type === "markdown", `${file}: an id for each answer`);
      assert(/^[\w-]*$/.test(id ?? ""), `${file}: ${id}`);
      const options = (attributes.options ?? []).map((option) => typeof option === "string" ? option : option.label);
      assertEquals([...new Set(options)], options, `${file}: ${id}`);
      assert(!options.some((option) => option === "None"), `${file}: GitHub adds None itself`);
    }
    for (
      const values of [
        body.flatMap(({ id }) => id ?? []),
        body.flatMap(({ attributes }) => attributes.label ?? []),
      ]
    ) {
      assertEquals([...new Set(values)], values, `${file}: ids and labels are unique`);
    }
    assert(body.some(({ validations }) => validations?.required === true), `${file} requires something`);
  }
});

Deno.test("the form for a defect requires the version, the archive, and what the doctor says", () => {
  const { body } = forms.get("defect.yml")!;
  const required = body.filter(({ validations }) => validations?.required === true);
  const described = (id: string) => required.find((element) => element.id === id)?.attributes.description ?? "";
  assert(described("version").includes("kubectl denolith version"));
  assert(described("dump").includes("kubectl denolith dump --mask > denolith.tar.gz"));
  assert(described("dump").includes("denolith doctor --json"));
  assertEquals(required.map(({ id }) => id), ["data", "mode", "version", "platform", "happened", "dump"]);
});

Deno.test("forms and the text for pull requests name commands, tasks and files that there are", async () => {
  const pull = await Deno.readTextFile(`${ROOT}.github/PULL_REQUEST_TEMPLATE.md`);
  const wrong: string[] = [];
  for (
    const [file, text] of [...[...forms].map(([name, form]) => [name, textOf(form)] as const), ["pull", pull] as const]
  ) {
    for (const [, path, anchor] of text.matchAll(/\]\(([^)#]*)(#[^)]*)?\)/g)) {
      const local = path!.replace(/^\.\.\/blob\/main\//, "");
      const document = await Deno.readTextFile(`${ROOT}${local}`).catch(() => undefined);
      if (local === path || document === undefined) wrong.push(`${file}: ${path}`);
      else if (anchor !== undefined && !anchors(document).includes(anchor)) wrong.push(`${file}: ${path}${anchor}`);
    }
    for (const code of inlineCode(text)) {
      const command = /^(?:(kubectl) )?denolith ([\w-]+)(.*)/.exec(code);
      if (command !== null) wrong.push(...unknownIn(command).map((word) => `${file}: ${code}: ${word}`));
      const task = /\btask ([\w:]+)/.exec(code)?.[1];
      if (task !== undefined && !Object.hasOwn(manifest.tasks, task)) wrong.push(`${file}: ${code}`);
      if (/^(?:docs\/|[A-Z]+\.md$)/.test(code)) {
        await Deno.stat(`${ROOT}${code}`).catch(() => wrong.push(`${file}: ${code}`));
      }
    }
  }
  assertEquals(wrong, []);
});

/** Returns the words of a command that its program does not know. */
function unknownIn([, kubectl, subcommand, rest]: RegExpExecArray): string[] {
  const { commands } = kubectl === undefined ? DENOLITH : PLUGIN;
  const help = commands[subcommand!];
  if (help === undefined) return [subcommand!];
  const flags = rest!.split(" > ")[0]!.match(/--?[a-z][\w-]*/g) ?? [];
  const known = Object.entries(help.flags).flatMap(([name, { short }]) => [`--${name}`, `-${short}`]);
  return flags.filter((flag) => !known.includes(flag));
}
