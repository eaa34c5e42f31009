import { assertEquals, assertThrows } from "@std/assert";
import { namedTemplates, renderTemplate } from "./template.ts";

const DATA = {
  Values: { name: "denolith", empty: "", no: false, list: ["a", "b"], none: [], map: { b: 1, a: ["x", { z: "1" }] } },
  Has: (version: string) => version === "v1",
};

Deno.test.each([
  ["{{ .Values.name }}", "denolith"],
  ["{{ .Values.map.b }}", "1"],
  ["[{{ .Values.absent }}]", "[]"],
  ["{{ .Values.no }}", "false"],
  ["a \n {{- .Values.name }}\nb", "adenolith\nb"],
  ["a\n{{ .Values.name -}}\n b", "a\ndenolithb"],
  ["a{{/* not shown */}}b", "ab"],
  ["{{ .Values.name | quote }}", '"denolith"'],
  ["{{ if or .Values.no .Values.list }}yes{{ end }}", "yes"],
  ["{{ if or .Values.no .Values.none }}yes{{ end }}", ""],
  ["{{ .Values.empty | default .Values.name }}", "denolith"],
  ['{{ .Values.name | default "other" | replace "o" "0" }}', "den0lith"],
  ['{{ join "," .Values.list }}', "a,b"],
  ['{{ .Values.name | replace "lith" "" }}', "deno"],
  ["{{ toYaml .Values.map | nindent 2 }}", '\n  b: 1\n  a:\n    - x\n    - z: "1"'],
  ["{{ toYaml .Values.none }}", "[]"],
  ['{{ dig "b" 2 .Values.map }}{{ dig "c" 2 .Values.map }}', "12"],
  ['{{ dig "no" true .Values }}', "false"],
  ["{{ if .Values.name }}yes{{ end }}", "yes"],
  ["{{ if .Values.none }}yes{{ end }}", ""],
  ["{{ if .Values.no }}yes{{ end }}", ""],
  ['{{ if and .Values.name (.Has "v1") }}yes{{ end }}', "yes"],
  ['{{ if and .Values.name (.Has "v2") }}yes{{ end }}', ""],
  ["{{ with .Values.map }}{{ .b }} of {{ $.Values.name }}{{ end }}", "1 of denolith"],
  ["{{ with .Values.empty }}never{{ end }}", ""],
  ["{{ range .Values.list }}<{{ . }}{{ if . }}!{{ end }}>{{ end }}", "<a!><b!>"],
  ["{{ range .Values.none }}x{{ end }}", ""],
])("renderTemplate() makes of %s what Helm does", (template: string, text: string) => {
  assertEquals(renderTemplate(template, DATA), text);
});

Deno.test("renderTemplate() includes named templates, with their argument as their data", () => {
  const named = namedTemplates(
    'a comment\n{{- define "x" -}}\nname: {{ .Values.name }}{{ $.Values.empty }}\n{{- end }}\n',
  );
  assertEquals([...named.keys()], ["x"]);
  assertEquals(
    renderTemplate('{{ with .Values.map }}{{ include "x" $ | nindent 2 }}{{ end }}', DATA, named),
    "\n  name: denolith",
  );
});

Deno.test.each([
  ['{{ include "x" . }}', "there is no such template"],
  ["{{ $x := 1 }}", "not known here"],
  ["{{ if .Values.name }}yes{{ else }}no{{ end }}", "else: not known here"],
  ["{{ .Values.absent.name }}", "nothing that could have a field name"],
  ["{{ .Values.map }}", "use toYaml"],
  ["{{ if .Values.name }}", "it has no end"],
  ["{{ end }}", "no block was opened"],
  ["{{ .Values.name 1 }}", "followed by arguments"],
  ["{{ trim (.Values.name }}", "not closed"],
])("renderTemplate() refuses %s", (template: string, message: string) => {
  assertThrows(() => renderTemplate(template, DATA), Error, message);
});
