import { readFileSync } from "node:fs";
import { join } from "node:path";
import { defineConfig } from "vitepress";
import { anchor, links, onSite } from "../links.mjs";
import { DOCS, groupsOf, ROOT } from "../list.mjs";
import { writeForReaders } from "../llms.mjs";

const { version, repository } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));

/** Where the owner put the repository: without its address there are no links to it. */
const address = (repository?.url ?? repository)?.replace(/^git\+|\.git$/g, "");
const files = address === undefined ? null : `${address}/blob/main`;
const changes = files === null ? null : `${files}/CHANGELOG.md`;

/** Where the site stands on its server, with a slash at both ends. */
const base = process.env.HOLDFAST_DOCS_BASE ?? "/";

const ABOUT = {
  en: "Distributed locks for Node.js: one API on one machine without a server, and on Redis, ZooKeeper, etcd, PostgreSQL, MySQL or a quorum of them.",
  zh: "Node.js 的分布式锁：一套接口，单机无需服务器，也可用 Redis、ZooKeeper、etcd、PostgreSQL、MySQL 或由它们组成的多数派。",
};

const sidebar = (language) =>
  groupsOf(language).map(({ title, pages }, at) => ({
    text: title,
    collapsed: at > 3,
    items: pages.map(({ title, link }) => ({ text: title, link })),
  }));

/** The first of a group's pages, or of several groups' in a menu. */
function nav(language, words) {
  const groups = groupsOf(language);
  const linkTo = (page) => groups.flatMap(({ pages }) => pages).find(({ path }) => path.endsWith(page))?.link;
  return [
    [words.start, "start.md"],
    [words.problems, "eight-problems.md"],
    [words.recipes, "recipes/README.md"],
    [words.engines, "choosing.md"],
    [words.playground, "playground.md"],
  ]
    .map(([text, page]) => ({ text, link: linkTo(page) }))
    .filter(({ link }) => link !== undefined);
}

/** Above the list of pages, on the first page of each language. */
const hero = (folder, { text, tagline, start, problems, playground }) => ({
  name: "Holdfast",
  text,
  tagline,
  actions: [
    { theme: "brand", text: start, link: `${folder}start` },
    { theme: "alt", text: problems, link: `${folder}eight-problems` },
    { theme: "alt", text: playground, link: `${folder}playground` },
  ],
});

const HOMES = {
  "index.md": hero("/", {
    text: "Distributed locks for Node.js",
    tagline:
      "Held locks renew themselves, holders are told before the lease ends, waiters are served in order, and every grant has a fencing token.",
    start: "First steps",
    problems: "The eight problems",
    playground: "Playground",
  }),
  "zh-CN/index.md": hero("/zh-CN/", {
    text: "Node.js 分布式锁",
    tagline: "看门狗自动续期，租约结束之前先通知持有者，等待者先到先得，每次授予都带防护令牌。",
    start: "入门",
    problems: "八个问题",
    playground: "演练场",
  }),
};

const english = {
  nav: [
    ...nav("en", {
      start: "Start",
      problems: "The eight problems",
      recipes: "Recipes",
      engines: "Engines",
      playground: "Playground",
    }),
    { text: version, link: changes ?? "/start" },
  ],
  sidebar: sidebar("en"),
  outline: { level: [2, 3] },
};

const chinese = {
  nav: [
    ...nav("zh", { start: "开始", problems: "八个问题", recipes: "用法", engines: "引擎", playground: "演练场" }),
    { text: version, link: changes ?? "/zh-CN/start" },
  ],
  sidebar: [
    ...sidebar("zh"),
    {
      text: "仅有英文",
      collapsed: true,
      items: [
        { text: "API", link: "/reference/api" },
        { text: "架构", link: "/internals/architecture" },
        { text: "编写引擎", link: "/internals/writing-an-engine" },
        { text: "如何证明", link: "/internals/proof" },
        { text: "陷阱", link: "/internals/pitfalls" },
        { text: "决策", link: "/decisions/" },
      ],
    },
  ],
  outline: { level: [2, 3], label: "本页内容" },
  docFooter: { prev: "上一页", next: "下一页" },
  darkModeSwitchLabel: "外观",
  lightModeSwitchTitle: "切换到浅色",
  darkModeSwitchTitle: "切换到深色",
  sidebarMenuLabel: "目录",
  returnToTopLabel: "回到顶部",
  langMenuLabel: "切换语言",
  skipToContentLabel: "跳到正文",
};

const CHINESE_SEARCH = {
  button: { buttonText: "搜索", buttonAriaLabel: "搜索" },
  modal: {
    displayDetails: "显示详情",
    resetButtonTitle: "清除",
    backButtonTitle: "关闭",
    noResultsText: "没有找到",
    footer: { selectText: "选择", navigateText: "移动", closeText: "关闭" },
  },
};

/** Words; and of Chinese, which has no spaces, each character and each pair. Written into the page as text: it must need nothing else. */
function tokenize(text) {
  return text
    .toLowerCase()
    .split(/[^\p{L}\p{N}_]+/u)
    .flatMap((word) => {
      if (!/\p{Script=Han}/u.test(word)) return [word];
      const characters = Array.from(word);
      return [...characters, ...characters.slice(1).map((character, at) => characters[at] + character)];
    });
}

/**
 * The pages do not stand beside node_modules. Built, Node.js finds Vue from where VitePress puts what it made of them. Served, what VitePress
 * wants to be bundled beforehand is not found from there, and does as well without.
 */
const vue = {
  name: "holdfast-vue",
  enforce: "pre",
  configResolved(config) {
    config.optimizeDeps.include = [];
  },
  resolveId(id, _, { ssr }) {
    return ssr && /^vue(\/server-renderer)?$/.test(id) ? { id, external: true } : null;
  },
};

/** The core runs in the playground: what it uses of Node.js stands in one file there. */
const node = {
  name: "holdfast-node",
  enforce: "pre",
  resolveId: (id, importer) =>
    id.startsWith("node:") && importer?.startsWith(join(ROOT, "src"))
      ? join(ROOT, "tools/site/playground/node.mjs")
      : null,
};

export default defineConfig({
  srcDir: DOCS,
  outDir: join(import.meta.dirname, "../out"),
  cacheDir: join(import.meta.dirname, "../node_modules/.cache/vitepress"),
  base,
  title: "Holdfast",
  cleanUrls: true,
  // A page says where a program of the reader's answers.
  ignoreDeadLinks: "localhostLinks",
  rewrites: onSite,
  locales: {
    root: { label: "English", lang: "en", description: ABOUT.en, themeConfig: english },
    "zh-CN": { label: "简体中文", lang: "zh-CN", description: ABOUT.zh, themeConfig: chinese },
  },
  themeConfig: {
    search: {
      provider: "local",
      options: {
        miniSearch: { options: { tokenize } },
        locales: { "zh-CN": { translations: CHINESE_SEARCH } },
      },
    },
    ...(files === null ? {} : { socialLinks: [{ icon: "github", link: address }] }),
    ...(files === null ? {} : { editLink: { pattern: `${address}/edit/main/docs/:path`, text: "Edit this page" } }),
  },
  markdown: {
    anchor: { slugify: anchor },
    headers: { slugify: anchor },
    toc: { slugify: anchor },
    theme: { light: "github-light", dark: "github-dark" },
    config: (md) => void md.use(links, { docs: DOCS, root: ROOT, files }),
  },
  // The list of what is searched is one file.
  vite: { plugins: [vue, node], build: { chunkSizeWarningLimit: 2_000 } },
  transformPageData(page) {
    const home = HOMES[page.relativePath];
    if (home !== undefined) Object.assign(page.frontmatter, { layout: "home", hero: home });
    // It has no headings to list, and needs the room.
    if (page.relativePath.endsWith("playground.md")) page.frontmatter.aside = false;
  },
  buildEnd({ outDir }) {
    writeForReaders(outDir, { base, name: "Holdfast", about: ABOUT });
    if (files === null) {
      console.log("package.json has no `repository`: there are no edit links, and links to other files are text.");
    }
  },
});
