import type { ClaimedMap } from "./claimed.js";
import type { Leaving } from "./leaving.js";
import type { Member } from "./member.js";
import type { Settings } from "./options.js";

/** What the verbs of one quorum share. */
export type Parts = {
  readonly members: readonly Member[];
  readonly settings: Settings;
  readonly claims: ClaimedMap;
  readonly leaving: Leaving;
  /** Seen in any grant: no suggestion goes below. */
  highestToken: number;
};
