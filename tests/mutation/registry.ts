/**
 * Runs tests in this process, as often as needed: in the place of `deno test`, which runs each test once.
 *
 * @module
 */

// Tests replace these for a while.
const { setTimeout, setInterval, clearInterval } = globalThis;
const now = performance.now.bind(performance);

/** A registered test. */
export interface RegisteredTest {
  readonly name: string;
  readonly file: string;
  readonly isIgnored: boolean;
  readonly fn: (context: Deno.TestContext) => unknown;
}

/** What came of a run of a test. */
export interface TestOutcome {
  /** Why the test failed, if it did. */
  readonly failure?: string;
  /** Whether it did not end in time. */
  readonly isTimeout: boolean;
  /** Whether it left resources open. */
  readonly leaks: boolean;
  /** Its time in milliseconds. */
  readonly ms: number;
}

/** How often the limit of a test is looked at, in milliseconds. */
const TICK_MS = 100;

/**
 * The limit of a test. It counts ticks instead of the time that has passed: a process that gets no processor time for a
 * while has fewer, so a test on a busy machine gets longer.
 */
class Limit implements Disposable {
  readonly exceeded: Promise<"timeout">;
  readonly #timer: ReturnType<typeof setInterval>;

  constructor(limitMs: number) {
    const { promise, resolve } = Promise.withResolvers<"timeout">();
    let left = Math.ceil(limitMs / TICK_MS);
    this.#timer = setInterval(() => --left === 0 && resolve("timeout"), TICK_MS);
    this.exceeded = promise;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}

/** The tests of loaded files, in the order of their registration. */
export class TestRegistry {
  readonly #byFile = new Map<string, RegisteredTest[]>();
  #loading: RegisteredTest[] = [];
  #file = "";
  #unhandled: string | undefined;

  /** Replaces `Deno.test`, and catches what no test catches. */
  install(): void {
    const register = (...args: unknown[]) => this.#register(args);
    const each = (rows: readonly unknown[]) => (name: string, fn: (...args: unknown[]) => unknown) => {
      for (const [index, row] of rows.entries()) {
        const values = Array.isArray(row) ? row : [row];
        this.#register([`${name} [${index}]`, () => fn(...values)]);
      }
    };
    Object.assign(Deno, { test: Object.assign(register, { each, ignore: () => {}, only: register }) });
    Deno.exit = (code) => {
      throw new Error(`the process would exit with status ${code}`);
    };
    // Deno makes no link where only some folders may be written to, because a link can lead out of them. Only tests do.
    Deno.symlink = async (target, path) => {
      const { success } = await new Deno.Command("/bin/ln", { args: ["-sT", String(target), String(path)] }).output();
      if (!success) throw new Error(`create the link ${path}: ln failed`);
    };
    for (const type of ["unhandledrejection", "error"] as const) {
      globalThis.addEventListener(type, (event) => {
        event.preventDefault();
        this.#unhandled ??= `not caught: ${describe("reason" in event ? event.reason : (event as ErrorEvent).error)}`;
      });
    }
  }

  /** Returns the tests of a file, which it imports if that was not done before. @param file below the current folder */
  async load(file: string): Promise<readonly RegisteredTest[]> {
    const known = this.#byFile.get(file);
    if (known !== undefined) return known;
    [this.#loading, this.#file] = [[], file];
    await import(new URL(`../../${file}`, import.meta.url).href);
    this.#byFile.set(file, this.#loading);
    return this.#loading;
  }

  /** Runs a test. @param limitMs the time after which it counts as hanging, in milliseconds */
  async run(test: RegisteredTest, limitMs: number): Promise<TestOutcome> {
    this.#unhandled = undefined;
    const resources = openResources();
    const start = now();
    using limit = new Limit(limitMs);
    const ended = Promise.resolve().then(() => test.fn(contextOf(test))).then(() => undefined, describe);
    const failure = await Promise.race([ended, limit.exceeded]);
    const ms = now() - start;
    if (failure === "timeout") return { failure, isTimeout: true, leaks: false, ms };
    await settle();
    const leaks = [...openResources()].some((resource) => !resources.has(resource)) &&
      await this.#stillLeaks(resources);
    const reason = failure ?? this.#unhandled;
    return { ...(reason === undefined ? {} : { failure: reason }), isTimeout: false, leaks, ms };
  }

  async #stillLeaks(before: ReadonlySet<string>): Promise<boolean> {
    for (let turn = 0; turn < 3; turn++) await settle();
    return [...openResources()].some((resource) => !before.has(resource));
  }

  #register(args: unknown[]): void {
    const definition: Record<string, unknown> = {};
    for (const arg of args) {
      if (typeof arg === "string") definition.name = arg;
      else if (typeof arg === "function") definition.fn = arg;
      else Object.assign(definition, arg);
    }
    const fn = definition.fn as RegisteredTest["fn"];
    const name = String(definition.name ?? fn.name);
    this.#loading.push({ name, file: this.#file, isIgnored: definition.ignore === true, fn });
  }
}

/** Returns what a test gets as its argument. */
function contextOf({ name, file, fn }: RegisteredTest, parent?: Deno.TestContext): Deno.TestContext {
  const origin = new URL(`../../${file}`, import.meta.url).href;
  const context = { name, origin, parent } as unknown as Deno.TestContext;
  context.step = async (...args: unknown[]) => {
    const [definition, body] = args as [string | Deno.TestStepDefinition, RegisteredTest["fn"]?];
    const step = typeof definition === "object" ? definition : { name: String(definition), fn: body ?? fn };
    await step.fn(contextOf({ name: step.name, file, isIgnored: false, fn: step.fn }, context));
    return true;
  };
  return context;
}

/** Waits until what the test has just ended is closed. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 2; turn++) await new Promise((resolve) => setTimeout(resolve, 0));
}

/** Returns the open resources of this process. `Deno.resources()` of earlier versions did so. */
function openResources(): Set<string> {
  // deno-lint-ignore no-explicit-any
  const { core } = (Deno as any)[(Deno as any).internal];
  return new Set(Object.entries<string>(core.resources()).map(([id, name]) => `${id} ${name}`));
}

function describe(error: unknown): string {
  return (error instanceof Error ? `${error.name}: ${error.message}` : String(error)).slice(0, 300);
}
