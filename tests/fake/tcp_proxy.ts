/**
 * A TCP proxy that can simulate network faults: it forwards a loopback port to another port of this machine.
 *
 * @module
 */

/** A TCP proxy. It is closed when it is disposed of. */
export class TcpProxy implements AsyncDisposable {
  readonly #target: Deno.ConnectOptions;
  readonly #connections = new Set<Deno.TcpConn>();
  readonly #tasks = new Set<Promise<void>>();
  readonly #port: number;
  #listener: Deno.TcpListener | undefined;
  #thawed: PromiseWithResolvers<void> | undefined;

  /** Creates a proxy to the port of a URL. */
  constructor(url: string) {
    this.#target = { hostname: "127.0.0.1", port: Number(new URL(url).port) };
    this.#listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    this.#port = this.#listener.addr.port;
    this.#track(this.#accept(this.#listener));
  }

  /** Returns the same URL through the proxy. */
  urlThrough(url: string): string {
    const proxied = new URL(url);
    proxied.port = `${this.#port}`;
    return proxied.href.replace(/\/$/, "");
  }

  /** The number of open connections. */
  get connections(): number {
    return this.#connections.size / 2;
  }

  /** Closes all connections; new ones are let through. */
  resetConnections(): void {
    for (const connection of [...this.#connections]) this.#close(connection);
  }

  /** Drops all data in both directions without an error, also on new connections. */
  freeze(): void {
    this.#thawed ??= Promise.withResolvers<void>();
  }

  /** Forwards connections that were opened while it was frozen, and closes those from before: their data is lost. */
  thaw(): void {
    const thaw = this.#thawed;
    this.#thawed = undefined;
    this.resetConnections();
    thaw?.resolve();
  }

  /** Refuses new connections, and closes those there are. */
  refuse(): void {
    this.#listener?.close();
    this.#listener = undefined;
    this.resetConnections();
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
    while (this.#tasks.size > 0) await Promise.all(this.#tasks);
  }

  #track(work: Promise<void>): void {
    const tracked: Promise<void> = work.finally(() => this.#tasks.delete(tracked));
    this.#tasks.add(tracked);
  }

  async #accept(listener: Deno.TcpListener): Promise<void> {
    try {
      for await (const downstream of listener) this.#track(this.#forward(downstream));
    } catch {
      // The listener was closed.
    }
  }

  async #forward(downstream: Deno.TcpConn): Promise<void> {
    this.#connections.add(downstream);
    try {
      const upstream = await Deno.connect(this.#target);
      if (!this.#connections.has(downstream)) return upstream.close();
      this.#connections.add(upstream);
      for (const connection of [downstream, upstream]) connection.setNoDelay();
      await Promise.all([this.#pipe(downstream, upstream), this.#pipe(upstream, downstream)]);
    } catch {
      this.#close(downstream);
    }
  }

  async #pipe(from: Deno.TcpConn, to: Deno.TcpConn): Promise<void> {
    const buffer = new Uint8Array(16_384);
    try {
      while (true) {
        const count = await from.read(buffer);
        if (count === null) break;
        if (this.#thawed !== undefined) await this.#thawed.promise;
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
