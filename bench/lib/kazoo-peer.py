"""Kazoo's Lock, measured on command: a JSON line in, a JSON line out. All times in nanoseconds."""

import json
import sys
import threading
import time

from kazoo.client import KazooClient

clients = [KazooClient(hosts=sys.argv[1], timeout=20) for _ in range(2)]
for client in clients:
    client.start()
one, other = clients
now = time.perf_counter_ns


def timed(count, work):
    taken = []
    for _ in range(count):
        start = now()
        work()
        taken.append(now() - start)
    return taken


def pairs(count):
    lock = one.Lock("/kazoo/pair")

    def pair():
        lock.acquire()
        lock.release()

    pair()
    return {"pair": timed(count, pair), "exists": timed(count, lambda: one.exists("/kazoo/pair"))}


def hand_overs(count):
    taken = []
    for _ in range(count):
        holder, waiter = one.Lock("/kazoo/hand-over"), other.Lock("/kazoo/hand-over")
        holder.acquire()
        got = []

        def wait():
            waiter.acquire()
            got.append(now())

        thread = threading.Thread(target=wait)
        thread.start()
        while len(one.get_children("/kazoo/hand-over")) < 2:
            time.sleep(0.001)
        time.sleep(0.01)
        start = now()
        holder.release()
        thread.join()
        taken.append(got[0] - start)
        waiter.release()
    return {"handOver": taken}


print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    word, count = json.loads(line)
    print(json.dumps({"pairs": pairs, "handOvers": hand_overs}[word](count)), flush=True)
