// Beyond the common files of an engine: the version of the layout of everything below the base path.

import type { EngineRefusedError } from "../../core/errors.js";
import { agreeOnVersion } from "../../engine-kit/layout-version.js";
import { CODE, hasCode } from "./errors.js";
import type { Nodes } from "./nodes.js";

/** Somebody else may write it, and the server remove the empty base path, but not again and again. */
const TRIES = 5;

/** One node beside the names, which stays. */
export function agree(nodes: Nodes): Promise<EngineRefusedError | null> {
  const { base, session } = nodes;
  const path = `${base}/~layout-version`;
  const place = { kind: "zookeeper", what: `the data below ${base}`, another: "a base path" } as const;
  return agreeOnVersion(place, async (seen, ours) => {
    const data = Buffer.from(ours);
    for (let tries = 1; ; tries += 1) {
      // A server that lags behind shows what was there a moment ago: as if we had come then. What is written finds that out.
      const node = await session.read((client) => client.get(path));
      const text = node?.data.toString();
      if (node !== null && text !== undefined && text !== seen) return text;
      try {
        if (node === null) await session.write((client) => client.create(path, data, "persistent"));
        else await session.write((client) => client.set(path, data, node.stat.version));
        return ours;
      } catch (error) {
        if (tries === TRIES || !hasCode(error, CODE.noNode, CODE.nodeExists, CODE.badVersion)) throw error;
        if (hasCode(error, CODE.noNode)) await nodes.makeFolder(base);
      }
    }
  });
}
