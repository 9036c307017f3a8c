"""Counts in a file under redis-py's Lock: read, sleep, write. Prints how often it did, and how often it saw what a lock forbids."""

import json
import random
import sys
import time

import redis

port, name, file, ms = sys.argv[1:]
client = redis.Redis(port=int(port))


def read():
    with open(file) as stream:
        return int(stream.read())


count = wrong = 0
until = time.monotonic() + int(ms) / 1000
while time.monotonic() < until:
    with client.lock(name, timeout=20, sleep=0.02):
        before = read()
        time.sleep(0.002)
        if read() != before:
            wrong += 1
        with open(file, "w") as stream:
            stream.write(str(before + 1))
        count += 1
    time.sleep(random.random() * 0.03)
print(json.dumps({"count": count, "wrong": wrong}))
