import type { Translation } from "../lib/translate.js";

/** The words of docs/zh-CN/choosing.md. */
export const CHOOSING_PAGE: Translation = {
  texts: [
    [
      "<!-- Made by `npm run compare`: the words stand in lab/compare/choosing.ts, the figures come from lab/results/comparison.json. -->",
      "<!-- 由 `npm run compare` 生成：文字在 lab/compare/choosing.ts 和 lab/zh-CN/choosing.ts，数字来自 lab/results/comparison.json。 -->",
    ],
    [
      "The program stays the same, only the URL changes: a wrong choice costs little. All figures are from [comparison.md](comparison.md), one small machine without a network or a disk between; take the order of magnitude, not the digits.",
      "程序不变，只换 URL：选错了代价不大。所有数字都出自[对照（英文）](../comparison.md)，一台小机器，中间没有网络也没有磁盘；请看数量级，不要看具体的数。",
    ],
    [
      "**Work is done twice, which is a waste and no more** (a report is built twice, a cache filled twice): a lock for *efficiency*. Any engine will do. Take the one you run already, or none: `sqlite:` needs no server.",
      "**工作做了两遍，只是浪费**（报表生成了两次，缓存填了两次）：这是为了*效率*的锁。任何引擎都可以。用你已经在运行的；或者什么都不用：`sqlite:` 不需要服务器。",
    ],
    [
      "**Something is wrong afterwards** (money, stock, a file with two writers): a lock for *correctness*. No engine can do that alone: a program that was paused after it got the lock does not know that its lease has ended, whatever the store. Hand `hold.token` to the resource with each write and let it refuse older ones; then the engine's guarantees decide how often that is needed, not whether the data is right.",
      "**之后会有东西是错的**（钱、超卖的库存、被两个写者写的文件）：这是为了*正确性*的锁。任何引擎单靠自己都做不到：拿到锁之后被暂停的程序，不知道租约已经结束，不管用什么存储。每次写入都把 `hold.token` 交给资源，让资源拒绝更旧的；这样，引擎的保证只决定多久需要它一次，而不决定数据对不对。",
    ],
    [
      "**A lock is not a transaction.** It rolls nothing back, and a holder that dies leaves its work half done. If everything that is written lives in one database, a transaction, a unique key or `UPDATE … WHERE version = ?` is simpler and safer than any lock.",
      "**锁不是事务。** 它不会回滚任何东西，死掉的持有者会留下做了一半的工作。如果写的一切都在一个数据库里，那么事务、唯一键或 `UPDATE … WHERE version = ?` 比任何锁都更简单、更安全。",
    ],
    [
      "Do not set up a consensus store only for locks that are for efficiency, and do not put locks for correctness on a Redis with replicas without the token: `connect(url, { require: { exclusion: … } })` fails at once when a store guarantees too little.",
      "不要只为了效率的锁去搭建共识存储；也不要把为了正确性的锁放在带副本的 Redis 上而不用令牌：存储的保证不足时，`connect(url, { require: { exclusion: … } })` 立即失败。",
    ],
    [
      "NATS is not among them: [decision 21](decisions/021-no-nats-engine.md) says what its key-value store lacks.",
      "其中没有 NATS：它的键值存储缺什么，见[决定 21（英文）](../decisions/021-no-nats-engine.md)。",
    ],
    [
      "**Speed.** An uncontended pair, from fast to slow: {}. Beside the cheapest question to the same server (a PING, a SELECT 1) that is {}. If one lock is too slow, use more locks ([striped](recipes/striped.md)) before you use another store.",
      "**速度。** 没有竞争的一次加锁加释放，从快到慢：{1}。与对同一台服务器最便宜的询问（PING、SELECT 1）相比是：{2}。如果一把锁太慢，先用更多的锁（[分段锁](recipes/striped.md)），再考虑换存储。",
    ],
    [
      "**A busy lock.** Hand-over to a waiter, from fast to slow: {}. All engines wake the next waiter; a quorum, if its members push. Requests to the server from one waiter: {}.",
      "**繁忙的锁。** 交给等待者，从快到慢：{1}。所有引擎都会唤醒下一个等待者；多数派则要求成员能推送。一个等待者对服务器的请求数：{2}。",
    ],
    [
      "**Order.** `fifo` engines serve in order of arrival: redis {}; raw ioredis with polling {}. A quorum does while the member that keeps the queue answers: {}.",
      "**顺序。** `fifo` 的引擎按到达顺序：redis {1}；用轮询的裸 ioredis {2}。多数派在维持队列的成员应答期间也是如此：{3}。",
    ],
    [
      "**Back soon after a crash.** The lock of a killed holder was free after: {}, with the defaults (lease 10 s, ZooKeeper's session 20 s). A shorter `leaseMs` or `sessionTimeoutMs` shortens that, and makes a pause of the same length a loss.",
      "**崩溃之后尽快恢复。** 被杀死的持有者的锁多久之后释放：{1}，用默认值（租约 10 秒，ZooKeeper 的会话 20 秒）。更短的 `leaseMs` 或 `sessionTimeoutMs` 会缩短它，同时使同样长的停顿成为丢锁。",
    ],
    [
      '**Safety that does not depend on the time of day.** zookeeper or etcd with three servers or more: `exclusion: "consensus"`; their leases and sessions count by monotonic clocks, which need only run at about the same speed. A quorum of Redis servers needs clocks that do not jump and members that do not forget: [one is enough](engines/quorum.md#what-it-assumes) for two holders when a client reached only a bare majority. One Redis, PostgreSQL or MariaDB is as safe as that one server, its clock and its fail-over. What each of them did when that failed: [faults.md](faults.md).',
      '**不依赖日历时间的安全。** 三台或更多服务器的 zookeeper 或 etcd：`exclusion: "consensus"`；它们的租约和会话按单调时钟计算，只需要走得差不多快。Redis 组成的多数派要求时钟不跳变、成员不忘记：客户端只够到刚好过半的成员时，[一个坏成员就足以](engines/quorum.md#它的前提)出现两个持有者。单台 Redis、PostgreSQL 或 MariaDB 的安全，取决于那一台服务器、它的时钟和它的故障转移。出故障时各自的表现：[故障实验](faults.md)。',
    ],
    [
      "**Many waiters on ZooKeeper.** The queue: {}. The lock of the tutorials, one node that everybody watches: {}.",
      "**ZooKeeper 上的许多等待者。** 队列：{1}。教程里的锁，即所有人监视同一个节点（惊群效应）：{2}。",
    ],
    ["{} messages per hand-over with {} waiting", "{2} 个等待者时，每次交接 {1} 条消息"],
    ["Jain {}, the unluckiest got {} its share", "Jain 公平指数 {1}，最不走运者得到应得份额的 {2}"],
    [
      "`locks.guarantees`, read off the servers of the comparison: one server each, five for the quorum, Redis without persistence. One ZooKeeper or etcd server says `single-server`; three or more say `consensus`.",
      "`locks.guarantees`，从对照所用的服务器读出：各一台，多数派五台，Redis 没有持久化。一台 ZooKeeper 或 etcd 是 `single-server`；三台或更多是 `consensus`。",
    ],
    [
      "pair {}, hand-over {}, after a crash: {}. Nothing outlives the process, worker threads are not excluded",
      "加锁加释放 {1}，交接 {2}，崩溃之后：{3}。没有什么能活过进程，也不能让工作线程互斥",
    ],
    [
      "pair {}, hand-over {}, after a crash: {}. No server; a dead process is noticed, not waited for",
      "加锁加释放 {1}，交接 {2}，崩溃之后：{3}。没有服务器；死掉的进程会被发现，不用等",
    ],
    [
      "pair {}, hand-over {}, after a crash: {}. A fail-over may forget who holds",
      "加锁加释放 {1}，交接 {2}，崩溃之后：{3}。故障转移可能忘掉谁持有",
    ],
    [
      "pair {}, hand-over {}, after a crash: {}. Nothing new to run, durable, and the token can be checked in the same transaction as your write",
      "加锁加释放 {1}，交接 {2}，崩溃之后：{3}。不用运行新东西，持久，而且令牌可以在你写入的同一个事务里检查",
    ],
    [
      "pair {}, hand-over {}, after a crash: {}. Otherwise as PostgreSQL. Measured and tested on MariaDB: MySQL itself was never run",
      "加锁加释放 {1}，交接 {2}，崩溃之后：{3}。其余与 PostgreSQL 相同。在 MariaDB 上测量和测试：MySQL 本身从未运行过",
    ],
    [
      "pair {}, hand-over {}, after a crash: {}. Consensus with three servers or more; excludes Curator's and Kazoo's locks",
      "加锁加释放 {1}，交接 {2}，崩溃之后：{3}。三台或更多服务器时是共识；与 Curator 和 Kazoo 的锁互相排斥",
    ],
    [
      "pair {}, hand-over {}, after a crash: {}. Consensus with three members or more; excludes `etcdctl lock`",
      "加锁加释放 {1}，交接 {2}，崩溃之后：{3}。三个或更多成员时是共识；与 `etcdctl lock` 互相排斥",
    ],
    [
      "pair {}, hand-over {}, after a crash: {}. Goes on while a minority is away; one member that forgets or whose clock jumps can break exclusion; order while the member that keeps the queue answers",
      "加锁加释放 {1}，交接 {2}，崩溃之后：{3}。少数离线时照常工作；一个成员忘记或时钟跳变就可能破坏互斥；维持队列的成员应答期间有顺序",
    ],
  ],
  words: {
    "Choosing an engine": "选择引擎",
    "First: what happens if two hold it at once?": "首先：如果两个人同时持有，会怎样？",
    "By what you have": "按你已有的",
    "By what you need": "按你需要的",
    "What each guaranteed in this run": "这次运行中各自保证了什么",
    "you have": "你有",
    take: "选用",
    "what to expect (from the comparison)": "可以期待什么（出自对照）",
    "one process": "一个进程",
    "one process: its waiters end with it": "只有一个进程：等待者与它一起结束",
    "several processes, one machine": "几个进程，一台机器",
    "`sqlite:path`, or no URL at all": "`sqlite:path`，或者不写 URL",
    "Redis already": "已有 Redis",
    "PostgreSQL already": "已有 PostgreSQL",
    "MySQL or MariaDB already": "已有 MySQL 或 MariaDB",
    "ZooKeeper already": "已有 ZooKeeper",
    "etcd already": "已有 etcd",
    "several servers that know nothing of each other": "互不相干的几台服务器",
    "`redlock://a,b,c`, or a list of URLs": "`redlock://a,b,c`，或者一个 URL 列表",
    engine: "引擎",
    exclusion: "互斥",
    token: "令牌",
    order: "顺序",
    wake: "唤醒",
    "after a crash": "崩溃之后",
    "survives a restart": "重启后仍在",
    yes: "是",
    no: "否",
    // Values of `locks.guarantees` and names of engines are code.
    ...Object.fromEntries(
      [
        ...["memory", "sqlite", "redis", "quorum", "postgres", "mysql", "zookeeper", "etcd"],
        ...["one-process", "one-machine", "single-server", "until-failover", "quorum-with-clocks", "consensus"],
        ...["monotonic", "monotonic-if-clocks", "none", "fifo", "fifo-while-one-member-answers", "push", "poll"],
        ...["at-once", "lease", "session"],
      ].map((word) => [word, word]),
    ),
  },
};
