import type { PersistentVolumeClaim } from "../../../k8s/api/objects.ts";
import type { ClaimRequest } from "./cluster_commands.ts";
import { newClaimObject, nodeName } from "./objects.ts";

/** The namespace of new claims. */
export const NEW_NAMESPACE = "new";

/** The claims that are created during a measurement, with their times. */
export class NewClaims {
  readonly #nodeCount: number;
  readonly #create: (claim: PersistentVolumeClaim) => void | Promise<void>;
  /** When each claim was created and bound, in milliseconds. */
  readonly #times = new Map<string, { createdMs: number; boundMs?: number }>();

  /** Makes the list of claims. @param create creates one */
  constructor(nodeCount: number, create: (claim: PersistentVolumeClaim) => void | Promise<void>) {
    this.#nodeCount = nodeCount;
    this.#create = create;
  }

  /** Creates claims. Their time begins when each is sent. @returns their names */
  async create({ count, perSecond = Infinity, isImmediate = false, on }: ClaimRequest): Promise<string[]> {
    const { first, count: nodeCount } = on ?? { first: 0, count: this.#nodeCount };
    const names: string[] = [];
    const created: (void | Promise<void>)[] = [];
    for (let index = 0; index < count; index++) {
      const name = `new-${this.#times.size}`;
      const node = isImmediate ? undefined : nodeName((first + index % nodeCount) % this.#nodeCount);
      names.push(name);
      this.#times.set(name, { createdMs: performance.now() });
      created.push(this.#create(newClaimObject(name, node)));
      if (perSecond !== Infinity) await new Promise((resolve) => setTimeout(resolve, 1_000 / perSecond));
    }
    await Promise.all(created);
    return names;
  }

  /** Notes that a claim is Bound, if it is one of these. */
  noteBound(name: string): void {
    const times = this.#times.get(name);
    if (times !== undefined) times.boundMs ??= performance.now();
  }

  /** Returns how long each of the claims took until it was Bound, in milliseconds; absent for one that is not. */
  boundMs(names: readonly string[]): number[] {
    return names.map((name) => this.#times.get(name)!).flatMap(({ createdMs, boundMs }) =>
      boundMs === undefined ? [] : [boundMs - createdMs]
    );
  }
}
