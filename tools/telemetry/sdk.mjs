// The OpenTelemetry SDK, as a program would set it up, with everything kept in memory. Install it first: install.mjs.
import { context } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { PrometheusExporter } from "@opentelemetry/exporter-prometheus";
import { MeterProvider, MetricReader } from "@opentelemetry/sdk-metrics";
import {
  BasicTracerProvider,
  BatchSpanProcessor,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-base";

class Reader extends MetricReader {
  async onForceFlush() {}
  async onShutdown() {}
}

/** One for the process: the active span is found by it. */
export function followContext() {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
}

/** A meter and a tracer, and what they were told. */
export function inMemory() {
  const reader = new Reader();
  const meters = new MeterProvider({ readers: [reader] });
  const exporter = new InMemorySpanExporter();
  const tracers = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  return {
    meter: meters.getMeter("holdfast"),
    tracer: tracers.getTracer("holdfast"),
    spans: () => exporter.getFinishedSpans(),
    forget: () => exporter.reset(),
    async metrics() {
      const { resourceMetrics, errors } = await reader.collect();
      if (errors.length > 0) throw new AggregateError(errors);
      return resourceMetrics.scopeMetrics.flatMap(({ metrics }) => metrics);
    },
  };
}

/** The same work, and nothing kept: spans are made and dropped. */
export function dropped() {
  const nowhere = { export: (_spans, done) => done({ code: 0 }), shutdown: async () => {} };
  const tracers = new BasicTracerProvider({ spanProcessors: [new BatchSpanProcessor(nowhere)] });
  const meters = new MeterProvider({ readers: [new Reader()] });
  return { meter: meters.getMeter("holdfast"), tracer: tracers.getTracer("holdfast") };
}

/** A meter whose metrics Prometheus can fetch. */
export async function forPrometheus(port) {
  const exporter = new PrometheusExporter({ port, host: "127.0.0.1", preventServerStart: true });
  await exporter.startServer();
  return new MeterProvider({ readers: [exporter] }).getMeter("holdfast");
}
