"""Counts in a file under a lock of Kazoo's: read, sleep, write. Prints how often it saw something that a lock forbids."""

import json
import sys
import time

from kazoo.client import KazooClient

hosts, path, file, kind, rounds, patterns = json.loads(sys.argv[1])
client = KazooClient(hosts=hosts)
client.start()
print(json.dumps("ready"), flush=True)


def read():
    with open(file) as stream:
        return int(stream.read())


wrong = 0
for _ in range(rounds):
    lock = getattr(client, kind)(path, extra_lock_patterns=patterns)
    with lock:
        before = read()
        time.sleep(0.003)
        if read() != before:
            wrong += 1
        if kind != "ReadLock":
            with open(file, "w") as stream:
                stream.write(str(before + 1))
print(json.dumps(wrong), flush=True)
client.stop()
