// Names of one length, and many calls a few hundred at a time.

/** All are equally long, so that each size is compared with the same. */
export const nameOf = (kind, n) => `${prefixOf(kind)}${String(n).padStart(7, "0")}`;
export const prefixOf = (kind) => `scale:${kind}:`;

/** @param {(n: number) => Promise<unknown>} run for 0 to `count` − 1, `chunk` at a time @returns their answers */
export async function inChunks(count, run, done = () => {}, chunk = 500, from = 0) {
  const answers = [];
  for (let at = from; at < count; at += chunk) {
    const some = Array.from({ length: Math.min(chunk, count - at) }, (_, n) => run(at + n));
    for (const answer of await Promise.all(some)) answers.push(answer);
    if (at > 0 && at % 100_000 === 0) done(at);
  }
  return answers;
}
