/**
 * Stages for situations: a driver over a fake machine.
 *
 * @module
 */

import { fakeHost } from "../contract/helpers/fake_host.ts";
import { Harness, type Host, type HostMachine } from "../contract/helpers/host.ts";
import type { FakeLv, FakeMachine } from "../fake/machine/machine.ts";

/** What a situation is played on. */
export interface Stage {
  /** A driver, and a client of it. */
  readonly harness: Harness;
  /** The machine. */
  readonly machine: FakeMachine;
  /** What tests do to any machine. */
  readonly host: HostMachine;
  /** Returns the LV of the only volume. */
  lv(): FakeLv;
}

/**
 * Returns what plays a situation with a driver over a fake machine.
 *
 * @param on the machine; by default one that has two volume groups, of 1 GiB and of 2 GiB, on a disk each
 */
export function onMachine(body: (stage: Stage) => Promise<void>, on: Host = fakeHost): () => Promise<void> {
  return async () => {
    await using host = await on.setUp();
    await using harness = await Harness.start(host.exec, on.groups, on.serve);
    const machine = host.exec as FakeMachine;
    await body({ harness, host, machine, lv: () => machine.allLvs()[0]!.lv });
  };
}
