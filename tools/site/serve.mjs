// The built site, on a port of its own: as a static host serves it, without the endings of pages.
import { existsSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";

const OUT = join(import.meta.dirname, "out");
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".txt": "text/plain; charset=utf-8",
  ".md": "text/plain; charset=utf-8",
};

const isFile = (path) => existsSync(path) && statSync(path).isFile();

export function serveSite() {
  const server = createServer((request, response) => {
    const path = join(OUT, normalize(decodeURI(new URL(request.url, "http://site").pathname)));
    const file = [path, `${path}.html`, join(path, "index.html")].find(isFile);
    response.writeHead(file === undefined ? 404 : 200, { "content-type": TYPES[extname(file ?? ".html")] ?? "" });
    response.end(readFileSync(file ?? join(OUT, "404.html")));
  });
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => resolve({ url: `http://127.0.0.1:${server.address().port}`, server }));
  });
}
