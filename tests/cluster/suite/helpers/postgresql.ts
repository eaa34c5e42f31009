/**
 * PostgreSQL in a pod, with checksums of its pages, and a client that writes rows into it and knows which are committed.
 *
 * @module
 */

import { pollUntil } from "../../../rig/poll_until.ts";
import { POSTGRESQL_IMAGE, POSTGRESQL_USER } from "../../../rig/postgresql_image.ts";
import { WAIT_MS } from "./object_watcher.ts";
import { statefulSetObject } from "./objects.ts";
import type { TestNamespace } from "./test_namespace.ts";

/** The pod with the server. */
export const SERVER = "store-0";

const [DATA, AS_USER] = [
  "/data/pg",
  `setpriv --reuid=${POSTGRESQL_USER.id} --regid=${POSTGRESQL_USER.id} --clear-groups`,
];

/**
 * Makes the database at the first start, and runs the server until it ends. The pod stays then, so that its files can be checked.
 * The shell does not pass SIGTERM on: whoever ends the pod kills the server.
 */
const SERVE = `export LC_ALL=C
if [ ! -e ${DATA}/ready ]; then
  mkdir -p ${DATA} && chown ${POSTGRESQL_USER.id} ${DATA} || exit 1
  ${AS_USER} initdb -D ${DATA} --data-checksums -U postgres --locale=C -E UTF8 --auth=trust || exit 1
  ${AS_USER} sh -c ': > ${DATA}/ready' || exit 1
fi
${AS_USER} postgres -D ${DATA} -c listen_addresses= -c unix_socket_directories=/tmp -c shared_buffers=16MB -c jit=off
exec sleep 1000000`;

const PSQL = "psql -h /tmp -U postgres -v ON_ERROR_STOP=1 -At";

/** Inserts the next number, with a digest of it and some more. */
const INSERT = `insert into log select n, md5(n::text), repeat(md5(n::text), 8) from nextval('numbers') n returning n;`;

/** Returns a StatefulSet of one server, whose database is in a claim. */
export function serverOf(claimName: string) {
  const volumeMounts = [{ name: "data", mountPath: "/data" }];
  const readinessProbe = {
    exec: { command: ["sh", "-c", `${PSQL} -c 'select 1'`] },
    periodSeconds: 1,
    timeoutSeconds: 5,
  };
  const container = { image: POSTGRESQL_IMAGE, command: ["sh", "-c", SERVE], volumeMounts, readinessProbe };
  return statefulSetObject({ container, data: claimName });
}

/** Runs SQL. @returns what psql prints @throws {Error} when it fails */
export async function query(ns: TestNamespace, sql: string): Promise<string> {
  return (await ns.exec(SERVER, `${PSQL} -c "${sql}"`)).trim();
}

/** Makes the tables. */
export async function createLog(ns: TestNamespace): Promise<void> {
  await query(ns, "create table log (n bigint primary key, digest text, more text)");
  await query(ns, "create sequence numbers");
  await query(ns, "create extension amcheck");
}

/**
 * Checks the tables and indexes, and, after a shutdown, the checksums of all pages.
 *
 * @returns what pg_checksums prints
 * @throws {Error} when something is damaged
 */
export async function checkDatabase(ns: TestNamespace): Promise<string> {
  const all = "from pg_class c join pg_am a on a.oid = c.relam";
  await query(ns, `select bt_index_check(c.oid, true) ${all} where amname = 'btree' and relkind = 'i'`);
  const damage = await query(ns, `select c.relname, v.* ${all}, verify_heapam(c.oid) v where amname = 'heap'`);
  if (damage !== "") throw new Error(`check the database: ${damage}`);
  await ns.exec(SERVER, `${AS_USER} pg_ctl -D ${DATA} -m fast stop`);
  return await ns.exec(SERVER, `${AS_USER} pg_checksums --check -D ${DATA}`);
}

/** A client that inserts one row after the other, wherever the server is. */
export class PostgresqlClient implements AsyncDisposable {
  readonly #ns: TestNamespace;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;
  /** The numbers that the server has reported as committed. */
  readonly committed = new Set<string>();
  /** The longest time between two commits, in milliseconds, since it was last set to 0. */
  longestGapMs = 0;
  #lastAt = performance.now();

  constructor(ns: TestNamespace) {
    this.#ns = ns;
    this.#running = this.#run();
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await this.#insert().catch(() => {}); // the server is away
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }

  /** Inserts rows until the connection ends. */
  async #insert(): Promise<void> {
    const { kubeconfig, programs } = this.#ns.cluster.controlPlane;
    const child = new Deno.Command(programs.kubectl, {
      args: [
        ...["--namespace", this.#ns.namespace, "exec", SERVER, "--", "sh", "-c"],
        `yes "${INSERT}" | ${PSQL}`,
      ],
      env: { KUBECONFIG: kubeconfig },
      stdin: "null",
      stdout: "piped",
      stderr: "null",
      signal: this.#stop.signal,
    }).spawn();
    let rest = "";
    for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + text).split("\n");
      rest = lines.pop()!;
      for (const line of lines) if (/^\d+$/.test(line)) this.#note(line);
    }
    await child.status;
  }

  #note(number: string): void {
    const now = performance.now();
    this.longestGapMs = Math.max(this.longestGapMs, now - this.#lastAt);
    this.#lastAt = now;
    this.committed.add(number);
  }

  /** Waits until further rows are committed. @throws {Error} when they are not */
  async waitForCommits(count: number): Promise<void> {
    const goal = this.committed.size + count;
    const isReached = () => Promise.resolve(this.committed.size >= goal);
    await pollUntil(isReached, { action: `wait for ${count} commits`, timeoutMs: WAIT_MS, intervalMs: 100 });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }
}
