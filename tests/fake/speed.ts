/**
 * The speed of code where V8 compiles nothing, as in the driver.
 *
 * @module
 */

/**
 * Returns how many times as long as a copy of 4 MiB a call takes.
 *
 * @param module the URL of the module of the function
 * @param name the name of the function
 * @param args its arguments as code, in which `one` and `other` are blocks of 4 MiB
 */
export async function timesACopy(module: string, name: string, args: string): Promise<number> {
  const code = `
    import { ${name} } from ${JSON.stringify(module)};
    const [one, other] = [new Uint8Array(4 << 20), new Uint8Array(4 << 20)];
    const shortest = (action) => Math.min(...Array.from({ length: 5 }, () => {
      const start = performance.now();
      action();
      return performance.now() - start;
    }));
    console.log(shortest(() => ${name}(${args})) / shortest(() => other.set(one)));`;
  const { stdout } = await new Deno.Command(Deno.execPath(), {
    args: ["eval", "--no-config", "--v8-flags=--lite-mode", code],
  }).output();
  return Number(new TextDecoder().decode(stdout));
}
