import { UnsupportedError } from "../core/errors.js";

/** Loads a client library; passed in, so that a test can take one away. */
export type Load = (library: string) => Promise<unknown>;

// The name is not written into the import, so that a bundler does not demand a library that is not installed.
export const loadInstalled: Load = (library) => import(library);

/** The library's module, or null where it is not installed. One that is installed and broken is the user's to know. */
export async function loadIfInstalled(library: string, load: Load): Promise<unknown> {
  try {
    return await load(library);
  } catch (error) {
    const { code, message = "" } = error as { code?: string; message?: string };
    const [scope = "", name = ""] = library.split("/");
    const packageName = scope.startsWith("@") ? `${scope}/${name}` : scope;
    if (code === "ERR_MODULE_NOT_FOUND" && message.includes(`'${packageName}'`)) return null;
    throw error;
  }
}

/** What to throw when none of an engine's libraries is there. */
export function libraryMissing(kind: string, library: string): UnsupportedError {
  return new UnsupportedError(kind, "its client library is not installed", `Run: npm install ${library}`);
}
