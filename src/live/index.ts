export type { Connection } from "./access.js";
export { type LiveView, liveView } from "./live-view.js";
export { forFastify, forHono, forNode } from "./mounts.js";
export type { LiveViewOptions, Permission } from "./options.js";
