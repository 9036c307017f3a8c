// Beyond the fixed set of files: a member that was away must learn of releases.
import { backoffMs } from "../../core/backoff.js";
import type { Member } from "./member.js";
import type { Settings } from "./options.js";
import { poll } from "./vote.js";

/** A call that a member must answer, until it is of no use any more. */
export type RetriedCall = {
  readonly send: () => Promise<unknown>;
  /** False as soon as any copy of it was answered, however late. */
  readonly unanswered: () => boolean;
  readonly until: number;
};
type Running = RetriedCall & { readonly done: () => void };

/**
 * Sends members again what they did not answer. However many calls there are, a member that is away gets one at a time; once
 * it answers it gets all of them.
 */
export class Retries {
  readonly #settings: Settings;
  readonly #calls = new Map<Member, Set<Running>>();
  /** Each ends a pause before its time. */
  readonly #sleepers = new Set<() => void>();
  #stopped = false;

  constructor(settings: Settings) {
    this.#settings = settings;
  }

  /** Resolves when it was answered or given up. Never rejects. */
  async run(member: Member, call: RetriedCall): Promise<void> {
    if (call.unanswered()) await new Promise<void>((done) => this.#add(member, { ...call, done }));
  }

  /** The last try for members that have not answered yet: whoever closes leaves as little behind as can be. */
  async stop(done: Promise<unknown>): Promise<void> {
    this.#wakeAll();
    await Promise.race([done, this.#sleep(2 * this.#settings.memberTimeoutMs)]);
    this.#stopped = true;
    this.#wakeAll();
  }

  #add(member: Member, call: Running): void {
    const others = this.#calls.get(member);
    if (others !== undefined) {
      others.add(call);
      return;
    }
    const calls = new Set([call]);
    this.#calls.set(member, calls);
    void this.#retryMember(member, calls);
  }

  async #retryMember(member: Member, calls: Set<Running>): Promise<void> {
    const { clock, chance } = this.#settings;
    for (let tries = 1; ; tries += 1) {
      await this.#sleep(backoffMs(tries, chance));
      for (const call of calls) {
        if (this.#stopped || call.until <= clock.now() || !call.unanswered()) end(calls, call);
      }
      const [first] = calls;
      if (first === undefined) break;
      if (!(await this.#answered(member, calls, first))) continue;
      await Promise.all([...calls].map((call) => this.#answered(member, calls, call)));
      tries = 0;
    }
    this.#calls.delete(member);
  }

  async #answered(member: Member, calls: Set<Running>, call: Running): Promise<boolean> {
    const { clock, memberTimeoutMs } = this.#settings;
    const asked = { members: [member], limitMs: memberTimeoutMs };
    await poll(clock, asked, { ask: call.send, decide: () => true }).all;
    if (!call.unanswered()) {
      end(calls, call);
      return true;
    }
    // The next try is with another call, should this be the only one that the member refuses.
    if (calls.delete(call)) calls.add(call);
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

function end(calls: Set<Running>, call: Running): void {
  calls.delete(call);
  call.done();
}
