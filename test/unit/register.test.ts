import { expect, test } from "vitest";
import { Register } from "../../src/core/register.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

test("a register is a map, whatever comes and goes", () => {
  for (let seed = 0; seed < 200; seed += 1) {
    const chance = new SeededChance(seed);
    const register = new Register<object>();
    const map = new Map<string, object>();
    // With one key it never has two entries; with more it has one now and then.
    const keys = ["a", "b", "c", "d"].slice(0, 1 + (seed % 4));
    for (let step = 0; step < 60; step += 1) {
      const key = keys[chance.between(0, keys.length - 1)] ?? "a";
      const value = {};
      const draw = chance.fraction();
      if (draw < 0.3 && !map.has(key)) {
        register.add(key, value);
        map.set(key, value);
      } else if (draw < 0.5) {
        register.set(key, value);
        map.set(key, value);
      } else if (draw < 0.6) {
        register.delete(key, value);
      } else {
        const there = map.get(key);
        if (there !== undefined) register.delete(key, there);
        map.delete(key);
      }
      expect(register.size).toBe(map.size);
      for (const one of keys) {
        expect(register.get(one)).toBe(map.get(one));
        expect(register.has(one)).toBe(map.has(one));
      }
      expect(new Set(register.values())).toEqual(new Set(map.values()));
    }
  }
});

test("what was gone through may leave and come meanwhile", () => {
  const register = new Register<string>();
  for (const key of ["a", "b", "c"]) register.add(key, key);
  const seen: string[] = [];
  for (const value of register.values()) {
    seen.push(value);
    register.delete(value, value);
    register.add(`${value} again`, value);
  }
  expect(seen).toEqual(["a", "b", "c"]);
  expect(register.size).toBe(3);
});
