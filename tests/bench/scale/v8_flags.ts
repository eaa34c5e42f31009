import { parse } from "@std/yaml";

/** Returns the flags of V8 that the chart gives the controller. */
export async function controllerV8Flags(): Promise<string> {
  const values = await Deno.readTextFile(new URL("../../../deploy/chart/values.yaml", import.meta.url));
  return (parse(values) as { controller: { v8Flags: string } }).controller.v8Flags;
}
