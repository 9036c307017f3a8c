/** Every bound of the live view in one place. */

export const EVERY_DEFAULT_MS = 1_000;
export const EVERY_MIN_MS = 100;
export const EVERY_MAX_MS = 60_000;
/** A store that does not answer is asked at least this rarely. */
export const RETRY_MAX_MS = 10_000;
/** A large store is read more rarely: a millisecond of pause for so many names … */
export const NAMES_PER_MS = 2;
/** … and reading takes no more than one part in so many of the time. */
export const READING_SHARE = 10;
/** Nothing came from the store for so long: it does not answer. */
export const SILENT_MS = 2_000;
/** A page is sent after so long, whether or not the store has been read: later than it is known to be silent. */
export const PAGE_WAIT_MS = 2_500;

export const NAMES_DEFAULT = 10_000;
export const NAMES_MAX = 50_000;
/** Of one name: so many holders, and so many waiters. */
export const CLAIMS_SHOWN = 100;
/** Rows of the table for browsers without scripts. */
export const STILL_ROWS = 200;
/** Among more waiting claims than these nobody looks for deadlocks: the time it takes grows with their square. */
export const DEADLOCK_WAITERS_MAX = 200;

export const VIEWERS_DEFAULT = 50;
export const VIEWERS_MAX = 1_000;
/** What a viewer may be behind before it gets a new picture instead of all changes. */
export const BEHIND_MAX_BYTES = 1_048_576;
/** A viewer that reads nothing for so long is let go. */
export const STALLED_MAX_MS = 60_000;
/** A stream ends after so long and the page opens the next: then `authorize` is asked again. */
export const STREAM_MAX_MS = 600_000;
/** Names in one message of the whole picture: the first rows come before the last are written. */
export const CHUNK_NAMES = 250;

export const PROBE_EVERY_MS = 10_000;
