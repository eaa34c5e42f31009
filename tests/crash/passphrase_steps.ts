/**
 * The steps of lifecycles in which the passphrase of an encrypted volume is changed, or its volume key as well.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import type { FakeMachine } from "../fake/machine/machine.ts";
import type { Lifecycle, Step } from "./orchestrator.ts";
import { SECRETS, type VolumeSteps } from "./volume_steps.ts";

/** The secret while the passphrase is changed. */
const NEW_SECRETS = { passphrase: "the new passphrase", previousPassphrase: SECRETS.passphrase };

/** The secret in which the new passphrase was taken back. */
const FORMER_SECRETS = { passphrase: SECRETS.passphrase, previousPassphrase: NEW_SECRETS.passphrase };

/** The passphrase that takes the place of the new one. */
const LAST = "the last passphrase";

/** The secrets by which the new passphrase is replaced: when the change was interrupted, the former one may still open it. */
const LAST_SECRETS = [NEW_SECRETS, SECRETS].map(({ passphrase }) => ({
  passphrase: LAST,
  previousPassphrase: passphrase,
}));

/** The secret by which the volume key changes, too. */
const NEW_KEY = { ...NEW_SECRETS, volumeKey: "next" };

/** The steps of a change of a volume's passphrase. */
export class PassphraseSteps {
  readonly #machine: FakeMachine;
  readonly #volume: VolumeSteps;

  constructor(machine: FakeMachine, volume: VolumeSteps) {
    this.#machine = machine;
    this.#volume = volume;
  }

  /** Returns a lifecycle in which the passphrase is changed while the volume is in use. */
  inUse(): Lifecycle {
    return this.#lifecycle([this.#publishAgain(), this.#assertChanged(), ...this.#end]);
  }

  /** Returns a lifecycle in which the passphrase is changed between two uses. */
  betweenUses(): Lifecycle {
    return this.#lifecycle([...this.#end, this.#setSecret()]);
  }

  /** Returns a lifecycle in which both keys are changed between two uses. */
  newVolumeKey(): Lifecycle {
    return this.#lifecycle([...this.#end, this.#setSecret(NEW_KEY), this.#volume.stage(), this.#assertVolumeKey()]);
  }

  /**
   * Returns a lifecycle in which a change of the passphrase is taken back once it was interrupted: first by a secret that has the
   * former passphrase alone.
   */
  takenBack(): Lifecycle {
    return this.#lifecycle([
      ...this.#end,
      this.#changeOr(this.#volume.stage(), [SECRETS, FORMER_SECRETS]),
      ...this.#end,
    ]);
  }

  /** Returns a lifecycle in which a change of the passphrase is taken back once it was interrupted, while the volume is in use. */
  takenBackInUse(): Lifecycle {
    return this.#lifecycle([this.#changeOr(this.#volume.publish(), [SECRETS, FORMER_SECRETS]), ...this.#end]);
  }

  /** Returns a lifecycle in which the secret gets a third passphrase once the change to the second one was interrupted. */
  replacedAgain(): Lifecycle {
    return this.#lifecycle([...this.#end, this.#changeOr(this.#volume.stage(), LAST_SECRETS), ...this.#end]);
  }

  /** Returns a lifecycle in which the volume is expanded once its encryption by another volume key was interrupted. */
  newVolumeKeyThenGrown(): Lifecycle {
    return this.#lifecycle([...this.#end, this.#setSecret(NEW_KEY), this.#stageOrExpand(), this.#assertVolumeKey()]);
  }

  get #end(): Step[] {
    return [this.#volume.unpublish(), this.#volume.unstage()];
  }

  #lifecycle(change: readonly Step[]): Lifecycle {
    const volume = this.#volume;
    const begin = [volume.create(), volume.stage(), volume.publish(), volume.write()];
    const use = [volume.stage(), this.#assertChanged(), volume.publish(), volume.read(), ...this.#end];
    const { cleanup, state } = volume.lifecycle([]);
    return { steps: [...begin, ...change, ...use, volume.delete()], cleanup, state };
  }

  #setSecret(secrets: Record<string, string> = NEW_SECRETS): Step {
    return { name: "a new secret", run: () => Promise.resolve(void (this.#volume.state.secrets = secrets)) };
  }

  /**
   * Changes the passphrase by a call. When a driver was interrupted by a crash, the next one gets other secrets in turn; those that
   * have none of the volume's passphrases are refused.
   */
  #changeOr({ name, run }: Step, secrets: readonly Record<string, string>[]): Step {
    const { state } = this.#volume;
    return {
      name: `${name} with a secret that changes again`,
      run: async (csi) => {
        const isInterrupted = state.secrets.passphrase !== SECRETS.passphrase || "previousPassphrase" in state.secrets;
        for (const each of isInterrupted ? secrets : [NEW_SECRETS]) {
          state.secrets = each;
          const isRefused = await run(csi).then(() => false, (error) => {
            if (error instanceof StorageError && error.kind === "Unauthenticated" && each !== secrets.at(-1)) {
              return true;
            }
            throw error;
          });
          if (!isRefused && each.previousPassphrase !== undefined) return;
        }
      },
    };
  }

  /** Stages the volume. When a driver was interrupted by a crash, the volume is expanded first. */
  #stageOrExpand(): Step {
    const { state } = this.#volume;
    return {
      name: "NodeStageVolume, after an expansion if it was interrupted",
      run: async (csi) => {
        if (state.hasBegunKeyChange) await this.#volume.expand(96n).run(csi);
        state.hasBegunKeyChange = true;
        await this.#volume.stage().run(csi);
      },
    };
  }

  /** The data is encrypted by another volume key alone. It was encrypted again once, whatever died. */
  #assertVolumeKey(): Step {
    return {
      name: "another volume key",
      run: () => {
        const [luks] = this.#machine.allLvs().flatMap(({ lv: { content } }) => content.luks ?? []);
        const { subsystem, isReencrypting, volumeKey } = luks!;
        assertEquals({ subsystem, isReencrypting, volumeKey }, {
          subsystem: "next",
          isReencrypting: undefined,
          volumeKey: 1,
        });
        return Promise.resolve();
      },
    };
  }

  /** Publishes the volume with the new secret, as kubelet does again and again. */
  #publishAgain(): Step {
    const { name, run } = this.#volume.publish();
    return {
      name: `${name} with a new secret`,
      run: (csi) => {
        this.#volume.state.secrets = NEW_SECRETS;
        return run(csi);
      },
    };
  }

  /** The passphrase of the secret opens the volume, and no other one opens any LV. */
  #assertChanged(): Step {
    return {
      name: "no other passphrase opens anything",
      run: () => {
        const lvs = this.#machine.allLvs().map(({ lv }) => lv);
        const slots = lvs.flatMap(({ content }) => content.luks?.passphrases ?? []);
        assertEquals(slots.filter((each) => each !== undefined), [this.#volume.state.secrets.passphrase]);
        assertEquals(lvs.filter(({ name }) => name.startsWith("hdr-")).map(({ name }) => name), []);
        return Promise.resolve();
      },
    };
  }
}
