import type { Translation } from "../lib/translate.js";

/** The words of docs/zh-CN/scale.md. */
export const SCALE_PAGE: Translation = {
  texts: [
    [
      "How the Redis engine grows with the number of holds, names and clients. Times are processor time, less what both sides use while nothing is held; a machine with more cores changes how long things take, not what they use.",
      "Redis 引擎的开销怎样随持有、名字和客户端的数目增长。时间是处理器时间，减去两边在什么也不持有时的用量；核更多的机器改变的是要多久，而不是用掉多少。",
    ],
    [
      "- {}: made by `{}` on {} UTC, at commit {}, in {} minutes, on {}; load {} at the start; Redis {}, Node.js {}.",
      "- {1}：由 `{2}` 生成，{3} UTC，提交 {4}，用了 {5} 分钟，{6}；开始时负载 {7}；Redis {8}，Node.js {9}。",
    ],
    [
      'One client holds that many names, each renewed (lease 10 s), first by itself, then beside two processes that spin. "Others" is how many cores all other processes of the machine used meanwhile. "Lost" counts holds that were lost until the end of the row; "not there" those that the server does not have as their holder does.',
      "一个客户端持有这么多名字，每个都续期（租约 10 秒），先是独自进行，然后旁边有两个空转的进程。“其他”是机器上所有其他进程其间用掉的核数。“丢失”是到这一行结束为止丢失的持有；“不在”是服务器上的记录与持有者不一致的。",
    ],
    [
      "![Processor time of a renewal, by the number of holds](scale/renewal.svg)",
      "![一次续期的处理器时间，按持有的数目](../scale/renewal.svg)",
    ],
    [
      "In the server, beside a plain key of the same length that keeps a value of 36 characters (a UUID). An idle name was taken and given back; it keeps its last token for a day.",
      "在服务器里，与同样长度、值为 36 个字符（一个 UUID）的普通键相对照。空闲的名字是取过又释放的；它把最后一个令牌保留一天。",
    ],
    ["![Memory of a name in the server](scale/bytes.svg)", "![一个名字在服务器里占的内存](../scale/bytes.svg)"],
    [
      "Take and give back a name that was never used, on empty servers and beside {} idle names, in turn.",
      "取一个从未用过的名字再释放，在空的服务器上，以及在 {1} 个空闲的名字旁边，轮流进行。",
    ],
    [
      "{} clients in one process, each with a few holds: what the server does for them.",
      "一个进程里有 {1} 个客户端，每个有少量的持有：服务器为它们做多少。",
    ],
    [
      "**Ten thousand clients** were not run. By these figures, on one server:",
      "**一万个客户端**没有运行过。按这些数字，在一台服务器上：",
    ],
    [
      "- {} connections (above Redis's default `maxclients` of 10,000), {} MiB for them, and {} of a core while they hold nothing",
      "- {1} 条连接（超过 Redis 默认的 `maxclients`，即 10,000），为它们用 {2} MiB，什么也不持有时用 {3} 个核",
    ],
    [
      "- with {} {} each: {} renewals a second, {} cores: more than a server should be asked for; use a Cluster, or a longer lease",
      "- 每个 {1} 个{2}：每秒 {3} 次续期，{4} 个核：对一台服务器来说太多；请用集群，或者更长的租约",
    ],
    ["- with {} {} each: {} renewals a second, {} cores", "- 每个 {1} 个{2}：每秒 {3} 次续期，{4} 个核"],
    [
      "Redis runs its commands on one core. Holds of one client are renewed in one call, so fewer clients with more holds each cost less. A longer lease is renewed less often: `leaseMs: 30_000` costs a third, and a holder that dies keeps the others waiting three times as long.",
      "Redis 在一个核上运行命令。一个客户端的持有在一次调用里续期，所以客户端少一些、每个持有多一些，代价更低。租约越长，续期越少：`leaseMs: 30_000` 只要三分之一，而死掉的持有者会让别人等三倍那么久。",
    ],
    ["{} ms", "{1} 毫秒"],
    ["{} µs", "{1} 微秒"],
  ],
  words: {
    Scale: "规模",
    "Many holds of one client": "一个客户端的许多持有",
    "Memory of a name": "一个名字的内存",
    "Claims beside many names": "在许多名字旁边加锁",
    "A fleet": "一个集群",
    "one server": "一台服务器",
    "Cluster of six": "六个节点的集群",
    servers: "服务器",
    "two spin": "两个空转",
    others: "其他",
    held: "持有",
    "idle beside": "旁边空闲的",
    "client µs": "客户端微秒",
    "server µs": "服务器微秒",
    "a call": "每次调用",
    "slowest call": "最慢的调用",
    lost: "丢失",
    "not there": "不在",
    yes: "是",
    no: "否",
    names: "名字",
    "plain key": "普通键",
    idle: "空闲",
    empty: "空",
    "a hold, in the client": "一个持有，在客户端里",
    pair: "加锁加释放",
    "to empty": "与空的相比",
    "64 in flight, each": "64 个同时进行，每个",
    "holds each": "每个的持有数",
    "renewals/s": "每秒续期",
    hold: "持有",
    holds: "持有",
  },
};
