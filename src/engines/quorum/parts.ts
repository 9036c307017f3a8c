import type { ClaimedMap } from "./claim-record.js";
import type { Member } from "./member.js";
import type { Settings } from "./options.js";
import type { Leaving } from "./release.js";

/** What the verbs of one quorum share. */
export type Parts = {
  readonly members: readonly Member[];
  readonly settings: Settings;
  readonly claims: ClaimedMap;
  readonly leaving: Leaving;
  /** Seen in any grant: no suggestion goes below. */
  highestToken: number;
};
