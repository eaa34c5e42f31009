/**
 * PostgreSQL, whose volume is moved to another node and back while a client writes into it. The suite runs in a cluster of its
 * own, with transfers on.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { moveClaim } from "./helpers/move_helpers.ts";
import { checkDatabase, createLog, PostgresqlClient, query, SERVER, serverOf } from "./helpers/postgresql.ts";
import { isRunning } from "./helpers/objects.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { COPY_NODE, createClasses, SOURCE_NODE } from "./helpers/transfer_helpers.ts";

/** The size of the volume. */
const SIZE = "420Mi";

/** The rows that are committed before and after each move, at least. */
const ROWS = 100;

Deno.test("PostgreSQL is moved to the other node and back, and loses no row that it reported as committed", async () => {
  await using ns = await TestNamespace.open("move-postgresql");
  const classes = await createClasses(ns);
  await ns.createClaim({ name: "data", class: classes.thick, size: SIZE });
  await ns.apply(serverOf("data"));
  const { spec } = await ns.waitForRunning(SERVER);
  await createLog(ns);
  const client = new PostgresqlClient(ns);
  const path = spec!.nodeName === SOURCE_NODE ? [COPY_NODE, SOURCE_NODE] : [SOURCE_NODE, COPY_NODE];
  {
    await using _client = client;
    await client.waitForCommits(ROWS);
    for (const to of path) {
      client.longestGapMs = 0;
      const { state, downtimeSeconds } = await moveClaim(ns, "data", to);
      assertEquals(state, "Complete");
      await ns.waitFor("Pod", SERVER, (pod) => isRunning(pod) && pod?.spec?.nodeName === to, `runs on ${to}`);
      await client.waitForCommits(ROWS);
      const seconds = (client.longestGapMs / 1000).toFixed(1);
      console.error(
        `${SIZE} to ${to}: nobody could use the volume for ${downtimeSeconds} s; no commit for ${seconds} s`,
      );
    }
  }
  const rows = new Set((await query(ns, "select n from log")).split("\n"));
  const lost = [...client.committed].filter((number) => !rows.has(number));
  assertEquals(lost, [], `${lost.length} of ${client.committed.size} rows are lost`);
  assert(client.committed.size >= 3 * ROWS);
  assertEquals(
    await query(ns, "select count(*) from log where digest <> md5(n::text) or more <> repeat(digest, 8)"),
    "0",
  );
  const checked = await checkDatabase(ns);
  assertMatch(checked, /^Bad checksums: +0$/m);
  console.error(
    `${client.committed.size} rows committed, ${rows.size} found; ${checked.trim().replaceAll("\n", ", ")}`,
  );
  await ns.kubectl("delete", "statefulset", "store");
  await ns.deleteAndWait("PersistentVolumeClaim", "data");
  await ns.waitForCleanup();
});
