// Takes a lock away by force and stands still between the commit and its message, until it is told to go on.
import { readSync, writeSync } from "node:fs";
import Database from "libsql";
import { sqliteEngine } from "../../dist/engines/sqlite/index.js";

const [file, name, id] = process.argv.slice(2);
const database = new Database(file);
let armed = false;

const engine = sqliteEngine({
  exec(sql) {
    database.exec(sql);
    if (!armed || sql !== "COMMIT") return;
    armed = false;
    writeSync(1, `${JSON.stringify("committed")}\n`);
    // Nothing else runs here until a line has come.
    readSync(0, Buffer.alloc(100));
  },
  prepare: (sql) => database.prepare(sql),
  close: () => database.close(),
});
await engine.ready();
armed = true;
const answer = await engine.release({ name, id });
writeSync(1, `${JSON.stringify(answer)}\n`);
await engine[Symbol.asyncDispose]();
