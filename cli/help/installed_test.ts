import { assert, assertEquals } from "@std/assert";
import { PLUGIN } from "../../plugin/subcommands.ts";
import { COMPLETE } from "./completion.ts";
import { DENOLITH } from "./denolith.ts";
import { installedFiles } from "./man.ts";

for (const program of [DENOLITH, PLUGIN]) {
  Deno.test(`the files of ${program.name} are where man, bash, zsh and fish look for them`, () => {
    const { executable } = program;
    const files = installedFiles(program, "1.2.3");
    assertEquals([...files.keys()], [
      `share/man/man1/${executable}.1`,
      `share/bash-completion/completions/${executable}`,
      `share/zsh/site-functions/_${executable}`,
      `share/fish/vendor_completions.d/${executable}.fish`,
    ]);
    for (const [path, text] of files) {
      assert(/[^\n]\n$/.test(text) && !/@[A-Z]+@/.test(text), path);
      assert(path.endsWith(".1") || (text.includes(COMPLETE) && text.includes(executable)), path);
    }
    assert(files.get(`share/zsh/site-functions/_${executable}`)!.startsWith(`#compdef ${executable}\n`));
  });
}
