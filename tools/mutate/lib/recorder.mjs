/**
 * Which tests of a file pass which probe; `note` is called once for each pair, with "" for all tests of the file.
 *
 * Files share their modules, and a module is evaluated for the first of them alone. What stands outside of its functions decides
 * for whoever comes later too: so `evaluated`, which the files share, counts for each of them.
 */
export function recorder(note, evaluated) {
  const under = new Set();
  const seen = new Set();
  const noteOnce = (number, test) => {
    if (seen.has(`${number} ${test}`)) return;
    seen.add(`${number} ${test}`);
    note({ number, test });
  };
  for (const number of evaluated) noteOnce(number, "");
  return {
    reached(number, isOfModule) {
      if (isOfModule) evaluated.add(number);
      for (const test of isOfModule || under.size === 0 ? [""] : under) noteOnce(number, test);
    },
    begun: (test) => under.add(test),
    ended(test, ms) {
      under.delete(test);
      note({ test, ms });
    },
  };
}
