/**
 * A stretch of network that can be cut: it listens on a loopback port and passes on what comes, to another port of this machine.
 *
 * @module
 */

/** A stretch of network. It is gone when it is disposed of. */
export class FakeNetwork implements AsyncDisposable {
  readonly #to: Deno.ConnectOptions;
  readonly #connections = new Set<Deno.TcpConn>();
  readonly #work = new Set<Promise<void>>();
  readonly #port: number;
  #listener: Deno.TcpListener | undefined;
  #thaw: PromiseWithResolvers<void> | undefined;

  /** Leads to the port of a URL. */
  constructor(url: string) {
    this.#to = { hostname: "127.0.0.1", port: Number(new URL(url).port) };
    this.#listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    this.#port = this.#listener.addr.port;
    this.#track(this.#accept(this.#listener));
  }

  /** The same URL by way of this stretch. */
  by(url: string): string {
    const there = new URL(url);
    there.port = `${this.#port}`;
    return there.href.replace(/\/$/, "");
  }

  /** How many connections go through. */
  get connections(): number {
    return this.#connections.size / 2;
  }

  /** Closes all connections; new ones are let through. */
  cut(): void {
    for (const connection of [...this.#connections]) this.#close(connection);
  }

  /** Swallows everything, in both directions, and tells no one; also on new connections. */
  freeze(): void {
    this.#thaw ??= Promise.withResolvers<void>();
  }

  /** Has connections work that were made while it was frozen, and cuts those from before: their bytes are lost. */
  thaw(): void {
    const thaw = this.#thaw;
    this.#thaw = undefined;
    this.cut();
    thaw?.resolve();
  }

  /** Refuses new connections, and closes those there are. */
  refuse(): void {
    this.#listener?.close();
    this.#listener = undefined;
    this.cut();
  }

  /** Lets connections through again. */
  allow(): void {
    if (this.#listener !== undefined) return;
    this.#listener = Deno.listen({ hostname: "127.0.0.1", port: this.#port });
    this.#track(this.#accept(this.#listener));
  }

  /** Closes everything. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.refuse();
    this.thaw();
    while (this.#work.size > 0) await Promise.all(this.#work);
  }

  #track(work: Promise<void>): void {
    const tracked: Promise<void> = work.finally(() => this.#work.delete(tracked));
    this.#work.add(tracked);
  }

  async #accept(listener: Deno.TcpListener): Promise<void> {
    try {
      for await (const near of listener) this.#track(this.#join(near));
    } catch {
      // The listener was closed.
    }
  }

  async #join(near: Deno.TcpConn): Promise<void> {
    this.#connections.add(near);
    try {
      const far = await Deno.connect(this.#to);
      if (!this.#connections.has(near)) return far.close();
      this.#connections.add(far);
      await Promise.all([this.#pass(near, far), this.#pass(far, near)]);
    } catch {
      this.#close(near);
    }
  }

  async #pass(from: Deno.TcpConn, to: Deno.TcpConn): Promise<void> {
    const buffer = new Uint8Array(16_384);
    try {
      while (true) {
        const count = await from.read(buffer);
        if (count === null) break;
        if (this.#thaw !== undefined) await this.#thaw.promise;
        for (let sent = 0; sent < count;) sent += await to.write(buffer.subarray(sent, count));
      }
    } catch {
      // One of the two was closed; so is the other.
    }
    this.#close(from);
    this.#close(to);
  }

  #close(connection: Deno.TcpConn): void {
    if (this.#connections.delete(connection)) connection.close();
  }
}
