import type { RenewAnswer, RenewRequest } from "../../core/engine.js";
import type { AckedGrants } from "./ack.js";
import { groupBy } from "./batch.js";
import { parseRenewAnswer } from "./codec.js";
import { throwIfErrorText } from "./errors.js";
import type { LockKeys } from "./keys.js";
import type { CallScript, ScriptAnswers } from "./scripts.js";

/** How many claims one call of the renewal script carries. */
const REQUESTS_PER_CALL = 100;

export type RenewalsOptions = {
  readonly call: CallScript;
  readonly keys: LockKeys;
  readonly cluster: boolean;
  /** Called when a claim waits, and so for a push. */
  readonly expectPush: () => void;
  /** Null: a grant counts when the primary has it. */
  readonly grants: AckedGrants | null;
};

/** Heartbeats, many in one call. */
export class Renewals {
  readonly #options: RenewalsOptions;

  constructor(options: RenewalsOptions) {
    this.#options = options;
  }

  async renew(requests: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    const answers: RenewAnswer[] = Array.from({ length: requests.length });
    const calls = [...this.#batches(requests)].map(async (batch) => {
      const renewals = await this.#renewBatch(batch.map(([, request]) => request));
      batch.forEach(([at], n) => {
        answers[at] = renewals[n] ?? { kind: "unknown", cause: new Error("the script left an answer out") };
      });
    });
    await Promise.all(calls);
    return throwIfAllUnknown(answers);
  }

  /** At most 100 claims each; in a Cluster each of one name, because a script's keys must live in one slot. */
  *#batches(requests: readonly RenewRequest[]): Generator<(readonly [at: number, request: RenewRequest])[]> {
    const all = [...requests.entries()];
    const groups = this.#options.cluster ? groupBy(all, ([, request]) => request.name).values() : [all];
    for (const group of groups) {
      for (let at = 0; at < group.length; at += REQUESTS_PER_CALL) yield group.slice(at, at + REQUESTS_PER_CALL);
    }
  }

  async #renewBatch(requests: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    const { call, keys, expectPush, grants } = this.#options;
    const names = requests.map((request) => keys.keyOf(request.name));
    const texts = requests.map(({ id, leaseMs = "", tokenAtLeast = "" }) => `${id}\n${leaseMs}\n${tokenAtLeast}`);
    try {
      const { texts: replies, missingAcks } = await new Promise<ScriptAnswers>((resolve, reject) =>
        call("renew", names, [...texts, keys.idleMsText], resolve, reject),
      );
      const answers = replies.map(answerOf);
      if (answers.some(({ kind }) => kind === "queued")) expectPush();
      if (grants === null) return answers;
      return await Promise.all(answers.map((one, n) => grants.confirmRenewal(requests[n], one, missingAcks)));
    } catch (cause) {
      return requests.map(() => ({ kind: "unknown", cause }));
    }
  }
}

/** When nothing was learned the whole call fails, as one that was not answered does. */
export function throwIfAllUnknown(answers: readonly RenewAnswer[]): readonly RenewAnswer[] {
  const [first] = answers;
  if (first?.kind === "unknown" && answers.every(({ kind }) => kind === "unknown")) throw first.cause;
  return answers;
}

function answerOf(text: string): RenewAnswer {
  try {
    throwIfErrorText(text);
    return parseRenewAnswer(text);
  } catch (cause) {
    return { kind: "unknown", cause };
  }
}
