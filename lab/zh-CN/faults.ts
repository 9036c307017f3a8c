import type { Translation } from "../lib/translate.js";

/** The words of docs/zh-CN/faults.md. */
export const FAULTS_PAGE: Translation = {
  texts: [
    [
      "<!-- Made by `npm run lab` from lab/results/faults.json: change lab/report.ts instead. -->",
      "<!-- 由 `npm run lab` 从英文页面生成：请修改 lab/report.ts 和 lab/zh-CN/faults.ts。 -->",
    ],
    [
      "Made by `{}` on {} UTC, at commit {}, on {}; {}. {} runs (each cell {}, seed {}) in {} minutes, {} of them as expected.",
      "由 `{1}` 生成，{2} UTC，提交 {3}，{4}；{5}。{6} 次实验（每格{7}，种子 {8}），用了 {9} 分钟，其中 {10} 次符合预期。",
    ],
    [
      "In each run three processes want one lock on real servers. The first holds it when the fault happens; each has its own network to the servers. They write to a resource that accepts everything and to one that is guarded by the fencing token (`holdfast/fence`). When the next holder has written, the lab makes the old one write again. The table shows what the rules of `holdfast/testing` find in the history of the run. A run fails if a broken guarantee was expected and did not happen, and if one happened that was not expected.",
      "每次实验里，三个进程在真实的服务器上争一把锁。故障发生时第一个进程正持有它；每个进程各有自己通往服务器的网络。它们写两个资源：一个什么都接受，一个由防护令牌保护（`holdfast/fence`）。下一个持有者写过之后，实验让旧的持有者再写一次。表中是 `holdfast/testing` 的规则在这次实验的历史里发现的结果。预期会破坏的保证没有破坏，或者破坏了没有预期的保证，这次实验都算失败。",
    ],
    [
      "- **kept**: the holder kept the lock over the fault; the others got it when it gave it back.",
      "- **保持**（kept）：故障期间持有者始终持有锁；它释放之后别人才得到。",
    ],
    [
      "- **passed on**: the holder lost the lock and was told so before anybody else got it.",
      "- **先通知后易手**（passed on）：持有者失去了锁，并且在别人得到之前就得到了通知。",
    ],
    [
      "- **freed**: the holder was dead; the next one got the lock without anybody's help.",
      "- **已释放**（freed）：持有者死了；下一个得到了锁，不需要任何人帮忙。",
    ],
    [
      "- **not taken**: the store's grant arrived too late, so its client ignored it, and the next one got the lock.",
      "- **不予理会**（not taken）：存储的授予到得太晚，客户端没有理会，锁归下一个。",
    ],
    [
      "- **late write**: no client was wrong about who held the lock, but the holder had checked before it was stopped, and its write arrived after the next holder's. No lock can prevent that: the unfenced resource took the write, the fenced one refused it.",
      "- **迟到的写入**（late write）：没有客户端弄错谁持有锁，但持有者检查过之后才被暂停，它的写入在下一个持有者之后才到。任何锁都防不住：不带防护的资源接受了这次写入，带防护的拒绝了。",
    ],
    [
      "- **two holders**: the store forgot the claim, or its clock ended it too early, and granted the lock again: for a while two clients took themselves for the holder. The unfenced resource took writes of both, the fenced one refused the older.",
      "- **两个持有者**（two holders）：存储忘了这把锁，或者它的时钟过早地结束了租约，又把锁授予别人：有一段时间，两个客户端都以为自己持有。不带防护的资源接受了两者的写入，带防护的拒绝了较旧的。",
    ],
    [
      "- **refused**: the store came up empty and counts its tokens from the beginning, so clients that had connected to the old store refused the new one: the holder was told, and the others waited. Restarted with a `tokenBase` above the old tokens, they went on.",
      "- **拒绝**（refused）：存储启动时是空的，令牌从头数起，所以连接过旧存储的客户端拒绝新存储：持有者得到通知，其他人等待。以高于旧令牌的 `tokenBase` 重新启动之后，它们继续。",
    ],
    [
      "In every run nothing was left behind: after the last release the store showed no holder and no waiter. Times are of one machine; leases are short ({}; the holder's is longer where the fault takes longer than that, or where two holders are to be seen).",
      "每次实验都没有留下什么：最后一次释放之后，存储里没有持有者，也没有等待者。时间是一台机器上的；租约很短（{1}；故障持续得更久，或者要看到两个持有者时，持有者的租约更长）。",
    ],
    [
      "What was not as expected stands in lab/results/faults.json. Times are of one machine; leases are short ({}; the holder's is longer where the fault takes longer than that, or where two holders are to be seen).",
      "不符合预期的写在 lab/results/faults.json 里。时间是一台机器上的；租约很短（{1}；故障持续得更久，或者要看到两个持有者时，持有者的租约更长）。",
    ],
    ["What is done: {}.", "做法：{1}。"],
    ["![{}: who believed to hold the lock when](faults/{}.svg)", "![{1}：谁在何时以为自己持有锁](../faults/{2}.svg)"],
    ["- Not on {}: {}.", "- {1} 没有这一项：{2}。"],
    ["{} (NOT AS EXPECTED)", "{1}（不符合预期）"],
    ["{} ms before", "早 {1} 毫秒"],
    ["{} ms after", "晚 {1} 毫秒"],
    ["{} ms", "{1} 毫秒"],
    ["no, {} stale", "否，{1} 次过时"],
    ["{} of {}", "{2} 次中的 {1} 次"],
    ["{} or {}", "{1}或{2}"],
  ],
  words: {
    once: "一次",
    "2 times": "两次",
    "3 times": "三次",
    "5 times": "五次",
    "Faults: what happens on every engine": "故障实验：每种引擎的表现",
    fault: "故障",
    engine: "引擎",
    outcome: "结果",
    "told, from the end of its lease": "何时得知，相对于租约结束",
    "told, from the next grant": "何时得知，相对于下一次授予",
    "others went on after": "别人多久之后继续",
    "exclusion at the unfenced resource": "不带防护的资源上是否互斥",
    "stale writes refused by the token": "令牌拒绝的过时写入",
    SQLite: "SQLite",
    Redis: "Redis",
    "Redlock (3 Redis)": "红锁（3 台 Redis）",
    "Redlock (3 Redis) 2 s": "红锁（3 台 Redis）2 s",
    PostgreSQL: "PostgreSQL",
    MariaDB: "MariaDB",
    ZooKeeper: "ZooKeeper",
    etcd: "etcd",

    kept: "保持",
    "passed on": "先通知后易手",
    freed: "已释放",
    "not taken": "不予理会",
    "late write": "迟到的写入",
    "**late write**": "**迟到的写入**",
    "two holders": "两个持有者",
    "**two holders**": "**两个持有者**",
    refused: "拒绝",
    none: "无",
    failed: "失败",
    "not run": "没有运行",
    dead: "已死",
    "never held": "从未持有",
    "kept it": "一直持有",
    "its release": "它释放之后",
    yes: "是",

    "– (no server)": "–（没有服务器）",
    "– (no answer)": "–（没有回答）",
    "– (one server)": "–（单台服务器）",
    "– (no members)": "–（没有成员）",
    "– (no leader)": "–（没有主）",
    "– (no replicas)": "–（没有副本）",
    "– (majority)": "–（过半数）",
    "– (monotonic clock)": "–（单调时钟）",
    "– (replaced member)": "–（见被顶替的成员）",
    "– (refused)": "–（拒绝）",
    "there is no server and no network: the store is a file, and each process reads and writes it itself":
      "没有服务器，也没有网络：存储是一个文件，各进程自己读写",
    "there is one server; its own clock is in the rows above": "只有一台服务器；它自己的时钟见上面几行",
    "there is no leader that the servers elect": "没有由服务器选出的主",
    "there is one server, not several that decide together": "只有一台服务器，没有几台一起决定",
    "a write counts when a majority has it, and only a server that has it can lead: see the rows of the leader":
      "写入要过半数收到才算数，只有收到的服务器才能当主：见有关主的几行",
    "etcd counts leases by the machine's monotonic clock, which no calendar moves; a static Go program cannot be given another":
      "etcd 按机器的单调时钟计算租约，日历时间动不了它；静态链接的 Go 程序也无法换一个时钟",
    "the process that asks makes the grant itself, in one transaction: no answer is under way":
      "请求的进程自己在一个事务里作出授予：没有回答在途",
    "its members are primaries that know nothing of each other: see the row of the replaced member":
      "它的成员是互不相干的主节点：见被顶替的成员那一行",
    "the leader counts sessions by its monotonic clock: see the rows above, where its calendar jumps":
      "主按单调时钟计算会话：见上面日历跳变的几行",
    "a follower that comes back empty is in the row of the replaced member": "回来时是空的从节点，见被顶替的成员那一行",
    "the others refuse a member that lost its data until an operator removes it and adds a new one":
      "其他成员拒绝丢了数据的成员，直到管理员移除它并加入新的",

    "holder killed": "持有者被杀死",
    "SIGKILL to the holder's process": "对持有者的进程发 SIGKILL",
    "holder paused": "持有者暂停",
    "the holder checks that it holds, is stopped (SIGSTOP) past its lease before it writes, and goes on when the next has written":
      "持有者确认自己持有，写入之前被暂停（SIGSTOP）到租约结束之后，等下一个写过才继续",
    "client cut off": "客户端断网",
    "nothing goes through between the holder and the servers, and nobody is told":
      "持有者与服务器之间什么也通不过，谁也没有得到通知",
    "answers delayed": "回答延迟",
    "the servers hear the holder at once, and their answers take longer than its lease; for SQLite, somebody else keeps the file busy":
      "服务器立即听到持有者，但回答比它的租约还慢；SQLite 则是别人占着文件",
    "grant delayed": "授予延迟",
    "the holder asks; the servers hear it at once, and their answers take longer than its lease":
      "持有者请求锁；服务器立即听到，但回答比它的租约还慢",
    "server restarted with its data": "服务器带着数据重启",
    "all servers are killed and started again, with the data they had (Redis: `appendfsync always`)":
      "所有服务器被杀死再启动，数据还在（Redis：`appendfsync always`）",
    "server restarted without its data": "服务器丢了数据重启",
    "a server is killed, and one without the data (a database: with empty tables) answers at its address; of a quorum one of three, all of which had the claim":
      "一台服务器被杀死，一台没有数据的（数据库：空表）在它的地址上应答；多数派则是三台中的一台，三台都有这把锁",
    "fail-over before replication": "复制之前的故障转移",
    "the primary dies with a claim that its replica has not heard of, and the replica is promoted":
      "主节点死了，带着副本还没听说的一把锁，副本被提升",
    "server clock jumps forward": "服务器时钟向前跳",
    "the calendar of the server (of two of three, in a quorum) jumps 60 s ahead; for SQLite, that of the waiting processes":
      "服务器的日历时间（多数派则是三台中的两台）向前跳 60 秒；SQLite 则是等待的进程的",
    "server clock jumps back": "服务器时钟回拨",
    "the same, 60 s back": "同上，回拨 60 秒",
    "one member's clock jumps": "一个成员的时钟跳变",
    "the calendar of one of three servers, all of which have the claim, jumps 60 s ahead":
      "三台服务器都有这把锁，其中一台的日历时间向前跳 60 秒",
    "one member's clock jumps, another is out of reach": "一个成员的时钟跳变，另一个够不到",
    "a quorum's claim stands on two of three, because its client cannot reach the third; the calendar of one of the two jumps 60 s ahead":
      "多数派的锁只在三台中的两台上，因为客户端够不到第三台；两台之一的日历时间向前跳 60 秒",
    "one member restarts empty, another is out of reach": "一个成员丢了数据重启，另一个够不到",
    "a quorum's claim stands on two of three, because its client cannot reach the third; one of the two is killed, and comes back without its data":
      "多数派的锁只在三台中的两台上，因为客户端够不到第三台；两台之一被杀死，回来时没有数据",
    "member lost": "失去一个成员",
    "one of three servers is killed (not the leader, where there is one)":
      "三台服务器中的一台被杀死（有主的话，不是主）",
    "member replaced by an unsynced one": "成员被没有同步的服务器顶替",
    "a quorum's claim stands on two of three, because its client cannot reach the third; one of the two dies, and its replica, which missed the claim, takes its place. In ZooKeeper a follower comes back empty":
      "多数派的锁只在三台中的两台上，因为客户端够不到第三台；两台之一死了，没有收到这把锁的副本顶替了它。ZooKeeper 则是一个从节点回来时是空的",
    "leader killed": "主被杀死",
    "SIGKILL to the leader of three servers; clients know all three": "对三台服务器的主发 SIGKILL；客户端知道全部三台",
    "leader paused": "主被暂停",
    "SIGSTOP to the leader of three servers; clients know all three": "对三台服务器的主发 SIGSTOP；客户端知道全部三台",
    "leader cut off with its client": "主与它的客户端一起被隔离",
    "the leader goes on without the two others, and the holder knows only the leader (ZooKeeper's elections go through the lab's wires here, and take longer than they do without)":
      "主与另外两台断开，继续运行，而持有者只知道主（ZooKeeper 的选举在这里要经过实验的线路，比平时慢）",
  },
};
