/*
 * Not here, because nothing can come of it: whoever finds that the newest set has gone could go on without asking the next one. The one
 * that removed the set has removed the contents of those whom its own set shuts out before.
 */

/** The file fence with one of the orders or conditions that it rests on taken out. The model must reject each by the rule named here. */
export type FileMutant = {
  readonly name: string;
  readonly rejectedBy: "order" | "refused" | "litter" | "power";
  readonly edits: readonly (readonly [from: string, to: string])[];
};

const mutant = (
  name: string,
  rejectedBy: FileMutant["rejectedBy"],
  ...edits: (readonly [string, string])[]
): FileMutant => ({ name, rejectedBy, edits });

const PUT = "await put(own, data, (await modeOf(file)) ?? mode);\n";
const WRITE = "    await writeMarkers(path, folder, token);\n";
const CHECK = "    await checkMarkers(path, folder, token);\n";
const CONTENTS = `  await Promise.all([remove("write", isOver), remove("draft", isOver)]);\n`;
const FLOORS = `  await remove("floor", (one) => one < floor);\n`;
const SETS = `  await remove("set", (one) => one < (live === undefined ? floor : token));\n`;

export const FILE_MUTANTS: readonly FileMutant[] = [
  mutant("checks markers before it writes its own", "order", [WRITE + CHECK, CHECK + WRITE]),
  mutant("writes its content after it has checked markers", "order", [PUT, "\n"], [CHECK, `${CHECK}    ${PUT}`]),
  mutant("removes markers before contents", "order", [CONTENTS + FLOORS, FLOORS + CONTENTS]),
  mutant("removes markers and contents at once", "order", [
    CONTENTS + FLOORS,
    `  await Promise.all([remove("write", isOver), remove("draft", isOver), remove("floor", (one) => one < floor)]);\n`,
  ]),
  mutant("removes sets before contents", "order", [CONTENTS + FLOORS + SETS, SETS + CONTENTS + FLOORS]),
  mutant("removes no contents", "order", [CONTENTS, ""]),
  mutant("removes contents below its token", "refused", ["=> one < floor ||", "=> one < token ||"]),
  mutant("leaves the contents of those that its set shuts out", "order", [
    "|| (live !== undefined && one < token && !live.includes(one))",
    "",
  ]),
  mutant("removes the contents of those that live", "refused", ["&& !live.includes(one));", ");"]),
  mutant("removes its own marker", "order", ["(one) => one < floor)", "(one) => one <= floor)"]),
  mutant("removes markers above its floor", "order", ["(one) => one < floor)", "(one) => one < token)"]),
  mutant("removes its own set", "order", ["(one) => one < (live", "(one) => one <= (live"]),
  mutant("refuses its equal", "refused", ["if (token < fence)", "if (token <= fence)"]),
  mutant("puts no marker down", "order", [`await putMarker(join(folder, \`floor-\${floor}\`));`, ""]),
  mutant("puts its token down in place of its floor", "refused", [`\`floor-\${floor}\``, `\`floor-\${token}\``]),
  mutant("never asks the newest set", "order", [
    "if (live !== undefined) await checkAmongLive",
    "if (false) await checkAmongLive",
  ]),
  mutant("leaves its content when it is refused", "litter", ["await rm(own, { force: true });", ""]),
  mutant("leaves its draft", "litter", ["await rm(draft, { force: true });", ""]),
  mutant("leaves older markers", "litter", [FLOORS, ""]),
  mutant("leaves older sets", "litter", [SETS, ""]),
  mutant("does not wait for its content to be on the disk", "power", [
    "await handle.writeFile(data);\n    await handle.sync();",
    "await handle.writeFile(data);",
  ]),
  mutant("does not wait for its markers to be on the disk", "power", [
    "  }\n  await syncFolder(folder);\n}\n\n/** Its name",
    "  }\n}\n\n/** Its name",
  ]),
  mutant("does not wait for the renaming to be on the disk", "power", [
    "  await syncFolder(dirname(file));\n}\n",
    "}\n",
  ]),
  mutant("does not wait for the folder of the fence to be on the disk", "power", [
    "if ((await mkdir(folder, { recursive: true })) !== undefined) await syncFolder(dirname(file));",
    "await mkdir(folder, { recursive: true });",
  ]),
];
