export { QuorumNotReached, type VoteReport } from "./errors.js";
export { quorumEngine } from "./open.js";
export { OPTIONS as QUORUM_OPTIONS, type QuorumMember, type QuorumOptions } from "./options.js";
export { quorumSize } from "./size.js";
export { parseRedlockUrl } from "./url.js";
