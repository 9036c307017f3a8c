import { Redis } from "ioredis";
import Database from "libsql";
import { connect } from "../../src/connect.js";
import { SystemChance } from "../../src/core/clock.js";
import type { EtcdDriver } from "../../src/engines/etcd/driver.js";
import { etcdClient } from "../../src/engines/etcd/index.js";
import { FUNCTIONS as MYSQL } from "../../src/engines/mysql/scripts.generated.js";
import { FUNCTIONS as POSTGRES } from "../../src/engines/postgres/scripts.generated.js";
import { zookeeperClient } from "../../src/engines/zookeeper/index.js";
import * as maria from "../servers/mariadb.js";
import type { Place } from "../servers/places.js";
import * as postgres from "../servers/postgres.js";

/** What a store contains after one of everything, with what differs from run to run replaced. */
export const DUMPS: Readonly<Record<string, (place: Place) => Promise<string>>> = {
  async sqlite({ url }) {
    const file = new Database(url.slice("sqlite:".length));
    try {
      const value = (name: string): string => String(Object.values(file.prepare(`PRAGMA ${name}`).get() as object)[0]);
      const tables = file.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").all() as {
        name: string;
      }[];
      const columns = (table: string): string =>
        (file.prepare(`SELECT name, type FROM pragma_table_info('${table}')`).all() as { name: string; type: string }[])
          .map(({ name, type }) => `${name} ${type}`)
          .join(", ");
      const { lowest } = file.prepare("SELECT lowest_version AS lowest FROM store").get() as { lowest: number };
      const { sole } = file.prepare("SELECT sole FROM name WHERE name = 'alone'").get() as { sole: string };
      return [
        `application_id ${value("application_id")}, user_version ${value("user_version")}, lowest_version ${lowest}`,
        ...tables.map(({ name }) => `${name} (${columns(name)})`),
        `name.sole: ${general(sole)}`,
      ].join("\n");
    } finally {
      file.close();
    }
  },
  async redis({ url }) {
    const client = new Redis(url);
    try {
      const keys = (await client.keys("*")).toSorted();
      const values = await Promise.all(
        keys.map(async (key) => {
          const type = await client.type(key);
          if (type === "string") return `${key}: ${general(String(await client.get(key)))}`;
          const fields = Object.entries(await client.hgetall(key)).map(
            ([field, text]) => `  ${general(`${field}: ${text}`)}`,
          );
          return [`${key}:`, ...fields.toSorted()].join("\n");
        }),
      );
      return values.join("\n");
    } finally {
      client.disconnect();
    }
  },
  async postgres({ url }) {
    const [tables, functions, versions] = await Promise.all([
      postgres.query(
        url,
        `SELECT table_name || ' (' || string_agg(column_name || ' ' || udt_name, ', ' ORDER BY ordinal_position) || ')' AS line
         FROM information_schema.columns WHERE table_schema = 'holdfast' GROUP BY table_name ORDER BY table_name COLLATE "C"`,
      ),
      postgres.query(
        url,
        `SELECT proname || '(' || pg_get_function_arguments(oid) || ') returns ' || pg_get_function_result(oid) AS line
         FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace AND proname IN (${called(POSTGRES)}) ORDER BY proname COLLATE "C"`,
      ),
      postgres.query(
        url,
        "SELECT 'migration: ' || number || ', least ' || least AS line FROM holdfast.migration ORDER BY number",
      ),
    ]);
    return [...versions, ...tables, ...functions].map(({ line }) => String(line)).join("\n");
  },
  async mariadb({ url }) {
    const [tables, functions, versions] = await Promise.all([
      maria.query(
        url,
        `SELECT CONCAT(table_name, ' (', GROUP_CONCAT(column_name, ' ', column_type ORDER BY ordinal_position SEPARATOR ', '), ')') AS line
         FROM information_schema.columns WHERE table_schema = 'holdfast' GROUP BY table_name ORDER BY table_name`,
      ),
      maria.query(
        url,
        `SELECT CONCAT(specific_name, '(', GROUP_CONCAT(parameter_name, ' ', dtd_identifier ORDER BY ordinal_position SEPARATOR ', '), ')') AS line
         FROM information_schema.parameters WHERE specific_schema = 'holdfast' AND specific_name IN (${called(MYSQL)}, 'listen', 'wake')
         GROUP BY specific_name ORDER BY specific_name`,
      ),
      maria.query(
        url,
        "SELECT CONCAT('migration: ', number, ', least ', least) AS line FROM holdfast.migration ORDER BY number",
      ),
    ]);
    return [...versions, ...tables, ...functions].map(({ line }) => String(line)).join("\n");
  },
  async etcd({ url }) {
    const client: EtcdDriver = await etcdClient(url);
    try {
      const { kvs } = await client.call("range", { key: "holdfast/", range_end: "holdfast0" });
      return lines(kvs.map(({ key, value }) => `${key}: ${value.toString()}`));
    } finally {
      client.close();
    }
  },
  async zookeeper({ url, options }) {
    const client = zookeeperClient(url, options);
    await client.start(() => {});
    try {
      const found: string[] = [];
      const walk = async (path: string): Promise<void> => {
        const [node, list] = await Promise.all([client.get(path), client.children(path)]);
        const kind = node?.stat.ephemeralOwner === "0" ? "" : " (ephemeral)";
        // The server removes empty folders when it likes.
        if (node !== null && (node.data.length > 0 || kind !== ""))
          found.push(`${path}${kind}: ${node.data.toString()}`);
        for (const name of list?.names ?? []) await walk(`${path}/${name}`);
      };
      await walk("/holdfast");
      return lines(found);
    } finally {
      await client.close();
    }
  },
};

/** Helpers of functions may come and go: programs do not call them. */
function called(functions: Readonly<Record<string, { readonly name: string }>>): string {
  return Object.values(functions)
    .map(({ name }) => `'${name}'`)
    .join(", ");
}

/** In an order that does not depend on ids. */
function lines(texts: readonly string[]): string {
  return texts
    .map((text) => general(text).trimEnd())
    .toSorted()
    .join("\n");
}

function general(text: string): string {
  return (
    text
      .replaceAll(/I{21}[A-Z]/g, "ID")
      .replaceAll(/"(host|process)":"[^"]*"/g, '"$1":"…"')
      .replaceAll(/"client":"(?!ID")[^"]*"/g, '"client":"…"')
      .replaceAll(/"(pid|endsAt|since)":[\d.]+/g, '"$1":N')
      .replaceAll(/\d{9,17}/g, "N")
      // A time in seconds and microseconds.
      .replaceAll(/^(\S+: )?N \d+ /g, "$1N N ")
      .replaceAll("\n", "⏎")
  );
}

/** Ids of the usual length that can be told from everything else. */
class KnownIds extends SystemChance {
  #made = 0;

  override id(): string {
    this.#made += 1;
    return "I".repeat(21) + String.fromCharCode(64 + this.#made);
  }
}

/** One of everything: held alone, waited for, shared, permits of a changed capacity, given up, idle, a cell. `work` runs while they are held. */
export async function oneOfEverything({ url, options }: Place, work: () => Promise<void>): Promise<void> {
  const locks = await connect(url, { ...options, label: "label", chance: new KnownIds() });
  try {
    await locks.mutex("idle").using(() => {});
    await locks.mutex("alone").acquire();
    const held = await locks.mutex("queue").acquire();
    const asked = new Promise<void>((resolve) => void locks.on("queued", () => resolve()));
    const waiting = locks.mutex("queue").acquire();
    waiting.catch(() => {});
    await asked;
    await (await locks.mutex("given up").acquire({ id: "chosen-by-this-program" })).release();
    await locks.readWrite("shared").read.acquire();
    await locks.semaphore("permits", 3).acquire({ permits: 2 });
    await locks.semaphore("permits", 3).resize(4);
    await locks.counter("cell").add(1);
    await work();
    await held.release();
    await (await waiting).release();
  } finally {
    await locks.close();
  }
}
