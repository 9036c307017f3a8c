import type { Clock } from "../core/clock.js";
import { EngineRefusedError, InvalidOptionError } from "../core/errors.js";

/** Who a connection is made as. */
export interface Credentials {
  /** Else the user in the URL. */
  readonly username?: string;
  readonly password: string;
}

/** Asked whenever a connection is made, so that a password may change while the program runs. */
export type CredentialsFunction = () => Credentials | Promise<Credentials>;

/** The same, checked and within a time limit. */
export type AskCredentials = () => Promise<Credentials>;

const ADVICE = "Let the function credentials answer with { username, password }, both text; username may be left out.";

type Given = { readonly username: string | undefined; readonly password: string | undefined };
type Limits = { readonly clock: Clock; readonly callTimeoutMs: number };

/** Undefined where none was given. `url`: the user and the password in the URL, of which the user counts where the function names none. */
export function askCredentials(
  kind: string,
  credentials: CredentialsFunction | undefined,
  url: Given,
  { clock, callTimeoutMs }: Limits,
): AskCredentials | undefined {
  if (credentials === undefined) return undefined;
  // Not shown: it may be the password itself.
  if (typeof credentials !== "function") {
    throw new InvalidOptionError("credentials", `it is of type ${typeof credentials}`, "a function");
  }
  if (url.password !== undefined) {
    throw new InvalidOptionError(
      "credentials",
      "the URL has a password too",
      "one of the two; the URL may have a user",
    );
  }
  // Half of it: the rest is for the connection itself.
  const limitMs = callTimeoutMs / 2;
  return async () => {
    const answer = await within(clock, limitMs, async () => credentials());
    const { username = url.username, password } = (answer ?? {}) as Partial<Credentials>;
    // What it is instead is not shown: it may be a secret in the wrong place.
    if (!isText(password) || (username !== undefined && !isText(username))) {
      throw new EngineRefusedError(kind, ADVICE, new Error("the function credentials gave no password"));
    }
    return username === undefined ? { password } : { username, password };
  };
}

const isText = (value: unknown): value is string => typeof value === "string" && value !== "";

/** It may throw because a service is away, which passes. */
function within<T>(clock: Clock, limitMs: number, ask: () => Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const fail = (why: string): void => reject(new Error(`the function credentials ${why}`));
    const timer = clock.after(limitMs, () => fail(`gave no answer within ${Math.round(limitMs)} ms`));
    ask()
      .then(resolve, (cause: unknown) => fail(`failed: ${cause instanceof Error ? cause.message : String(cause)}`))
      .finally(() => clock.cancel(timer));
  });
}
