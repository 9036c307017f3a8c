// Beyond the common files of an engine: transactions that write are sent together, because each call costs more than what it does.

import { behindOthers } from "../../core/turn.js";
import { didNothing } from "./errors.js";
import type { RequestOp, TxnRequest, TxnResponse } from "./messages.js";

/**
 * So many in one call. etcd counts the operations of a nested transaction and of the one around it together (`--max-txn-ops`, 128
 * by default); and with fewer in a call the client reads one answer while the server works on the next call.
 */
const PARTS_MAX = 32;

type Answer = { readonly response: TxnResponse };

/** `appends`: the name to whose queue the transaction appends a claim. */
type Part<Answered> = {
  readonly request: TxnRequest;
  readonly appends: string | null;
  readonly resolve: (answered: Answered) => void;
  readonly reject: (cause: unknown) => void;
};

/**
 * What is written in one turn of the event loop goes out together, as transactions inside of one. All of them are compared
 * before any of them writes, and all of them have one revision: so no two claims of one name are in one call, because each is to be
 * compared with the other in its place, and their revisions tell who came first.
 */
export class Bulk<Answered extends Answer> {
  readonly #send: (request: TxnRequest) => Promise<Answered>;
  /** Does nothing, and needs the right to write here: etcd 3.4, at least, checks no rights of what is nested. */
  readonly #needsRights: RequestOp;
  #gathered: Part<Answered>[] = [];

  constructor(send: (request: TxnRequest) => Promise<Answered>, needsRights: RequestOp) {
    this.#send = send;
    this.#needsRights = needsRights;
  }

  write(request: TxnRequest, appends: string | null = null): Promise<Answered> {
    return new Promise((resolve, reject) => {
      this.#gathered.push({ request, appends, resolve, reject });
      if (this.#gathered.length === 1) behindOthers(() => this.#flush());
    });
  }

  #flush(): void {
    const parts = this.#gathered;
    this.#gathered = [];
    for (const call of callsOf(parts)) void this.#call(call);
  }

  async #call(parts: readonly Part<Answered>[]): Promise<void> {
    const [first] = parts;
    if (first !== undefined && parts.length === 1) return this.#alone(first);
    try {
      const nestedOnes = parts.map(({ request }) => ({ request_txn: request }));
      const answered = await this.#send({ success: [...nestedOnes, this.#needsRights] });
      parts.forEach(({ resolve, reject }, n) => {
        const nested = answered.response.responses[n]?.response_txn;
        if (nested === undefined) return reject(new Error("etcd left out the answer to a nested transaction"));
        resolve({ ...answered, response: { ...nested, header: answered.response.header } });
      });
    } catch (cause) {
      // Refused because of one of them, perhaps: each hears its own.
      if (didNothing(cause)) await Promise.all(parts.map((part) => this.#alone(part)));
      else for (const { reject } of parts) reject(cause);
    }
  }

  async #alone({ request, resolve, reject }: Part<Answered>): Promise<void> {
    try {
      resolve(await this.#send(request));
    } catch (cause) {
      reject(cause);
    }
  }
}

/** Who leaves comes first: what a claim reads as it is appended then shows who is left. */
function callsOf<Answered>(parts: readonly Part<Answered>[]): readonly (readonly Part<Answered>[])[] {
  const calls: Part<Answered>[][] = [];
  const next = new Map<string, number>();
  let open = 0;
  for (const part of [...parts.filter(({ appends }) => appends === null), ...parts.filter(({ appends }) => appends)]) {
    while ((calls[open]?.length ?? 0) >= PARTS_MAX) open += 1;
    let n = part.appends === null ? open : Math.max(open, next.get(part.appends) ?? 0);
    while ((calls[n]?.length ?? 0) >= PARTS_MAX) n += 1;
    (calls[n] ??= []).push(part);
    if (part.appends !== null) next.set(part.appends, n + 1);
  }
  return calls;
}
