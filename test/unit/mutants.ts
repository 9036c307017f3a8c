/** Deliberately broken copies of the library: what to change in the compiled files, and what must notice. */
export type Mutant = {
  readonly name: string;
  readonly file: string;
  /** Each text must occur exactly once. */
  readonly edits: readonly (readonly [from: string, to: string])[];
  /** The conformance case, or the rule of the history's checkers, that must reject it. */
  readonly rejectedBy: string;
  /** Where the simulation showed it when this was written; if the simulation changes, another seed will. */
  readonly seed?: number;
};

const STORE = "engines/memory/store.js";
const store = (name: string, rejectedBy: string, ...edits: [string, string][]): Mutant => ({
  name,
  file: STORE,
  edits,
  rejectedBy,
});

/** The memory engine, broken. Each is rejected by the conformance case named here. */
export const BROKEN_ENGINES: readonly Mutant[] = [
  store("no owner check on release", "only the claim's own id releases it", [
    `const entry = this.#find(ref, now);\n        if (entry === undefined)\n            return before`,
    `const entry = this.#find(ref, now) ?? this.#names.get(name)?.holders.first ?? undefined;\n        if (entry === undefined)\n            return before`,
  ]),
  store("overtaking", "a claim that would fit does not overtake one that waits", [
    `name.waiters.first === null && fits(name, units)`,
    `fits(name, units)`,
  ]),
  store("last in, first out", "waiting claims are granted in order of arrival, one at a time", [
    `name.waiters.push(entry);`,
    `name.waiters.insertAfter(null, entry);`,
  ]),
  store(
    "token reuse",
    "tokens are positive safe integers that grow over every grant: free, handed over, expired, idle in between",
    [
      `Math.max(name.lastToken + 1, Math.floor(this.#clock.wallMs() * 1000), tokenAtLeast)`,
      `Math.max(1, tokenAtLeast)`,
    ],
  ),
  store("token minted twice", "a grant keeps its token: asked again, renewed, extended, shrunk", [
    `if (request.tokenAtLeast !== undefined)\n                this.#raise(entry, request.tokenAtLeast);`,
    `this.#raise(entry, entry.name.lastToken + 1);`,
  ]),
  store("lease not extended", "renewal keeps the lease, each answer carrying the time left in that very step", [
    `entry.endsAt = Math.max(entry.endsAt, now + (request.leaseMs ?? entry.claim.leaseMs));`,
    ``,
  ]),
  store(
    "lease extended for a dead id",
    "a lease that is not renewed ends, and the dead id is not revived",
    [
      `if (entry.endsAt <= now)\n                this.#delete(entry);\n            else`,
      `if (false) ;\n            else`,
    ],
    [`if (entry === undefined || entry.endsAt > now)`, `if (true)`],
  ),
  store("lease end moves back", "a heartbeat may bring a longer lease, and a lease end never moves back", [
    `Math.max(entry.endsAt, now + (request.leaseMs ?? entry.claim.leaseMs))`,
    `now + (request.leaseMs ?? entry.claim.leaseMs)`,
  ]),
  store(
    "expiry shared by all readers",
    "each holder has its own lease: a dead reader leaves although live ones are renewed",
    [
      `const entry = this.#find(request, now);`,
      `for (const one of this.#names.get(request.name)?.holders ?? []) one.endsAt = now + one.claim.leaseMs;\n        const entry = this.#find(request, now);`,
    ],
  ),
  store(
    "held from the request on",
    "inspect tells since when a claim waits, and from its grant on since when it holds; nothing but the grant resets it",
    [`entry.since = now;`, ``],
  ),
  store(
    "a heartbeat resets the time",
    "inspect tells since when a claim waits, and from its grant on since when it holds; nothing but the grant resets it",
    [
      `const entry = this.#find(request, now);`,
      `const entry = this.#find(request, now);\n        if (entry !== undefined) entry.since = now;`,
    ],
  ),
  store("orphan after withdraw", "a claim withdrawn while it waits leaves its position to the next", [
    `this.#remove(entry, now, to);\n        // Taken`,
    `if (entry.holds) this.#remove(entry, now, to);\n        // Taken`,
  ]),
  store(
    "late claim revived (no tombstone)",
    "a claim that arrives after its own release is gone: a release of an unknown id leaves a tombstone",
    [`this.#tombstones.set(keyOf(ref), now + TOMBSTONE_MS, now);`, `;`],
  ),
  store(
    "a claim sent again takes twice",
    "a claim sent again takes once: the same token, no more time, no second position",
    [`if (known !== undefined)`, `if (known !== undefined && known.holds)`],
  ),
  store(
    "token minted at the grant",
    "a claim's token is minted when it arrives: told while it waits, and the one that it holds with",
    [
      `this.#grant(entry, now);\n                const { id }`,
      `entry.token = this.#mint(name, {});\n                this.#grant(entry, now);\n                const { id }`,
    ],
  ),
  store(
    "told to stand behind another client's claim",
    "a claim that waits is told on arrival which claim of its own client is directly before it, and no other",
    [`ahead?.push === push && ahead.endsAt > now`, `ahead !== null && ahead.endsAt > now`],
  ),
  store(
    "told to stand behind the first of the queue",
    "a claim that waits is told on arrival which claim of its own client is directly before it, and no other",
    [`name.waiters.last ?? name.holders.last`, `name.waiters.first ?? name.holders.first`],
  ),
  store(
    "told to stand behind a dead claim",
    "a claim whose lease has ended is not the one that a new claim is told to stand behind",
    [`ahead?.push === push && ahead.endsAt > now`, `ahead?.push === push`],
  ),
  store(
    "pushed to although its client has let it go on",
    "a claim that its client has let go on already is granted by the release without a push",
    [`if (id !== to)`, `if (true)`],
  ),
  store(
    "nobody is pushed to once a client has let a claim go on",
    "a claim that its client has let go on already is granted by the release without a push",
    [`if (id !== to)`, `if (to === undefined)`],
  ),
  store(
    "tokens kept by a claim are minted again",
    "tokens that a claim keeps for itself are nobody else's, whether it holds or waits",
    [`name.lastToken = token + reserve;`, `name.lastToken = token;`],
  ),
  store(
    "a raise above the token of a claim that waits",
    "a suggested token is kept when it is higher, raised by a renewal, and never gone below",
    [`token <= entry.token || name.waiters.first !== null`, `token <= entry.token`],
  ),
  store("permits leaked", "permits add up to the capacity and not beyond, and come back exactly once", [
    `name.taken -= entry.units;`,
    `name.taken -= 1;`,
  ]),
  store("partial multi-permit", "several permits are granted all or none", [
    `return name.taken + units <= name.capacity;`,
    `return name.taken < name.capacity;`,
  ]),
  store("capacity ignored", "another capacity is a mismatch while the name is in use, and forgotten when it is idle", [
    `if (name.capacity !== claim.capacity)`,
    `if (false)`,
  ]),
  store("capacity compared before the id", "a known id is answered before the capacity is compared", [
    `if (known !== undefined)`,
    `if (known !== undefined && known.name.capacity === claim.capacity)`,
  ]),
  store("reader beside writer", "readers share, a writer is alone, and later readers wait behind a waiting writer", [
    `return name.taken + units <= name.capacity;`,
    `return units === 1 && name.capacity > 1000 ? true : name.taken + units <= name.capacity;`,
  ]),
  store(
    "push only, no truth in the store",
    "the release itself grants the first waiter: nobody comes between, pushed or not",
    [
      `name.waiters.remove(entry);\n                // Its waiter lease stays as it is: the confirmation starts the lease proper.\n                this.#grant(entry, now);\n                const { id } = entry.claim;\n                if (id !== to)\n                    entry.push({ kind: "granted", name: name.name, id, ...fenceOf(entry) });`,
      `entry.push({ kind: "granted", name: name.name, id: entry.claim.id, token: entry.token, floor: entry.token });\n                break;`,
    ],
  ),
  store("no push", "a grant after waiting is pushed to the client that asked, with its token, and to nobody else", [
    `entry.push({ kind: "granted", name: name.name, id, ...fenceOf(entry) });`,
    `;`,
  ]),
  store("a loss by force is not told", "a release by somebody else is told to the holder", [
    `entry.push({ kind: "lost", name, id });`,
    `;`,
  ]),
  store("leftMs from the wrong step", "a grant asked for again tells the time that is left, not the whole lease", [
    `const leftMs = entry.endsAt - now;`,
    `const leftMs = entry.claim.leaseMs;`,
  ]),
  store(
    "the hand-over starts a new lease",
    "the hand-over leaves the waiter lease as it is: a grant that nobody confirms ends with it",
    [
      `name.waiters.remove(entry);\n                // Its`,
      `name.waiters.remove(entry);\n                entry.endsAt = now + entry.claim.leaseMs;\n                // Its`,
    ],
  ),
  store(
    "floor missing",
    "the floor is the lowest live token: its own for an exclusive grant, the oldest holder's for a shared one",
    [`const floor = name.holders.first?.token ?? token;`, `const floor = token;`],
  ),
  store("dead waiters block", "a waiter that shows no heartbeat does not block those behind it", [
    `if (entry.endsAt <= now) {\n                this.#delete(entry);\n            }\n            else if (fits(name, entry.units))`,
    `if (entry.endsAt > now && fits(name, entry.units))`,
  ]),
  store("units grow", "a writer becomes a reader without letting go; units never grow", [
    `!entry.holds || units > entry.units`,
    `!entry.holds`,
  ]),
  store("a new capacity is ignored", "a larger capacity lets in what now fits; new claims must agree with it", [
    `name.capacity = to;`,
    ``,
  ]),
];

/** The core, broken. Each is rejected by a rule of the history's checkers within the seeds that CI runs. */
export const BROKEN_CORES: readonly Mutant[] = [
  {
    name: "a full lease instead of the time left",
    file: "core/attempt.js",
    edits: [[`Math.min(answer.leftMs, this.claim.leaseMs)`, `this.claim.leaseMs`]],
    seed: 63,
    rejectedBy: "exclusion",
  },
  {
    name: "the deadline counts from the answer, not from the request",
    file: "core/grant.js",
    edits: [[`this.deadline = deadlineOf(sentAt, leftMs);`, `this.deadline = deadlineOf(client.clock.now(), leftMs);`]],
    seed: 12,
    rejectedBy: "exclusion",
  },
  {
    name: "a pushed grant counts from its arrival",
    file: "core/attempt.js",
    edits: [
      [`this.#granted(fence, this.#placeMs, this.#heartbeatAt, now)`, `this.#granted(fence, this.#placeMs, now, now)`],
    ],
    seed: 1437,
    rejectedBy: "exclusion",
  },
  {
    name: "a claim sent again counts as a heartbeat",
    file: "core/attempt.js",
    edits: [[`answer.kind === "queued" ? this.#heartbeatAt : sentAt`, `sentAt`]],
    seed: 4331,
    rejectedBy: "exclusion",
  },
  {
    name: "no margin",
    file: "core/limits.js",
    edits: [[`return sentAt + leftMs - (leftMs * 0.01 + 5);`, `return sentAt + leftMs;`]],
    seed: 22,
    rejectedBy: "exclusion",
  },
  {
    name: "no tombstones",
    file: STORE,
    edits: [[`this.#tombstones.set(keyOf(ref), now + TOMBSTONE_MS, now);`, `;`]],
    seed: 8,
    rejectedBy: "no orphan",
  },
  {
    name: "no release leaves a tombstone",
    file: "core/client.js",
    edits: [[`new ReleaseCall(this, request,`, `new ReleaseCall(this, { ...request, tombstone: "never" },`]],
    seed: 8,
    rejectedBy: "no orphan",
  },
  {
    name: "whoever leaves early leaves its claim behind",
    file: "core/attempt.js",
    edits: [[`this.#client.withdraw(this.claim, this.claim.leaseMs, this.#tombstone);`, ``]],
    seed: 7,
    rejectedBy: "no orphan",
  },
  {
    name: "a claim goes on at the release of a hold beside which an older one lives",
    file: "core/grant.js",
    edits: [[`this.fence.floor === this.fence.token`, `true`]],
    seed: 20,
    rejectedBy: "exclusion",
  },
  {
    name: "a claim goes on at the release of the youngest holder, whoever waits before it",
    file: STORE,
    edits: [[`name.waiters.last ?? name.holders.last`, `name.holders.last`]],
    seed: 7,
    rejectedBy: "exclusion",
  },
  {
    name: "a claim that goes on without asking counts from then",
    file: "core/attempt.js",
    edits: [[`this.#heartbeatAt, now, relay)`, `now, now, relay)`]],
    seed: 870,
    rejectedBy: "exclusion",
  },
  {
    name: "a claim that goes on without asking has another token than the store's",
    file: "core/attempt.js",
    edits: [[`const token = this.#token;`, `const token = this.#token - 1;`]],
    seed: 7,
    rejectedBy: "floor",
  },
  {
    name: "a hung renewal silences the deadline",
    file: "core/grant.js",
    edits: [[`return this.deadline;`, `return Infinity;`]],
    seed: 3,
    rejectedBy: "told in time",
  },
];
