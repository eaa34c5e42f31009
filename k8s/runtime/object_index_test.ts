import { assertEquals } from "@std/assert";
import type { KubeObject } from "../api/objects.ts";
import type { Listener } from "./informer.ts";
import { ObjectIndex } from "./object_index.ts";

type Thing = KubeObject & { readonly group?: string };

Deno.test("ObjectIndex follows objects that come, change their group, and go", () => {
  let notify: Listener<Thing> = () => {};
  const subscribe = (listener: Listener<Thing>) => {
    notify = listener;
    return () => {};
  };
  const index = new ObjectIndex<Thing>({ subscribe }, ({ group }) => group);
  const thing = (group?: string): Thing => ({ metadata: { name: "a" }, ...(group !== undefined && { group }) });
  const keys = () => ["x", "y"].map((group) => [...index.get(group).keys()].join());
  notify("a", thing("x"), undefined);
  notify("b", thing("x"), undefined);
  assertEquals(keys(), ["a,b", ""]);
  notify("a", thing("y"), thing("x"));
  assertEquals(keys(), ["b", "a"]);
  notify("a", thing(), thing("y"));
  notify("b", undefined, thing("x"));
  assertEquals(keys(), ["", ""]);
});
