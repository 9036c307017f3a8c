// A server in a process of its own that takes a lock and never answers: one that is killed. Told what to be by its argument:
// { framework, url, lock, idempotency }. Prints its address, then the token of each request that it handles.
import { connect } from "holdfast";
import { serve } from "../../tools/web/servers.mjs";

const { framework, url, lock, idempotency } = JSON.parse(process.argv[2]);
const entry = await import(`holdfast/${framework.replace(/\d/, "")}`);
const locks = await connect(url);
/** Done, and never kept. */
const answers = { ...entry.cellAnswers(locks), put: () => new Promise(() => {}) };
const { url: address } = await serve(framework, entry, {
  locks,
  lock,
  idempotency: { answers, scope: () => "one user", ...idempotency },
  handle({ id, held }) {
    console.log(held.token);
    return id === undefined ? Promise.resolve({ status: 201 }) : new Promise(() => {});
  },
});
console.log(address);
