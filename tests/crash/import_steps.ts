/**
 * The steps of lifecycles of volumes that were LVs of somebody else.
 *
 * @module
 */

import { assertEquals, assertRejects } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { volumeIdOf } from "../../base/ids.ts";
import type { VolumeRequest } from "../../lvm/inventory/volume.ts";
import { foreignLv } from "../fake/machine/foreign_lv.ts";
import { lvm } from "../fake/machine/lvm.ts";
import type { FakeMachine } from "../fake/machine/machine.ts";
import { namedRequest } from "../fake/request.ts";
import type { Lifecycle, Step } from "./orchestrator.ts";
import { VolumeSteps } from "./volume_steps.ts";
import type { Capability } from "../contract/helpers/host.ts";

/** The name of the LV, as its owner gave it. A volume has another one. */
export const FOREIGN_NAME = "pvc-0f1e";

const BYTES = 32n << 20n;
const POOL = "theirs";

/** The steps of an LV of somebody else, which is imported, used and deleted. */
export class ImportSteps {
  readonly #machine: FakeMachine;
  readonly #volume: VolumeSteps;
  readonly #request: VolumeRequest;

  /** Creates the steps. @param request what differs from the request for an ext4 */
  constructor(machine: FakeMachine, folder: string, capability: Capability, request: Partial<VolumeRequest> = {}) {
    this.#machine = machine;
    const { erase = "zero" } = request;
    this.#volume = new VolumeSteps(machine, folder, capability, BYTES >> 20n, { erase });
    this.#request = namedRequest(FOREIGN_NAME, BYTES, { format: { state: "unformatted", type: "ext4" }, ...request });
  }

  /** Returns the lifecycle of an LV with a filesystem, which is used twice. */
  used(): Lifecycle {
    return { ...this.#lifecycle([this.#take()]), prepare: () => void this.#addLv() };
  }

  /** Returns the lifecycle of an LV with data of which nothing is known, which is deleted before anybody uses it. */
  unused(): Lifecycle {
    const deletion = this.#volume.delete();
    const prepare = () => {
      Object.assign(this.#addLv().content, { zeroHead: true, signatures: [], filesystemBytes: 0n });
    };
    return {
      ...{ steps: [this.#take(), deletion], cleanup: [this.#know, deletion], prepare },
      state: this.#volume.state,
    };
  }

  /** Returns the lifecycle of a thin LV in a pool that does not zero new blocks, except while the administrator is told to let it. */
  unzeroed(): Lifecycle {
    const { steps, cleanup, state } = this.#lifecycle([this.#refusedTake(), this.#zero("y"), this.#take()]);
    const end = [this.#keptDeletion(), this.#zero("y"), this.#volume.delete()];
    return {
      steps: [...steps.slice(0, -1), this.#zero("n"), ...end],
      cleanup: [...cleanup, this.#zero("y"), this.#volume.delete()],
      state,
      prepare: () => {
        this.#lvm("lvcreate", "--type", "thin-pool", "--zero", "n", "--name", POOL, "--size", `${4n * BYTES}b`, "data");
        this.#addLv(["--type", "thin", "--thinpool", POOL, "--virtualsize", `${BYTES}b`]);
      },
    };
  }

  /** Returns the lifecycle of a volume that is created by other steps. */
  #lifecycle(creation: readonly Step[]): Lifecycle {
    const { steps: [_create, ...steps], cleanup: [_createAgain, ...cleanup], state } = this.#volume.lifecycle([]);
    return { steps: [...creation, ...steps], cleanup: [this.#know, ...cleanup], state };
  }

  readonly #know: Step = {
    name: "knowing the id",
    run: () => Promise.resolve(this.#volume.state.volumeId = volumeIdOf(FOREIGN_NAME)),
  };

  #take(): Step {
    return {
      name: "importing",
      run: async ({ imports }) => {
        await imports.import(this.#request, this.#from);
        await this.#know.run({} as never);
        this.#volume.state.acknowledged.volumes.set(this.#request.id, BYTES);
      },
    };
  }

  #refusedTake(): Step {
    return {
      name: "importing, which is refused",
      run: async ({ imports }) => {
        const error = await assertRejects(() => imports.import(this.#request, this.#from), StorageError);
        assertEquals(error.kind, "FailedPrecondition");
      },
    };
  }

  /** The deletion of a volume that is kept, since its data could be read. */
  #keptDeletion(): Step {
    const deletion = this.#volume.delete();
    return {
      name: "DeleteVolume, while the pool does not zero",
      run: async (calls) => {
        await deletion.run(calls);
        await calls.idle();
        assertEquals(this.#machine.allLvs().filter(({ lv }) => lv.pool === POOL && lv.size === BYTES).length, 1);
      },
    };
  }

  #zero(value: "y" | "n"): Step {
    return {
      name: `lvchange --zero ${value}`,
      run: () => Promise.resolve(this.#lvm("lvchange", "--zero", value, `data/${POOL}`)),
    };
  }

  #addLv(args?: readonly string[]) {
    return foreignLv(this.#machine, { group: "data", name: FOREIGN_NAME, bytes: BYTES, ...(args && { args }) });
  }

  #lvm(...args: string[]): void {
    assertEquals(lvm(this.#machine, args).code, 0, args.join(" "));
  }

  get #from() {
    return { groupUuid: this.#machine.groups[0]!.uuid, name: FOREIGN_NAME };
  }
}
