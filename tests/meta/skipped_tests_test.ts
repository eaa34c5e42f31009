import { assert, assertEquals } from "@std/assert";
import { stub } from "@std/testing/mock";
import { contractTests } from "../contract/all.ts";
import { fakeHost, fakeMultiPvHost } from "../contract/helpers/fake_host.ts";
import { encryptedLayoutsContract } from "../contract/encrypted_layouts_suite.ts";
import { layoutSpaceContract } from "../contract/layout_space_suite.ts";
import { layoutsContract } from "../contract/layouts_suite.ts";
import { SKIPPED_PREFIXES } from "../lvm/helpers/skipped_tests.ts";

/** Returns the titles of the contract tests, without running them. */
function contractTitles(): string[] {
  const titles: string[] = [];
  const record = (title: string) => void titles.push(title);
  using _ = stub(Deno, "test", record as unknown as typeof Deno.test);
  contractTests(fakeHost);
  layoutsContract(fakeMultiPvHost);
  layoutSpaceContract(fakeMultiPvHost);
  encryptedLayoutsContract(fakeMultiPvHost);
  return titles;
}

Deno.test("each prefix of tests that test:lvm skips begins the title of a test", async () => {
  const titles = contractTitles();
  assert(titles.length > 100, "the test sees the titles");
  const texts = await Promise.all(
    ["sigkill", "power_cuts"].map((suite) => Deno.readTextFile(new URL(`../lvm/${suite}_suite.ts`, import.meta.url))),
  );
  const unused = SKIPPED_PREFIXES.filter((prefix) => !titles.some((title) => title.startsWith(prefix)));
  assertEquals(unused.filter((prefix) => !texts.join().includes(prefix.replace(/: [\w ]+$/, ": "))), []);
});
