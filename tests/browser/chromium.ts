/**
 * Chromium without a window, driven by its DevTools protocol
 * (https://chromedevtools.github.io/devtools-protocol).
 *
 * @module
 */

/** A key that is pressed, by its name in `KeyboardEvent.key`. */
export type Key = "Tab" | "Enter" | "Escape" | " ";

/** What is shown, and how. */
export interface View {
  readonly width: number;
  readonly height: number;
  readonly scheme?: "light" | "dark";
}

/** The time for a browser to start, and for a page to become what is awaited, in milliseconds. */
const WAIT_MS = 30_000;

/** The interval between two looks at a page, in milliseconds. */
const POLL_MS = 50;

/** An answer, or an event, of the protocol. */
interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly params?: Record<string, unknown>;
  readonly result?: unknown;
  readonly error?: { readonly message: string };
}

/** Returns the path of Chromium. @throws {Error} when it is not installed: nothing is skipped without it */
export async function findChromium(): Promise<string> {
  for (const path of ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"]) {
    if (await Deno.stat(path).then(({ isFile }) => isFile, () => false)) return path;
  }
  throw new Error(
    "find Chromium: it is not installed; `task test:browser` installs it on Debian: apt-get install chromium",
  );
}

/** A browser with one visible page. It ends, with its folder, when it is disposed of. */
export class Chromium implements AsyncDisposable {
  readonly #process: Deno.ChildProcess;
  readonly #folder: string;
  readonly #socket: WebSocket;
  readonly #answers = new Map<number, PromiseWithResolvers<unknown>>();
  #session = "";
  #lastId = 0;
  /** The addresses that the page asked for. */
  readonly requests: string[] = [];
  /** What the page wrote on its console, and the errors in it. */
  readonly complaints: string[] = [];

  private constructor(process: Deno.ChildProcess, folder: string, socket: WebSocket) {
    this.#process = process;
    this.#folder = folder;
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) => this.#take(JSON.parse(data)));
  }

  /** Starts a browser. */
  static async start(): Promise<Chromium> {
    const folder = await Deno.makeTempDir({ prefix: "denolith-chromium-" });
    const args = [
      ...["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"],
      ...["--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--mute-audio"],
      ...["--remote-debugging-port=0", `--user-data-dir=${folder}`, "about:blank"],
    ];
    const process = new Deno.Command(await findChromium(), { args, stdin: "null", stdout: "null", stderr: "null" })
      .spawn();
    const [port, path] = (await waitFor("the browser's start", async () => {
      const text = await Deno.readTextFile(`${folder}/DevToolsActivePort`).catch(() => "");
      return text.includes("/") ? text : undefined;
    })).split("\n");
    const socket = new WebSocket(`ws://127.0.0.1:${port}${path}`);
    await new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onerror = () => reject(new Error("connect to Chromium: failed"));
    });
    const browser = new Chromium(process, folder, socket);
    await browser.newTab();
    return browser;
  }

  /** Opens a tab before those that there are: everything goes to it. */
  async newTab(): Promise<void> {
    this.#session = "";
    const { targetId } = await this.#send<{ targetId: string }>("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.#send<{ sessionId: string }>("Target.attachToTarget", { targetId, flatten: true });
    this.#session = sessionId;
    for (const domain of ["Page", "Runtime", "Network", "Log"]) await this.#send(`${domain}.enable`);
  }

  #take({ id, method, params = {}, result, error }: Message): void {
    if (id !== undefined) {
      const answer = this.#answers.get(id);
      this.#answers.delete(id);
      if (error === undefined) answer?.resolve(result);
      else answer?.reject(new Error(`Chromium: ${error.message}`));
    }
    if (method === "Network.requestWillBeSent") this.requests.push((params["request"] as { url: string }).url);
    if (method === "Runtime.exceptionThrown" || method === "Log.entryAdded" || method === "Runtime.consoleAPICalled") {
      this.complaints.push(JSON.stringify(params));
    }
  }

  #send<R = unknown>(method: string, params: object = {}): Promise<R> {
    const id = ++this.#lastId;
    const answer = Promise.withResolvers<unknown>();
    this.#answers.set(id, answer);
    const session = this.#session === "" ? {} : { sessionId: this.#session };
    this.#socket.send(JSON.stringify({ id, method, params, ...session }));
    return answer.promise as Promise<R>;
  }

  /** Sets the size of the page and its colours. */
  async view({ width, height, scheme = "light" }: View): Promise<void> {
    const metrics = { width, height, deviceScaleFactor: 1, mobile: width < 600 };
    await this.#send("Emulation.setDeviceMetricsOverride", metrics);
    const features = [{ name: "prefers-color-scheme", value: scheme }];
    await this.#send("Emulation.setEmulatedMedia", { features });
  }

  /** Opens an address, and waits until it is loaded. */
  async open(url: string): Promise<void> {
    await this.#send("Page.navigate", { url });
    await this.until("document.readyState === 'complete'");
  }

  /** Returns the value of an expression in the page. @throws {Error} that the page throws */
  async evaluate<R>(expression: string): Promise<R> {
    const { result, exceptionDetails } = await this.#send<
      { result: { value: R }; exceptionDetails?: { text: string; exception?: { description?: string } } }
    >("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails === undefined) return result.value;
    throw new Error(`in the page: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
  }

  /** Waits until an expression is true in the page. @throws {Error} when it does not become so */
  async until(expression: string, waitMs: number = WAIT_MS): Promise<void> {
    const isTrue = () => this.evaluate<boolean>(`Boolean(${expression})`).catch(() => false);
    await waitFor(expression, async () => await isTrue() || undefined, waitMs);
  }

  /** Presses a key, as a person does. */
  async press(key: Key, { shift = false } = {}): Promise<void> {
    const codes = { Tab: 9, Enter: 13, Escape: 27, " ": 32 };
    const event = {
      key,
      code: key === " " ? "Space" : key,
      windowsVirtualKeyCode: codes[key],
      modifiers: shift ? 8 : 0,
    };
    const text = key === "Enter" ? { text: "\r" } : key === " " ? { text: " " } : {};
    await this.#send("Input.dispatchKeyEvent", { type: "keyDown", ...event, ...text });
    await this.#send("Input.dispatchKeyEvent", { type: "keyUp", ...event });
  }

  /** Types a text into the element with the focus. */
  async type(text: string): Promise<void> {
    await this.#send("Input.insertText", { text });
  }

  /** Returns a picture of what is visible, as PNG. */
  async picture(): Promise<Uint8Array> {
    const { data } = await this.#send<{ data: string }>("Page.captureScreenshot", {
      format: "png",
      optimizeForSpeed: false,
    });
    return Uint8Array.fromBase64(data);
  }

  /** Implements {@linkcode AsyncDisposable}. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#session = "";
    const closed = new Promise((resolve) => this.#socket.onclose = resolve);
    await this.#send("Browser.close").catch(() => undefined);
    await closed;
    await this.#process.status;
    await Deno.remove(this.#folder, { recursive: true });
  }
}

/** Waits until a function returns something. @throws {Error} when it does not in that time */
async function waitFor<R>(what: string, look: () => Promise<R | undefined>, waitMs: number = WAIT_MS): Promise<R> {
  for (const end = Date.now() + waitMs; Date.now() < end;) {
    const found = await look();
    if (found !== undefined) return found;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  throw new Error(`wait for ${what}: it did not happen within ${waitMs / 1_000} s`);
}
