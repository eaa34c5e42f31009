/**
 * What the client does when certificates are replaced while it runs: that of the authority, and its own.
 *
 * @module
 */

import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { TLSSocket } from "node:tls";
import { assertEquals, assertRejects } from "@std/assert";
import { things } from "../../tests/contract/api_suite.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { ApiError } from "./client.ts";
import type { ApiServer } from "./config.ts";
import { HttpClient } from "./http_client.ts";

const TLS = new URL("../../tests/fixtures/tls/", import.meta.url).pathname;
const OLD_SUBJECT = "denolith test client";
const NEW_SUBJECT = "denolith rotated test server and client";

function fixture(name: string): Promise<string> {
  return Deno.readTextFile(TLS + name);
}

/** Options of {@linkcode startServer}. */
interface ServerOptions {
  /** Name of the fixture that is its certificate. */
  readonly certificate: "server" | "rotated";
  /** Names of the fixtures of the authorities that may have signed the certificate of a client; none wanted without. */
  readonly clientAuthorities?: readonly string[];
  /** Returns whether the subject of a client's certificate is let in; everybody by default. */
  readonly accepts?: (subject: string) => boolean;
}

/** Starts an API server with one object, which records the subjects of the certificates of its clients. */
async function startServer({ certificate, clientAuthorities, accepts = () => true }: ServerOptions) {
  const subjects: string[] = [];
  const authorities = await Promise.all((clientAuthorities ?? []).map(fixture));
  const server = createServer({
    ...{ cert: await fixture(`${certificate}.crt`), key: await fixture(`${certificate}.key`) },
    ...(clientAuthorities === undefined ? {} : { ca: authorities, requestCert: true, rejectUnauthorized: true }),
  }, (request, response) => {
    const subject = String((request.socket as TLSSocket).getPeerCertificate()?.subject?.CN);
    subjects.push(subject);
    response.writeHead(accepts(subject) ? 200 : 401, { "content-type": "application/json" });
    response.end(JSON.stringify({ metadata: { name: "a" } }));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    subjects,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

/** Makes a folder with copies of fixtures, by the name of the copy. */
async function folderOf(files: Readonly<Record<string, string>>) {
  const path = await Deno.makeTempDir();
  const put = async (changes: Readonly<Record<string, string>>) => {
    for (const [name, source] of Object.entries(changes)) await Deno.copyFile(TLS + source, `${path}/${name}`);
  };
  await put(files);
  return { path, put, [Symbol.asyncDispose]: () => Deno.remove(path, { recursive: true }) };
}

function connect(server: ApiServer, clock = new FakeClock()): HttpClient {
  return new HttpClient(server, { userAgent: "denolith/test (certificates)", clock, timeoutMs: 10_000 });
}

const OLD_CLIENT = { "me.crt": "client.crt", "me.key": "client.key" };
const NEW_CLIENT = { "me.crt": "rotated.crt", "me.key": "rotated.key" };

Deno.test("HttpClient: after a handshake that failed, the authority's certificate is read again", async () => {
  await using server = await startServer({ certificate: "rotated" });
  await using folder = await folderOf({ "ca.crt": "ca.crt" });
  using client = connect({ url: server.url, ca: { file: `${folder.path}/ca.crt` } });
  const get = () => client.patch(things, { name: "a" }, { merge: {} });
  await assertRejects(get, ApiError, "certificate");
  await folder.put({ "ca.crt": "rotated-ca.crt" });
  assertEquals((await get()).metadata.name, "a");
});

Deno.test("HttpClient: after a handshake that failed, the client's certificate is read again", async () => {
  await using server = await startServer({ certificate: "server", clientAuthorities: ["rotated-ca.crt"] });
  await using folder = await folderOf(OLD_CLIENT);
  const [certificate, key] = ["me.crt", "me.key"].map((name) => ({ file: `${folder.path}/${name}` }));
  using client = connect({ url: server.url, ca: { file: `${TLS}ca.crt` }, certificate, key });
  const get = () => client.patch(things, { name: "a" }, { merge: {} });
  await assertRejects(get, ApiError);
  await folder.put(NEW_CLIENT);
  await get();
  assertEquals(server.subjects, [NEW_SUBJECT]);
});

Deno.test("HttpClient: after a request that was refused as unauthorized, the client's certificate is read again", async () => {
  const accepts = (subject: string) => subject === NEW_SUBJECT;
  const clientAuthorities = ["ca.crt", "rotated-ca.crt"];
  await using server = await startServer({ certificate: "server", clientAuthorities, accepts });
  await using folder = await folderOf(OLD_CLIENT);
  const [certificate, key] = ["me.crt", "me.key"].map((name) => ({ file: `${folder.path}/${name}` }));
  using client = connect({ url: server.url, ca: { file: `${TLS}ca.crt` }, certificate, key });
  const get = () => client.get(things, { name: "a" });
  assertEquals((await assertRejects(get, ApiError)).status, 401);
  assertEquals((await assertRejects(get, ApiError)).status, 401);
  await folder.put(NEW_CLIENT);
  await get();
  assertEquals(server.subjects, [OLD_SUBJECT, OLD_SUBJECT, NEW_SUBJECT]);
});

Deno.test("HttpClient: certificates are read again each minute, and used once they fit together", async () => {
  await using server = await startServer({ certificate: "server", clientAuthorities: ["ca.crt", "rotated-ca.crt"] });
  await using folder = await folderOf(OLD_CLIENT);
  const [certificate, key] = ["me.crt", "me.key"].map((name) => ({ file: `${folder.path}/${name}` }));
  const clock = new FakeClock();
  using client = connect({ url: server.url, ca: { file: `${TLS}ca.crt` }, certificate, key }, clock);
  const subjectOfRequest = async () => {
    await client.get(things, { name: "a" });
    return server.subjects.at(-1);
  };
  assertEquals(await subjectOfRequest(), OLD_SUBJECT);
  await folder.put({ "me.crt": "rotated.crt" });
  await clock.advance(59_999);
  assertEquals(await subjectOfRequest(), OLD_SUBJECT);
  await clock.advance(1);
  assertEquals(await subjectOfRequest(), OLD_SUBJECT); // the key is still the old one
  await folder.put({ "me.key": "rotated.key" });
  assertEquals(await subjectOfRequest(), NEW_SUBJECT);
});

Deno.test("HttpClient: the connection stays open when certificates that are read again are the same", async () => {
  await using server = await startServer({ certificate: "server" });
  const reasons: string[] = [];
  const clock = new FakeClock();
  const options = { userAgent: "denolith/test (certificates)", clock, onReconnect: (why: string) => reasons.push(why) };
  using client = new HttpClient({ url: server.url, ca: { file: `${TLS}ca.crt` } }, options);
  await client.get(things, { name: "a" });
  await clock.advance(60_000);
  await client.get(things, { name: "a" });
  assertEquals(reasons, []);
});

Deno.test("HttpClient: a certificate that does not belong to its key is an error of the request", async () => {
  await using folder = await folderOf({ "me.crt": "rotated.crt", "me.key": "client.key" });
  const [certificate, key] = ["me.crt", "me.key"].map((name) => ({ file: `${folder.path}/${name}` }));
  using client = connect({ url: "https://127.0.0.1:1", certificate, key });
  const get = () => client.patch(things, { name: "a" }, { merge: {} });
  await assertRejects(get, ApiError, "it does not belong to the client's key");
  await Deno.writeTextFile(`${folder.path}/me.crt`, (await fixture("client.crt")).slice(0, 200));
  await assertRejects(get, ApiError, "it or its key cannot be parsed");
});
