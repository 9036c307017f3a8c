"""Counts in a file under a lock of Kazoo's: read, sleep, write. Prints how often it did, and how often it saw what a lock forbids."""

import json
import random
import sys
import time

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock, ReadLock, WriteLock

hosts, path, file, kind, patterns, (rounds, ms, pause_ms) = json.loads(sys.argv[1])
client = KazooClient(hosts=hosts)
client.start()
print(json.dumps("ready"), flush=True)


class LaterReadLock(ReadLock):
    """The rule of Kazoo 2.9 in what Debian has, 2.8: only writers that came before it are in a reader's way."""

    def _get_predecessor(self, node):
        writers = [self._contenders_re.search(child) for child in self.client.get_children(self.path)]
        before = [writer for writer in writers if writer and writer.group(1) < node[len(self.prefix) :]]
        return max(before, key=lambda writer: writer.group(1)).string if before else None


recipe = {"Lock": Lock, "ReadLock": ReadLock, "WriteLock": WriteLock, "LaterReadLock": LaterReadLock}.get(kind)


def read():
    with open(file) as stream:
        return int(stream.read())


tally = {"count": 0, "wrong": 0}


def step():
    before = read()
    time.sleep(0.003)
    if read() != before:
        tally["wrong"] += 1
    if "Read" not in kind:
        with open(file, "w") as stream:
            stream.write(str(before + 1))
    tally["count"] += 1


def take():
    if kind == "Election":
        return client.Election(path).run(step)
    with recipe(client, path, extra_lock_patterns=patterns):
        step()


until = time.monotonic() + ms / 1000
while tally["count"] < rounds and time.monotonic() < until:
    take()
    time.sleep(random.random() * pause_ms / 1000)
print(json.dumps(tally), flush=True)
client.stop()
