import { assert, assertEquals, assertMatch, assertRejects, assertThrows } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { chapterText } from "../runbooks.ts";
import { FILES } from "./files.ts";
import { type Follow, SECURITY_HEADERS, servePage } from "./server.ts";

/** Serves a page, and opens it as a browser does. */
async function setUp(follow: Follow = () => Promise.resolve()) {
  const end = new AbortController();
  const asked: string[] = [];
  const volume = (id: string): Follow => {
    asked.push(id);
    return follow;
  };
  const claim = (namespace: string, name: string) => volume(`${namespace}/${name}`);
  const server = servePage({ source: { cluster: follow, volume, claim }, port: 0, signal: end.signal });
  const { origin } = new URL(server.address);
  const opened = await fetch(server.address, { redirect: "manual" });
  await opened.body?.cancel();
  const cookie = opened.headers.get("set-cookie")!.split(";")[0]!;
  return {
    ...{ server, asked, opened, end, origin },
    get: (path: string, init: RequestInit = {}) => fetch(origin + path, { ...init, headers: { cookie } }),
    async [Symbol.asyncDispose]() {
      end.abort();
      await server.finished;
    },
  };
}

Deno.test("servePage() listens on the loopback address only, and ends with its signal", async () => {
  await using s = await setUp();
  assertMatch(s.server.address, /^http:\/\/127\.0\.0\.1:\d+\/\?token=/);
  const port = Number(new URL(s.origin).port);
  assertThrows(
    () =>
      servePage({
        source: {
          cluster: () => Promise.resolve(),
          volume: () => () => Promise.resolve(),
          claim: () => () => Promise.resolve(),
        },
        port,
        signal: s.end.signal,
      }),
    StorageError,
    "is in use: choose another one",
  );
});

Deno.test("servePage(): every answer, also a refusal, has the headers that shut everything else out", async () => {
  await using s = await setUp();
  const answers = [s.opened, ...await Promise.all(["/", "/main.js", "/nothing"].map((path) => s.get(path)))];
  answers.push(await fetch(s.origin), await s.get("/", { method: "POST" }), await s.get("/", { method: "HEAD" }));
  assertEquals(answers.map(({ status }) => status), [303, 200, 200, 404, 403, 405, 200]);
  for (const { headers, body } of answers) {
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) assertEquals(headers.get(name), value, name);
    await body?.cancel();
  }
  assertEquals(Object.keys(SECURITY_HEADERS), [
    ...["content-security-policy", "cross-origin-embedder-policy", "cross-origin-opener-policy"],
    ...["cross-origin-resource-policy", "referrer-policy", "x-content-type-options", "cache-control"],
  ]);
  const policy = SECURITY_HEADERS["content-security-policy"]!;
  assertMatch(policy, /^default-src 'none'; /);
  assert(!/unsafe|\*|http|data:/.test(policy), policy);
  assertMatch(policy, /frame-ancestors 'none'.*require-trusted-types-for 'script'/);
});

Deno.test("servePage(): the Host header of a connection decides, not the address", async () => {
  await using s = await setUp();
  using connection = await Deno.connect({ hostname: "127.0.0.1", port: Number(new URL(s.origin).port) });
  await connection.write(new TextEncoder().encode("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"));
  assertMatch(await new Response(connection.readable).text(), /^HTTP\/1\.1 421 /);
});

Deno.test("servePage(): another address of this machine leads nowhere", async () => {
  await using s = await setUp();
  const elsewhere = { hostname: "127.0.0.2", port: Number(new URL(s.origin).port) };
  await assertRejects(() => Deno.connect(elsewhere), Deno.errors.ConnectionRefused);
});

Deno.test("servePage(): a stream has one line for each message, sizes as numbers, and ends with its reader", async () => {
  const ended = Promise.withResolvers<void>();
  await using s = await setUp((send, signal) => {
    send({ size: 1n << 40n, name: "line\nfeed" });
    signal.addEventListener("abort", () => ended.resolve());
    return ended.promise;
  });
  const { headers, body } = await s.get("/live/cluster");
  assertEquals(headers.get("content-type"), "text/event-stream; charset=utf-8");
  const reader = body!.pipeThrough(new TextDecoderStream()).getReader();
  assertEquals((await reader.read()).value, 'data: {"size":1099511627776,"name":"line\\nfeed"}\n\n');
  await reader.cancel();
  await ended.promise;
});

Deno.test("servePage(): a stream ends with the server", async () => {
  await using s = await setUp(async (send, signal) => {
    send({});
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
  });
  const { body } = await s.get("/live/volumes/v1-abc");
  assertEquals(s.asked, ["v1-abc"]);
  const text = new Response(body).text().catch(() => "");
  s.end.abort();
  await text;
});

Deno.test("servePage() has ended only with what a stream still reads, also one whose reader has left", async () => {
  const { promise: read, resolve: endRead } = Promise.withResolvers<void>();
  await using s = await setUp(async (send) => {
    send({});
    await read;
  });
  await (await s.get("/live/cluster")).body!.cancel();
  s.end.abort();
  let isFinished = false;
  const finished = s.server.finished.then(() => isFinished = true);
  await new Promise((resolve) => setTimeout(resolve, 50));
  assertEquals(isFinished, false);
  endRead();
  await finished;
});

Deno.test("servePage(): HEAD starts no stream, and a path that is none of a volume leads nowhere", async () => {
  await using s = await setUp(() => {
    throw new Error("started");
  });
  assertEquals((await s.get("/live/cluster", { method: "HEAD" })).status, 200);
  const volumes = ["/live/volumes/", "/live/volumes/a%2fb", "/live/volumes/a/b"];
  const claims = ["/live/claims/", "/live/claims/shop", "/live/claims/shop/a/b", "/live/claims/shop%2fa"];
  for (const path of [...volumes, ...claims, "/../deno.json", "/constructor"]) {
    const answer = await s.get(path);
    await answer.body?.cancel();
    assertEquals(answer.status, 404, path);
  }
});

Deno.test("servePage(): a claim has its namespace in its path", async () => {
  await using s = await setUp();
  const answer = await s.get("/live/claims/shop/data-db-0.x");
  assertEquals([answer.status, answer.headers.get("content-type")], [200, "text/event-stream; charset=utf-8"]);
  await answer.body?.cancel();
  assertEquals(s.asked, ["shop/data-db-0.x"]);
});

Deno.test("servePage() has the chapters of the runbooks as plain text", async () => {
  await using s = await setUp();
  const answer = await s.get("/runbooks/move/turn-transfers-on");
  assertEquals(answer.headers.get("content-type"), "text/plain; charset=utf-8");
  assertEquals(await answer.text(), `${chapterText("move/turn-transfers-on")}\n`);
  for (const path of ["/runbooks/", "/runbooks/nothing", "/runbooks/../main.js%00"]) {
    const { status, body } = await s.get(path);
    await body?.cancel();
    assertEquals(status, 404, path);
  }
});

Deno.test("the files of the page are all that its folder has, and ask no other host", async () => {
  const folder = new URL("page/", import.meta.url);
  const names = [...Deno.readDirSync(folder)].map(({ name }) => name).filter((name) => name !== "deno.json");
  assertEquals(Object.keys(FILES).toSorted(), names.map((name) => name === "index.html" ? "/" : `/${name}`).toSorted());
  for (const [path, { text }] of Object.entries(FILES)) {
    const name = path === "/" ? "index.html" : path.slice(1);
    assertEquals(text, await Deno.readTextFile(new URL(name, folder)), path);
    assert(!/https?:\/\/(?!www\.w3\.org\/2000\/svg)|url\(/.test(text), path);
    // what Trusted Types would refuse, and what the policy would
    assert(
      !/innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\son\w+="|style="/.test(text),
      path,
    );
  }
});
