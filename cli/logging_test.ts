import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { getLogger } from "@logtape/logtape";
import { StorageError } from "../base/error.ts";
import { collectPrinted } from "../tests/fake/subcommand.ts";
import { UsageError } from "./command_line.ts";
import { startLogging } from "./logging.ts";

Deno.test("startLogging() names the flag of a level or format that it does not know", async () => {
  await assertRejects(() => startLogging("loud", "text"), UsageError, '--log-level "loud": must be');
  await assertRejects(() => startLogging("info", "xml"), UsageError, '--log-format "xml": must be');
});

Deno.test("startLogging() prints what is important enough, as text or as a line of JSON", async () => {
  for (const format of ["text", "json"]) {
    await using printed = collectPrinted();
    await startLogging("warning", format);
    const log = getLogger(["denolith", "test"]);
    log.info("not important");
    log.warn("it failed", { error: new Error("no space"), tries: 2n });
    log.warn("it failed", { error: new StorageError("NoSpace", "not enough") });
    const [line, withReason, ...more] = printed.log;
    assertEquals(more, []);
    assertMatch(withReason!, format === "json" ? /"reason":"NoSpace"/ : /error="not enough" reason="NoSpace"$/);
    if (format === "json") assertEquals(JSON.parse(line!).message, "it failed");
    else assertEquals(line!.replace(/^\S+Z /, ""), 'warning test it failed error="no space" tries=2');
  }
});

Deno.test("startLogging() escapes all control characters, and those that reverse a text", async () => {
  const controls = "\x1b[2J\x9b31m\u202e\u2066\r\n\x7f";
  for (const format of ["text", "json"]) {
    await using printed = collectPrinted();
    await startLogging("warning", format);
    getLogger(["denolith", "test"]).warn("it failed", { error: new Error(`a${controls}b`), source: controls });
    const [line, ...more] = printed.log;
    assertEquals(more, []);
    assertMatch(line!, /^[\x20-\x7e]+$/);
    assertMatch(line!, /\\u001b\[2J\\u009b31m\\u202e\\u2066/);
  }
});
