import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/fake/clock.ts";
import type { VolumeGroup } from "../model/report.ts";
import { GroupRefusals } from "./refusals.ts";

Deno.test("GroupRefusals remembers a refused group for five minutes, or until it was changed", async () => {
  const clock = new FakeClock();
  const refusals = new GroupRefusals(clock);
  const [data, other] = ["data", "other"].map((uuid) => ({ uuid }) as VolumeGroup);
  const refused = () => refusals.addTo([data!, other!]).map(({ refusal }) => refusal);
  refusals.note(data!, "no lock");
  assertEquals(refused(), ["LVM refuses to change it: no lock", undefined]);
  await clock.advance(5 * 60_000 - 1);
  assertEquals(refused()[0], "LVM refuses to change it: no lock");
  await clock.advance(1);
  assertEquals(refused(), [undefined, undefined]);
  refusals.note(other!, "no lock");
  refusals.forget(other!);
  assertEquals(refused(), [undefined, undefined]);
});
