import { assertEquals, assertMatch } from "@std/assert";
import { Gate } from "./gate.ts";

const PORT = 4711;
const ORIGIN = `http://127.0.0.1:${PORT}`;

/** Returns a request as a browser sends it. */
function request(path: string, { method = "GET", host = `127.0.0.1:${PORT}`, cookie = "" } = {}): Request {
  return new Request(ORIGIN + path, { method, headers: { host, ...(cookie !== "" && { cookie }) } });
}

/** Opens a gate with its token. @returns the gate, and the cookie that it gave */
function opened() {
  const gate = new Gate(PORT);
  const token = new URL(gate.address).searchParams.get("token")!;
  const answer = gate.answer(request(`/?token=${token}`))!;
  return { gate, token, answer, cookie: answer.headers.get("set-cookie")!.split(";")[0]! };
}

Deno.test("Gate: the address has 128 random bits, and no two gates have the same", () => {
  const addresses = Array.from({ length: 5 }, () => new Gate(PORT).address);
  for (const address of addresses) assertMatch(address, /^http:\/\/127\.0\.0\.1:4711\/\?token=[0-9a-f]{32}$/);
  assertEquals(new Set(addresses).size, 5);
});

Deno.test("Gate: the token becomes a strict cookie at once, and the page's address has no token", () => {
  const { gate, answer, cookie } = opened();
  assertEquals([answer.status, answer.headers.get("location")], [303, "/"]);
  assertMatch(
    answer.headers.get("set-cookie")!,
    /^denolith-ui-4711=[0-9a-f]{32}; Path=\/; HttpOnly; SameSite=Strict$/,
  );
  assertEquals(gate.answer(request("/", { cookie })), undefined);
  assertEquals(gate.answer(request("/live/cluster", { cookie: `other=1; ${cookie}` })), undefined);
});

Deno.test("Gate: the token works once, and its cookie is another secret", () => {
  const { gate, token, cookie } = opened();
  assertEquals(cookie.includes(token), false);
  const second = gate.answer(request(`/?token=${token}`))!;
  assertEquals([second.status, second.headers.get("set-cookie")], [403, null]);
  const other = new URL(new Gate(PORT).address);
  assertEquals(new Gate(PORT).answer(request(`/${other.search}`))!.status, 403);
});

Deno.test("Gate: the browser that has the cookie may open the printed address again", () => {
  const { gate, cookie } = opened();
  const answer = gate.answer(request("/?token=whatever", { cookie }))!;
  assertEquals([answer.status, answer.headers.get("location"), answer.headers.get("set-cookie")], [303, "/", null]);
});

Deno.test("Gate: a request without the cookie, or with a wrong one, is refused", () => {
  const { gate, cookie } = opened();
  const wrong = [
    ...["", "denolith-ui-4711=", `${cookie}0`, cookie.slice(0, -1)],
    cookie.replace(/.$/, (last) => last === "0" ? "1" : "0"),
    cookie.replace("4711", "4712"),
    `x${cookie}`,
  ];
  for (const one of wrong) assertEquals(gate.answer(request("/", { cookie: one }))!.status, 403, one);
  assertEquals(gate.answer(request("/?token="))!.status, 403);
});

Deno.test("Gate: a name that leads to the loopback address is refused, also with the cookie (DNS rebinding)", () => {
  const { gate, cookie } = opened();
  for (const host of ["evil.example:4711", "127.0.0.1", "127.0.0.1:4712", "localhost:80", "127.0.0.1:4711.evil", ""]) {
    assertEquals(gate.answer(request("/", { host, cookie }))!.status, 421, host);
  }
  assertEquals(gate.answer(request("/", { host: "localhost:4711", cookie })), undefined);
});

Deno.test("Gate: nothing but GET and HEAD is let in, and HEAD does not use up the token", () => {
  const { gate, cookie } = opened();
  for (const method of ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"]) {
    const answer = gate.answer(request("/", { method, cookie }))!;
    assertEquals([answer.status, answer.headers.get("allow")], [405, "GET, HEAD"], method);
  }
  assertEquals(gate.answer(request("/", { method: "HEAD", cookie })), undefined);
  const fresh = new Gate(PORT);
  const path = fresh.address.slice(ORIGIN.length);
  assertEquals(fresh.answer(request(path, { method: "HEAD" }))!.status, 403);
  assertEquals(fresh.answer(request(path))!.status, 303);
});
