#!/bin/sh
# What a program needs that uses locks in etcd, and no more: a role, and a user who has it. Run it as root of an etcd that
# authenticates its users (ETCDCTL_USER, ETCDCTL_ENDPOINTS), with the new user's password in HOLDFAST_PASSWORD: others on this
# machine can read what stands on a command line.
set -eu
export ETCDCTL_API=3
etcdctl role add holdfast
etcdctl role grant-permission holdfast readwrite holdfast/ --prefix
printf '%s\n' "$HOLDFAST_PASSWORD" | etcdctl user add app --interactive=false
etcdctl user grant-role app holdfast
