import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Attributes, Link, Meter, SpanStatus, Tracer } from "@opentelemetry/api";

/** What the tests use of the SDK, whose types are not installed where the library's are. */
type FinishedSpan = {
  readonly name: string;
  readonly attributes: Attributes;
  readonly status: SpanStatus;
  readonly links: readonly Link[];
  readonly events: readonly { readonly name: string }[];
  readonly parentSpanContext?: { readonly spanId: string };
  spanContext(): { readonly spanId: string };
};

type Metric = {
  readonly descriptor: { readonly name: string; readonly unit: string };
  readonly dataPoints: readonly {
    readonly attributes: Attributes;
    readonly value: number | { readonly count: number; readonly sum?: number };
  }[];
};

export type InMemory = {
  readonly meter: Meter;
  readonly tracer: Tracer;
  spans(): readonly FinishedSpan[];
  forget(): void;
  metrics(): Promise<readonly Metric[]>;
};

type Sdk = { followContext(): void; inMemory(): InMemory };

const SDK_FOLDER = resolve(import.meta.dirname, "../../tools/telemetry");
const load = (file: string): Promise<unknown> => import(pathToFileURL(join(SDK_FOLDER, file)).href);

/** It is there: `install-first.ts` saw to it before the run. */
export const openTelemetry = (): Promise<Sdk> => load("sdk.mjs") as Promise<Sdk>;

export async function installOpenTelemetry(): Promise<void> {
  ((await load("install.mjs")) as { install(): void }).install();
}
