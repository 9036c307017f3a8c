/** The attributes of spans and metrics. OpenTelemetry has no words for locks yet. */
export const ENGINE = "holdfast.engine";
export const KIND = "holdfast.lock.kind";
export const NAME = "holdfast.lock.name";
export const OUTCOME = "holdfast.outcome";
export const REASON = "holdfast.reason";
/** Of spans alone. */
export const UNITS = "holdfast.lock.units";
export const CAPACITY = "holdfast.lock.capacity";
export const TOKEN = "holdfast.lock.token";
/** OpenTelemetry's own. */
export const ERROR_TYPE = "error.type";
