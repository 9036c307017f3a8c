import { NotAcquired } from "../core/cancellation.js";
import { checkKnown, optionsAndCallback, shown } from "../core/checks.js";
import type { Client } from "../core/client.js";
import { InvalidOptionError } from "../core/errors.js";
import { Hold } from "../core/hold.js";
import type { Owner } from "../core/inspect.js";
import { type AcquireOptions, checkTerms, type Terms } from "../core/options.js";
import { acquire } from "../core/wait.js";
import { SharedValue } from "./cell.js";
import { leadAgain } from "./lead.js";
import { Term } from "./term.js";
import { checkWait, waitUntil } from "./wait-until.js";

/** Who leads: `value` is what it campaigned with, `token` the number of its term. */
export type Leader = { readonly value: string; readonly token: number; readonly owner: Owner };

export interface CampaignOptions extends Pick<AcquireOptions, "waitMs" | "signal" | "leaseMs" | "label" | "maxHoldMs"> {
  /** What the others learn about the leader, such as its address; up to 1,024 bytes. */
  readonly value?: string;
}

const KIND = "election";
const OPTIONS = ["waitMs", "signal", "leaseMs", "label", "maxHoldMs"];
const VALUE_MAX_BYTES = 1_024;
/** How many terms an observer may be behind without missing one. */
const TERMS_KEPT = 32;

/**
 * One leader at a time. Its term is a claim: the token numbers it, the signal ends it, and both are told before another
 * can be elected. There are no callbacks that could act on an old term (`pitfalls.md` 43): each campaign has a term of its
 * own, and what ends one cannot touch the next.
 */
export class Election {
  readonly name: string;
  readonly #client: Client;
  /** The last terms, for observers. Null where the store keeps no small values: it elects all the same. */
  readonly #terms: SharedValue<readonly Leader[]> | null;

  /** @internal */
  constructor(client: Client, name: string) {
    this.name = name;
    this.#client = client;
    this.#terms = client.engine.cells === null ? null : new SharedValue(client, KIND, name);
  }

  /** Wait to be elected. Throws `AcquireTimeoutError` when `waitMs` is over. */
  async campaign(options: CampaignOptions = {}): Promise<Term> {
    const { value, terms } = this.#check(options);
    return this.#campaign(value, terms);
  }

  /** Who leads now, or null. */
  async leader(): Promise<Leader | null> {
    const [holder] = (await this.#client.state(this.name))?.holders ?? [];
    return holder === undefined ? null : { value: holder.data ?? "", token: holder.token, owner: holder.owner };
  }

  /** The last leader and then each new one, in order. Ends when the loop is left, throws the signal's reason. */
  async *observe(options: { readonly signal?: AbortSignal } = {}): AsyncGenerator<Leader> {
    checkKnown(options, ["signal"]);
    const { signal } = checkWait(this.#client, options);
    const terms = this.#terms ?? new SharedValue<readonly Leader[]>(this.#client, KIND, this.name);
    let seen = -1;
    for (;;) {
      const news = await waitUntil(
        this.#client,
        { waitMs: undefined, signal },
        {
          name: this.name,
          watch: (changed) => terms.watch(changed),
          check: async () => {
            const known = (await terms.read()).value ?? [];
            const fresh = seen < 0 ? known.slice(-1) : known.filter(({ token }) => token > seen);
            return fresh.length === 0 ? null : fresh;
          },
        },
      );
      if (news instanceof NotAcquired) return;
      for (const leader of news) {
        seen = leader.token;
        yield leader;
      }
    }
  }

  /**
   * Run `run` while leader, again and again: after it has ended, or failed (told as a warning), or the term was lost, and
   * after a pause that grows while terms are short. Never twice at a time: a term that was lost is over when `run` is.
   * Ends by the signal, with its reason.
   */
  lead(run: (term: Term) => unknown): Promise<never>;
  lead(options: CampaignOptions, run: (term: Term) => unknown): Promise<never>;
  async lead(first: CampaignOptions | ((term: Term) => unknown), second?: (term: Term) => unknown): Promise<never> {
    const [options = {}, run] = optionsAndCallback<CampaignOptions, (term: Term) => unknown>("run", first, second);
    const { value, terms } = this.#check(options);
    const campaign = (): Promise<Term> => this.#campaign(value, terms);
    return leadAgain(this.#client, { name: this.name, campaign, signal: terms.signal }, run);
  }

  #check(options: CampaignOptions): { readonly value: string; readonly terms: Terms } {
    checkKnown(options, ["value", ...OPTIONS]);
    const { value = "", ...rest } = options;
    const terms = checkTerms(rest, { leaseMs: this.#client.settings.leaseMs, waitMs: undefined });
    return { value: checkValue(value), terms };
  }

  async #campaign(value: string, terms: Terms): Promise<Term> {
    const ask = { name: this.name, units: 1, capacity: 1, data: value, kind: "election" } as const;
    const taken = await acquire(this.#client, ask, terms);
    if (taken instanceof NotAcquired) throw taken.error(this.name);
    const hold = new Hold(taken);
    const leader = { value, token: hold.token, owner: taken.claim.owner };
    try {
      // Before anybody acts on the term: whoever observes sees each of them.
      await this.#terms?.update((known) =>
        isNewer(leader, known) ? [...(known ?? []), leader].slice(-TERMS_KEPT) : undefined,
      );
      // Whoever left meanwhile does not want it any more; it was announced, and is over.
      terms.signal?.throwIfAborted();
      hold.throwIfLost();
    } catch (error) {
      // What stopped it is the error to see; a claim that could not be given back ends with its lease.
      await hold.release().catch(() => {});
      throw error;
    }
    return new Term(hold, leader);
  }
}

/** A leader that was paused between its election and this may find a later one: then its term is over, and stays unsaid. */
function isNewer(leader: Leader, known: readonly Leader[] | null): boolean {
  return leader.token > (known?.at(-1)?.token ?? -1);
}

function checkValue(value: string): string {
  const fits = typeof value === "string" && value.isWellFormed() && Buffer.byteLength(value) <= VALUE_MAX_BYTES;
  if (!fits) throw new InvalidOptionError("value", shown(value), `a string of at most ${VALUE_MAX_BYTES} bytes`);
  return value;
}
