/** A body as far as it may be kept: all of it, or what came first and the rest. */
export type Collected =
  | { readonly whole: Uint8Array; readonly stream: null }
  | { readonly whole: null; readonly stream: AsyncGenerator<Uint8Array> };

/** Reads a body up to a limit. */
export async function collect(body: AsyncIterable<unknown>, maxBytes: number): Promise<Collected> {
  const pieces = body[Symbol.asyncIterator]();
  const read: Uint8Array[] = [];
  let bytes = 0;
  for (let next = await pieces.next(); next.done !== true; next = await pieces.next()) {
    const piece = typeof next.value === "string" ? Buffer.from(next.value) : (next.value as Uint8Array);
    read.push(piece);
    bytes += piece.length;
    if (bytes > maxBytes) return { whole: null, stream: rest(read, pieces) };
  }
  return { whole: Buffer.concat(read), stream: null };
}

async function* rest(read: readonly Uint8Array[], pieces: AsyncIterator<unknown>): AsyncGenerator<Uint8Array> {
  try {
    yield* read;
    for (let next = await pieces.next(); next.done !== true; next = await pieces.next()) {
      yield typeof next.value === "string" ? Buffer.from(next.value) : (next.value as Uint8Array);
    }
  } finally {
    // The client has gone: whoever makes the body is told.
    await pieces.return?.();
  }
}
