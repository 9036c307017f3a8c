// Three processes print on one printer, one of them dies over its second page. No two documents may be mixed.
import { join } from "node:path";
import { example } from "../lib/example.mjs";
import { linesOf } from "../lib/files.mjs";
import { say } from "../lib/screen.mjs";

const title = "device: three processes share a printer; one is killed while it prints";
const [DOCUMENTS, PAGES] = [6, 4];

await example(import.meta.url, { title }, async ({ fleet, folder }) => {
  const printer = join(folder, "printer");
  const [ann, bob, cy] = await fleet(3, { printer, pages: PAGES });

  const printAll = async (member, count) => {
    for (let n = 1; n <= count; n += 1) await member.ask("print", { document: `${member.name}/${n}` });
  };
  const dying = async () => {
    await printAll(bob, 2);
    await bob.dies("print", { document: "bob/3", failAt: 3 });
    await cy.ask("print", { document: "bob/3 again" });
    say("cy", "printed bob's document again");
  };
  await Promise.all([printAll(ann, DOCUMENTS), printAll(cy, DOCUMENTS), dying()]);

  const sheets = linesOf(printer);
  say("", `${sheets.length} sheets came out`);
  return mixed(sheets);
});

/** A sheet that does not follow the one before it: another document's page came in between. */
function mixed(sheets) {
  return sheets.flatMap((sheet, n) => {
    const [, document, page] = /^(.*) page (\d) of/.exec(sheet) ?? [];
    if (document === undefined) return [];
    const before = sheets[n - 1] ?? "ejected";
    const follows =
      Number(page) > 1
        ? before === `${document} page ${page - 1} of ${PAGES}`
        : before === "ejected" || before.endsWith(`page ${PAGES} of ${PAGES}`);
    return follows ? [] : [`after "${before}" came "${sheet}"`];
  });
}
