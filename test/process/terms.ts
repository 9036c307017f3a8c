import { until } from "../servers/process.js";
import type { Member } from "./fleet.js";

type Elected = { readonly token: number; readonly at: number; readonly member: Member };
type Write = Elected & { readonly checked: boolean; readonly accepted: boolean };
type Pause = { readonly member: Member; readonly from: number; to: number };

/** What the resource accepted. */
type Accepted = { readonly token: number; readonly writer: number };

/** The processes that lead by turns, what they tell, and what was done to them. */
export class Terms {
  readonly members: Member[] = [];
  readonly #pauses: Pause[] = [];
  readonly #ended = new Set<number>();

  /** The newest term, once it is newer than this one. */
  async after(token: number): Promise<Elected> {
    await until("the next leader", () => this.#said<Elected>("elected").some((term) => term.token > token), 60_000);
    return this.#said<Elected>("elected").reduce((one, two) => (two.token > one.token ? two : one));
  }

  tokens(): number[] {
    return this.#said<Elected>("elected").map(({ token }) => token);
  }

  async kill({ token, member }: Elected): Promise<void> {
    this.#ended.add(token);
    member.signal("SIGKILL");
  }

  /** Stopped until the next leader has written, which its own late write is to be refused for; then it has tried that. */
  async pause({ token, member }: Elected): Promise<void> {
    this.#ended.add(token);
    const pause = { member, from: now(), to: Infinity };
    this.#pauses.push(pause);
    member.signal("SIGSTOP");
    const next = await this.after(token);
    await this.#wrote("the next leader has written", next.token, true);
    pause.to = now();
    member.signal("SIGCONT");
    await this.#wrote("the one that was stopped has tried once more", token, false);
  }

  #wrote(what: string, token: number, checked: boolean): Promise<void> {
    const said = (): boolean =>
      this.#said<Write>("write").some((write) => write.token === token && write.checked === checked);
    return until(what, said, 60_000);
  }

  judge(accepted: readonly Accepted[]): { violations: string[]; refused: number; figures: string } {
    const terms = this.#said<Elected>("elected").toSorted((one, two) => one.token - two.token);
    const writes = this.#said<Write>("write");
    const violations = [
      ...terms.flatMap(({ token }, n) => (terms[n + 1]?.token === token ? [`two terms have token ${token}`] : [])),
      ...terms.flatMap((term, n) => this.#breaches(term, terms[n + 1], writes, accepted)),
      ...accepted.flatMap(({ token }, n) => {
        const before = accepted[n - 1]?.token ?? 0;
        return token < before ? [`the resource accepted ${token} after ${before}`] : [];
      }),
    ];
    const refused = writes.filter((write) => !write.accepted).length;
    const figures =
      `${terms.length} terms, ${this.#ended.size - this.#pauses.length} kills, ${this.#pauses.length} pauses, ` +
      `${accepted.length} writes accepted, ${refused} refused`;
    return { violations, refused, figures };
  }

  /**
   * A term is one process's, which is not refused while it leads, and has stopped before the next begins. Only a process
   * that was stopped between its look at the clock and its write may be late: that is what the resource refuses.
   */
  #breaches(
    term: Elected,
    next: Elected | undefined,
    writes: readonly Write[],
    accepted: readonly Accepted[],
  ): string[] {
    const { token, member } = term;
    const nextAt = next?.at ?? Infinity;
    const own = writes.filter((write) => write.token === token);
    const paused = this.#pauses.some((one) => one.member === member && one.from <= nextAt && nextAt <= one.to);
    const kept = accepted.filter((write) => write.token === token);
    const believing = paused ? [] : own.filter((write) => write.checked);
    return [
      ...own.filter((write) => write.member !== member).map(() => `another process wrote with token ${token}`),
      ...kept.filter(({ writer }) => writer !== member.pid).map(() => `the resource knows another ${token}`),
      ...(kept.length === 0 && !this.#ended.has(token) && next !== undefined ? [`${token} led and wrote nothing`] : []),
      ...believing.filter(({ at }) => at > nextAt).map(({ at }) => `${token} wrote at ${at}, after ${nextAt}`),
      ...believing.filter((write) => !write.accepted).map(({ at }) => `${token} was refused at ${at}, while it led`),
    ];
  }

  #said<T extends Elected>(event: "elected" | "write"): T[] {
    return this.members.flatMap((member) =>
      (member.lines as (T & { event: string })[])
        .filter((line) => line.event === event)
        .map((line) => ({ ...line, member })),
    );
  }
}

function now(): number {
  return Number(process.hrtime.bigint() / 1000n) / 1000;
}
