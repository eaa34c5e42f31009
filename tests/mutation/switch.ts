/**
 * The switch of an instrumented copy: which mutant is active, and which mutants a test runs over. Each instrumented module
 * imports this file and calls the two global functions, whose names the instrumenter defines.
 *
 * @module
 */

/** The state of the switch. */
export interface MutantSwitch {
  /** The number of the active mutant, or -1 for the original code. */
  active: number;
  /** How often the active mutant was reached. */
  hits: number;
  /** The number of hits after which the active mutant throws: it ends endless loops. */
  hitLimit: number;
  /** Counts how often each mutant is reached, if set: by the mutant's number. */
  coverage: Uint32Array | undefined;
}

declare global {
  var mutantSwitch: MutantSwitch;
}

/** The environment variable with the number of the mutant that is active from the start of a process. */
export const MUTANT_VARIABLE = "DENOLITH_MUTANT";

function mutantOfEnvironment(): number {
  try {
    return Number(Deno.env.get(MUTANT_VARIABLE) ?? "-1");
  } catch {
    return -1; // a process or worker that must not read this variable
  }
}

if (globalThis.mutantSwitch === undefined) {
  const state: MutantSwitch = { active: mutantOfEnvironment(), hits: 0, hitLimit: Infinity, coverage: undefined };
  Object.assign(globalThis, {
    mutantSwitch: state,
    stryMutAct_9fa48(mutant: number): boolean {
      if (mutant !== state.active) return false;
      if (++state.hits > state.hitLimit) throw new Error(`the mutant was reached more than ${state.hitLimit} times`);
      return true;
    },
    stryCov_9fa48(...mutants: number[]): void {
      const { coverage } = state;
      if (coverage === undefined) return;
      for (const mutant of mutants) coverage[mutant]!++;
    },
  });
}
