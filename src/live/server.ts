import type { Client } from "../core/client.js";
import type { StoreView } from "./wire.js";

/** Nobody takes it: what a read of it takes is what the way to the store and back takes. */
const PROBE_NAME = "holdfast:live-view:probe";

/** What the store says about itself, and how fast it says anything. */
export async function readServer(client: Client): Promise<StoreView> {
  const { engine, clock } = client;
  const startedAt = clock.now();
  const probeMs = await client.state(PROBE_NAME).then(
    () => Math.round((clock.now() - startedAt) * 10) / 10,
    () => null,
  );
  const info = (await engine.serverInfo?.().catch(() => null)) ?? null;
  return {
    engine: engine.kind,
    guarantees: engine.guarantees,
    server: info && { ...info },
    probeMs,
  };
}
