/** A command for {@linkcode callGuest}. */
export interface GuestCall {
  /** Lines for /bin/sh, which root runs. */
  readonly command: string;
  /** Its standard input; empty by default. */
  readonly stdin?: string | Uint8Array<ArrayBuffer>;
  /** The time limit in milliseconds, rounded up to seconds. Then the command is killed, and its status is 124. */
  readonly timeoutMs: number;
}

/** The exit status and the output of a command. */
export interface GuestAnswer {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** The time in milliseconds that the guest may take to answer beyond the command's time limit. */
const ANSWER_MARGIN_MS = 15_000;

/**
 * Runs a command in a guest by a port of this machine that leads to it (tests/rig/node/answer.sh answers there).
 *
 * @throws {Error} when the guest does not answer, as before it is up, or when it is switched off meanwhile
 */
export async function callGuest(port: number, call: GuestCall): Promise<GuestAnswer> {
  using connection = await Deno.connect({ hostname: "127.0.0.1", port });
  let isTimedOut = false;
  const timer = setTimeout(() => {
    isTimedOut = true;
    connection.close();
  }, call.timeoutMs + ANSWER_MARGIN_MS);
  try {
    const answer = await exchange(connection, encodeCall(call));
    if (answer === undefined) throw new Error("the guest ended the connection");
    return answer;
  } catch (cause) {
    const why = isTimedOut
      ? `no answer after ${(call.timeoutMs + ANSWER_MARGIN_MS) / 1000} s`
      : (cause as Error).message;
    throw new Error(`run a command in the guest: ${why}: ${call.command.slice(0, 200)}`, { cause });
  } finally {
    clearTimeout(timer);
  }
}

function encodeCall(call: GuestCall): Uint8Array {
  const encode = (text: string) => new TextEncoder().encode(text);
  const command = encode(call.command);
  const input = typeof call.stdin === "string" ? encode(call.stdin) : call.stdin ?? new Uint8Array();
  const head = encode(`${command.length} ${input.length} ${Math.ceil(call.timeoutMs / 1000)}\n`);
  return concat([head, command, input]);
}

/** Sends all bytes and reads the answer; undefined when the answer is incomplete. */
async function exchange(connection: Deno.Conn, bytes: Uint8Array): Promise<GuestAnswer | undefined> {
  for (let sent = 0; sent < bytes.length;) sent += await connection.write(bytes.subarray(sent));
  const chunks: Uint8Array[] = [];
  const buffer = new Uint8Array(65536);
  for (let count = await connection.read(buffer); count !== null; count = await connection.read(buffer)) {
    chunks.push(buffer.slice(0, count));
  }
  return parseAnswer(concat(chunks));
}

/** Takes an answer apart; undefined when it is not whole. */
export function parseAnswer(bytes: Uint8Array): GuestAnswer | undefined {
  const line = bytes.indexOf(10);
  const [code, out, err] = new TextDecoder().decode(bytes.subarray(0, Math.max(line, 0))).split(" ").map(Number);
  if (code === undefined || out === undefined || err === undefined) return undefined;
  const body = bytes.subarray(line + 1);
  if (body.length !== out + err) return undefined;
  const text = (part: Uint8Array) => new TextDecoder().decode(part);
  return { code, stdout: text(body.subarray(0, out)), stderr: text(body.subarray(out)) };
}

function concat(chunks: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.length, 0));
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}
