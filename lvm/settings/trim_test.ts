import { assert, assertEquals } from "@std/assert";
import { volumeIdOf } from "../../base/ids.ts";
import { formatInterval, formatTrim, nextTrimTime, parseInterval, parseTrim, withDiscardFlag } from "./trim.ts";

const HOUR = 3_600_000;

Deno.test("parseInterval() accepts ten minutes to 90 days, and formatInterval() writes what it reads", () => {
  for (
    const [text, ms] of [["10m", HOUR / 6], ["90m", 1.5 * HOUR], ["24h", 24 * HOUR], ["90d", 90 * 24 * HOUR]] as const
  ) {
    assertEquals([parseInterval(text), parseInterval(formatInterval(ms))], [ms, ms]);
  }
  for (const text of ["", "no", "9m", "91d", "0h", "1", "1s", "-1h", "1.5h", "1h ", "1h30m", "9999999m"]) {
    assertEquals(parseInterval(text), undefined, text);
  }
});

Deno.test("formatTrim() writes what parseTrim() reads, and nothing when nothing is discarded", () => {
  const all = [{ discard: true }, { discard: false, intervalMs: 24 * HOUR }, { discard: true, intervalMs: HOUR }];
  assertEquals(all.map(formatTrim), ["d", "1d", "d+1h"]);
  assertEquals(all.map((trim) => parseTrim(formatTrim(trim)!)), all);
  assertEquals(formatTrim({ discard: false }), undefined);
  for (const text of ["", "d+", "+1h", "x", "1h+d", "d+d", "d1h"]) assertEquals(parseTrim(text), undefined, text);
});

Deno.test("withDiscardFlag(): a requested flag takes precedence", () => {
  assertEquals(withDiscardFlag({ discard: true }, ["noatime"]), ["noatime", "discard"]);
  assertEquals(withDiscardFlag({ discard: true }, ["nodiscard"]), ["nodiscard"]);
  assertEquals(withDiscardFlag({ discard: true }, ["discard=async"]), ["discard=async"]);
  assertEquals(withDiscardFlag({ discard: false, intervalMs: HOUR }, []), []);
  assertEquals(withDiscardFlag(undefined, []), []);
});

Deno.test("nextTrimTime() is once in each interval, the same for each call, and different for each volume", () => {
  const day = 24 * HOUR;
  const midnight = Date.UTC(2026, 0, 1);
  const nexts = Array.from({ length: 100 }, (_, index) => nextTrimTime(volumeIdOf(`${index}`), day, midnight));
  for (const next of nexts) assertEquals(next > midnight && next < midnight + day, true);
  assertEquals(new Set(nexts).size, 100);
  assertEquals(new Set(nexts.map((next) => Math.floor((next - midnight) / HOUR))).size > 20, true, "all day long");
  const [next] = nexts;
  assertEquals(nextTrimTime(volumeIdOf("0"), day, next! - 1), next);
  assertEquals(
    Math.floor(nextTrimTime(volumeIdOf("0"), day, next!) / day),
    midnight / day + 1,
    "a restart does not repeat it",
  );
});

Deno.test("nextTrimTime() reaches the hours at which a machine is on, and is never long after the last one", () => {
  const day = 24 * HOUR;
  for (const index of Array(20).keys()) {
    let at = nextTrimTime(volumeIdOf(`${index}`), day, Date.UTC(2026, 0, 1));
    const hours = new Set<number>();
    for (let days = 0; days < 60; days++) {
      const next = nextTrimTime(volumeIdOf(`${index}`), day, at);
      assert(next - at > 0.6 * day && next - at < 1.7 * day, `${next - at}`);
      hours.add(Math.floor(next % day / HOUR));
      at = next;
    }
    assertEquals(hours.size, 24);
  }
});
