/**
 * Pods that write while a test does something to their volumes.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import type { TestNamespace } from "./test_namespace.ts";

/**
 * Returns a script that writes to files and reads back in a loop, and fails when the data differ.
 *
 * @param pauseSeconds the pause between two rounds: programs are expensive in the guest
 */
export function checkingWriter(files: readonly string[], { pauseSeconds = 0.2 } = {}): string {
  return `
trap 'exit 0' TERM
head -c 1048576 /dev/urandom > /tmp/chance
sum=$(md5sum < /tmp/chance)
n=0
while :; do
  offset=$((n % 4))
  for f in ${files.join(" ")}; do
    dd if=/tmp/chance of=$f bs=1M seek=$offset conv=notrunc,fsync 2>/dev/null || exit 1
    [ "$(dd if=$f bs=1M skip=$offset count=1 2>/dev/null | md5sum)" = "$sum" ] || exit 2
  done
  n=$((n + 1))
  echo $n > /tmp/rounds
  sleep ${pauseSeconds}
done
`;
}

/** Waits until a writer that counts its rounds in /tmp/rounds has completed two more. */
export async function waitForMoreRounds(ns: TestNamespace, pod: string): Promise<void> {
  const rounds = "n=$(cat /tmp/rounds); until [ $(cat /tmp/rounds) -gt $((n + 1)) ]; do sleep .2; done; echo more";
  assertEquals(await ns.exec(pod, rounds), "more\n");
}
