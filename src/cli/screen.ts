import type { Client } from "../core/client.js";
import { EngineUnavailableError } from "../core/errors.js";
import type { InspectFilter, NameState } from "../core/inspect.js";
import { abortablePause } from "./abortable-pause.js";
import { endSignal } from "./end-signal.js";
import { dim } from "./print.js";
import { printable } from "./printable.js";
import { hideSecrets } from "./secrets.js";

/** In a terminal: the whole picture, again and again, on a screen of its own. */
export class Screen {
  constructor() {
    process.stdout.write("\u001b[?1049h");
  }

  paint(text: string): void {
    const lines = `${text}\n\n${dim("Ctrl-C ends it")}`.split("\n").slice(0, (process.stdout.rows || 24) - 1);
    process.stdout.write(`\u001b[H${lines.map((line) => `${line}\u001b[K`).join("\n")}\u001b[J`);
  }

  async fail(message: string): Promise<void> {
    this.paint(printable(message));
  }

  end(): void {
    process.stdout.write("\u001b[?1049l");
  }
}

/** What shows the names in use, again and again. */
export interface Drawing {
  show(states: readonly NameState[]): Promise<void>;
  fail(message: string): Promise<void>;
  end(): void;
}

/** By name. */
export async function readStates(client: Client, filter: InspectFilter): Promise<readonly NameState[]> {
  const states: NameState[] = [];
  for await (const state of client.inspect(filter)) states.push(state);
  return states.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

/** Read and draw, until somebody ends it. */
export async function drawAgain(
  client: Client,
  prefix: string,
  everyMs: number,
  drawing: () => Drawing,
): Promise<void> {
  const end = endSignal();
  const draw = drawing();
  while (!end.aborted) {
    try {
      await draw.show(await readStates(client, { prefix }));
    } catch (error) {
      // A store that is away may come back.
      if (!(error instanceof EngineUnavailableError)) throw error;
      await draw.fail(hideSecrets(error.message));
    }
    await abortablePause(client.clock, everyMs, end);
  }
  draw.end();
}
