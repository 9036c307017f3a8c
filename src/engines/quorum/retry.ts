import { backoffMs } from "../../core/backoff.js";
import type { Member } from "./member.js";
import type { Settings } from "./options.js";
import { poll } from "./vote.js";

/** Something a member has to hear, until it is of no use any more. */
export type Errand = {
  readonly tell: () => Promise<unknown>;
  /** False as soon as any telling of it was answered, however late. */
  readonly unheard: () => boolean;
  readonly until: number;
};
type Running = Errand & { readonly done: () => void };

/**
 * Tells members what they did not hear the first time. However much there is to say, a member that is away gets one knock
 * at a time; once it answers it is told everything.
 */
export class Insistence {
  readonly #settings: Settings;
  readonly #errands = new Map<Member, Set<Running>>();
  /** Each ends a pause before its time. */
  readonly #sleepers = new Set<() => void>();
  #stopped = false;

  constructor(settings: Settings) {
    this.#settings = settings;
  }

  /** Settles when it was heard or given up. Never rejects. */
  async run(member: Member, errand: Errand): Promise<void> {
    if (errand.unheard()) await new Promise<void>((done) => this.#add(member, { ...errand, done }));
  }

  /** The last chance for members that have not heard yet: whoever closes leaves as little behind as can be. */
  async stop(told: Promise<unknown>): Promise<void> {
    this.#wakeAll();
    await Promise.race([told, this.#sleep(2 * this.#settings.memberTimeoutMs)]);
    this.#stopped = true;
    this.#wakeAll();
  }

  #add(member: Member, errand: Running): void {
    const others = this.#errands.get(member);
    if (others !== undefined) {
      others.add(errand);
      return;
    }
    const errands = new Set([errand]);
    this.#errands.set(member, errands);
    void this.#knock(member, errands);
  }

  async #knock(member: Member, errands: Set<Running>): Promise<void> {
    const { clock, chance } = this.#settings;
    for (let tries = 1; ; tries += 1) {
      await this.#sleep(backoffMs(tries, chance));
      for (const errand of errands) {
        if (this.#stopped || errand.until <= clock.now() || !errand.unheard()) end(errands, errand);
      }
      const [first] = errands;
      if (first === undefined) break;
      if (!(await this.#heard(member, errands, first))) continue;
      await Promise.all([...errands].map((errand) => this.#heard(member, errands, errand)));
      tries = 0;
    }
    this.#errands.delete(member);
  }

  async #heard(member: Member, errands: Set<Running>, errand: Running): Promise<boolean> {
    const { clock, memberTimeoutMs } = this.#settings;
    await poll(clock, { members: [member], limitMs: memberTimeoutMs, ask: errand.tell, decide: () => true }).all;
    if (!errand.unheard()) {
      end(errands, errand);
      return true;
    }
    // The next knock is with another one, should this be the only one that the member refuses.
    if (errands.delete(errand)) errands.add(errand);
    return false;
  }

  #wakeAll(): void {
    for (const wake of [...this.#sleepers]) wake();
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const { clock } = this.#settings;
      const wake = (): void => {
        this.#sleepers.delete(wake);
        clock.cancel(timer);
        resolve();
      };
      const timer = clock.after(ms, wake);
      this.#sleepers.add(wake);
    });
  }
}

function end(errands: Set<Running>, errand: Running): void {
  errands.delete(errand);
  errand.done();
}
