import { onAbort } from "../../../core/abort.js";

/** Connects. What could not be connected, or is not wanted any longer, is ended: it would stay open half made. */
export async function connected(
  connection: { connect(): Promise<unknown> },
  unwanted: AbortSignal,
  end: () => void,
): Promise<void> {
  const unlisten = onAbort(unwanted, end);
  try {
    await connection.connect();
  } catch (error) {
    end();
    throw error;
  } finally {
    unlisten();
  }
}
