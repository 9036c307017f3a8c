import type { Chance } from "../core/clock.js";

/** Chance from a seed (mulberry32): the same seed, the same run. */
export class SeededChance implements Chance {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  fraction(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  id(): string {
    const bytes = Buffer.alloc(16);
    for (let at = 0; at < bytes.length; at += 4) bytes.writeUInt32LE(Math.floor(this.fraction() * 2 ** 32), at);
    return bytes.toString("base64url");
  }

  /** A whole number from `least` to `most`, both included. */
  between(least: number, most: number): number {
    return least + Math.floor(this.fraction() * (most - least + 1));
  }

  chance(probability: number): boolean {
    return this.fraction() < probability;
  }
}
