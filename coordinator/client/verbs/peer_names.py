"""Attributes of the clients of kazoo, redis-py and python-etcd3 that ours lacks, and what to type.

``HINTS`` has single names, ``FAMILIES`` patterns of names that have one answer. A test reads all
public names of these clients against both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

OWN: Final = "`client.create(path, data, mode='ephemeral')`: it goes with this client's session"
WATCH: Final = "`with client.watch(path) as changes:`, then `for change in changes:`"

_LOCK = '`with Lock(client, "daily-report", timeout=10) as grant:` (from coordinator import Lock)'
_ELECTION = (
    '`with Election(client, "report-service") as leadership:` (from coordinator import Election)'
)
_SEMAPHORE = '`with Semaphore(client, "licences", 3) as grant:` (from coordinator import Semaphore)'
_CHILDREN = "`client.children(path).names`"
_WRITE = (
    "`client.set(path, data)` for a znode that is there, `client.create(path, data)` for a new one"
)
_COUNTER = '`Counter(client, "visits").add(1)` (from coordinator import Counter)'
_QUEUE = '`WorkQueue(client, "mails").put(data)` (from coordinator import WorkQueue)'
_GROUP = '`Group(client, "web").join()` (from coordinator import Group)'
_STATE = "`client.session().state`"
_TLS = "`connect('https://10.0.0.7:7071', ca_file=path)`, which takes cert_file and key_file, too"
_MEMBERS = "`client.status().members`; members are set in their configuration, and not by clients"
_RIGHTS = "`client.put_role(name, rules)`: rights are of identities, and not of znodes"
_IDENTITY = "`connect(url, token_file=path)`"
_URLS = "`connect('http://10.0.0.7:7071,http://10.0.0.8:7071')`, which tries them in any order"
_SESSION = "`client.session()`: it is kept by heartbeats, and ends with `client.close()`"
_SERVICE = "`client.status()`; what else there is for operators is in coordinator --help"
_STALE = "`client.get(path, stale=True)`"
_READ = "`client.get(path)`, which returns data and Stat"
_NEXT = "`with client.watch(path) as changes:`, then `next(changes)`"
_NOTHING = "not needed: the cluster keeps its data small by itself"
_MULTI = "`client.multi([Create(path, data)])` (from coordinator.client import Create)"
_BYTES = "not offered: a znode keeps bytes; `client.update(path, change)` changes them in one step"

HINTS: Final[Mapping[str, str]] = {
    # kazoo
    "start": "nothing has to be started: a client connects at its first verb",
    "restart": "nothing has to be started: a client connects at its first verb, and again",
    "stop": "`client.close()`",
    "ensure_path": "`client.create(path, parents='persistent')`",
    "get_children": _CHILDREN,
    "retry": "verbs are tried again by themselves: `connect(url, retry=RetryPolicy(tries=3))`",
    "transaction": _MULTI,
    "add_listener": "`client.session().on_state(callback)`",
    "remove_listener": "what `client.session().on_state(callback)` returned: call that",
    "state_listeners": "`client.session().on_state(callback)`",
    "connected": _STATE,
    "state": _STATE,
    "client_state": _STATE,
    "client_id": "`client.session().session_id`",
    "last_zxid": "`client.status().zxid`, and the zxid of each change",
    "sync": "reads see every acknowledged write already: `client.get(path)`",
    "read_only": _STALE,
    "DataWatch": WATCH,
    "ChildrenWatch": "`with client.watch(path, kind='children') as changes:`",
    "Lock": _LOCK,
    "ReadLock": "`with RWLock(client, name).read() as grant:` (from coordinator import RWLock)",
    "WriteLock": "`with RWLock(client, name).write() as grant:` (from coordinator import RWLock)",
    "NonBlockingLease": "`Lock(client, name).try_acquire()` (from coordinator import Lock)",
    "MultiNonBlockingLease": "`Semaphore(client, name, 3).try_acquire()` (from coordinator import "
    "Semaphore)",
    "Semaphore": _SEMAPHORE,
    "Election": _ELECTION,
    "Barrier": "`Barrier(client, name).wait()` (from coordinator import Barrier)",
    "DoubleBarrier": "`DoubleBarrier(client, name, 4)` (from coordinator import DoubleBarrier)",
    "Counter": _COUNTER,
    "Party": _GROUP,
    "ShallowParty": _GROUP,
    "Queue": _QUEUE,
    "LockingQueue": _QUEUE,
    "SetPartitioner": "`Partitioner(client, name, 12)` (from coordinator import Partitioner)",
    "TreeCache": "`TreeCache(client, path).start()` (from coordinator import TreeCache)",
    "add_auth": _IDENTITY,
    "auth_data": _IDENTITY,
    "get_acls": "`client.roles()`: rights are of identities, and not of znodes",
    "set_acls": _RIGHTS,
    "default_acl": _RIGHTS,
    "chroot": "not offered: paths are written in full, and roles bound a client to a part of them",
    "unchroot": "not offered: paths are written in full",
    "hosts": _URLS,
    "set_hosts": _URLS,
    "randomize_hosts": _URLS,
    "handler": "`async with connect(url) as client:` for asyncio, `with connect(url) as client:` "
    "for threads",
    "logger": "`logging.getLogger('coordinator.client')`",
    "reconfig": _MEMBERS,
    "command": _SERVICE,
    "server_version": "`client.status().version`",
    "ca": _TLS,
    "certfile": _TLS,
    "keyfile": _TLS,
    "keyfile_password": _TLS,
    "use_ssl": _TLS,
    "verify_certs": _TLS,
    "check_hostname": _TLS,
    # python-etcd3
    "put": _WRITE,
    "put_if_not_exists": "`client.create(path, data)`, which raises NodeExistsError",
    "replace": "`client.set(path, data, expected_version=version)`",
    "get_prefix": "`client.subtree(path)`",
    "get_all": "`client.subtree('/')`",
    "get_range": f"{_CHILDREN}, which are sorted",
    "get_response": _READ,
    "delete_prefix": "`client.delete(path, recursive=True)`",
    "lease": OWN,
    "get_lease_info": "`client.session().remaining_safe_ms()`",
    "refresh_lease": _SESSION,
    "revoke_lease": _SESSION,
    "watch_prefix": "`with client.watch(path, kind='subtree') as changes:`",
    "watch_once": _NEXT,
    "watch_response": WATCH,
    "add_watch_callback": WATCH,
    "add_watch_prefix_callback": "`with client.watch(path, kind='subtree') as changes:`",
    "cancel_watch": "left by the end of `with client.watch(path) as changes:`",
    "add_member": _MEMBERS,
    "remove_member": _MEMBERS,
    "update_member": _MEMBERS,
    "compact": _NOTHING,
    "defragment": _NOTHING,
    "snapshot": "coordinator recover, for disasters; members make their snapshots by themselves",
    "hash": _SERVICE,
    # redis-py
    "setnx": "`client.create(path, data)`, which raises NodeExistsError",
    "setex": OWN,
    "psetex": OWN,
    "expire": OWN,
    "incr": _COUNTER,
    "decr": '`Counter(client, "visits").add(-1)` (from coordinator import Counter)',
    "incrby": _COUNTER,
    "decrby": '`Counter(client, "visits").add(-5)` (from coordinator import Counter)',
    "increx": _COUNTER,
    "incrbyfloat": "`client.update(path, lambda data: b'%f' % (float(data) + 0.5))`",
    "keys": _CHILDREN,
    "dbsize": "`client.exists(path).num_children`",
    "ping": _SERVICE,
    "echo": _SERVICE,
    "time": "not offered: the clock of another host decides nothing here",
    "type": "not offered: a znode keeps bytes",
    "append": "`client.update(path, lambda data: data + more)`",
    "strlen": "`client.exists(path).data_length`",
    "getset": "`client.update(path, lambda data: new)`",
    "getdel": "`client.multi([Read(path), Delete(path)])` (from coordinator.client import Read, "
    "Delete)",
    "delex": "`client.delete(path, expected_version=version)`",
    "mget": "`client.subtree(path)`",
    "mset": "`client.multi([SetData(path, data)])` (from coordinator.client import SetData)",
    "msetnx": _MULTI,
    "msetex": _MULTI,
    "unlink": "`client.delete(path)`",
    "pipeline": _MULTI,
    "unwatch": "`client.set(path, data, expected_version=version)`",
    "execute_command": "the verb itself: `client.get(path)`, `client.set(path, data)`",
    "from_url": "`connect(url)` (from coordinator import connect)",
    "auth": _IDENTITY,
    "quit": "`client.close()`",
    "rename": "`client.multi([Create(new, data), Delete(old)])` (from coordinator.client import "
    "Create, Delete)",
    "renamenx": "`client.multi([Create(new, data), Delete(old)])` (from coordinator.client import "
    "Create, Delete)",
    "copy": "`client.create(new, client.get(old).data)`",
    "publish": WATCH,
    "spublish": WATCH,
    "pubsub": WATCH,
    "keyspace_notifications": WATCH,
    "register_script": _MULTI,
    "role": "`client.status().role`",
    "readonly": _STALE,
    "wait": "not needed: a write that returns is on the disks of a majority",
    "waitaof": "not needed: a write that returns is on the disks of a majority",
}
"""The line for each name."""

FAMILIES: Final = (
    (r".+_async", "`async with connect(url) as client:`, then `await client.get(path)`"),
    (r"get_(all|prefix|range)_response", "`client.subtree(path)`"),
    (r"watch_(once|prefix)_?\w*", _NEXT),
    (r"(create|disarm|list)_alarms?", _SERVICE),
    (r"p?expire(at|time)?|p?ttl|persist|getex|touch", OWN),
    (r"b?[lr](push|pop|mpop|rem|range|len|index|insert|set|trim|pos|move|poplpush)\w*",
     _QUEUE),
    (r"b(lm|rpop|lpop|zm|zpop)\w*", _QUEUE),
    (r"h(del|exists|expire|get|import|incr|keys|len|m[gs]et|persist|p?expire|p?ttl|rand"
     r"|scan|set|strlen|ttl|vals)\w*",
     '`Configuration(client, "shop").change({name: value})` (from coordinator import '
     "Configuration)"),
    (r"s(add|card|diff|inter|ismember|members|mismember|move|pop|randmember|rem|scan|union)"
     r"\w*", "`client.create(f'{path}/{item}', parents='persistent')` for each item, then "
     f"{_CHILDREN}"),
    (r"scan(_iter)?|randomkey", _CHILDREN),
    (r"z(add|card|count|diff|incr|inter|lex|m|pop|rand|range|rank|rem|rev|scan|score|union)"
     r"\w*",
     "`client.create(f'{path}/{score:012}-{item}', parents='persistent')`, then "
     f"{_CHILDREN}, which are sorted"),
    (r"x(ack|add|auto|cfg|claim|del|group|info|len|nack|pending|range|read|rev|trim)\w*",
     _QUEUE),
    (r"pubsub_\w+|monitor", WATCH),
    (r"eval(sha)?(_ro)?|fcall(_ro)?|function_\w+|script_\w+", _MULTI),
    (r"acl_\w+", _RIGHTS),
    (r"client(_\w+)?", "`client.sessions()`"),
    (r"config_\w+", "`client.limits()`, `client.set_limits(limits, by=who)`"),
    (r"(bgrewriteaof|bgsave|save|lastsave|dump|restore|migrate|move|swapdb|select|flush\w+)",
     _NOTHING),
    (r"(cluster|command|debug|hotkeys|latency|memory|module|sentinel|slowlog)(_\w+)?"
     r"|info|hello|lolwut|failover|replicaof|slaveof|psync|readwrite|reset|shutdown"
     r"|object|digest\w*|load_external_module", _SERVICE),
    (r"(get|set)(bit|range)|substr|bit\w+|geo\w+|pf\w+|sort(_ro)?|lcs|stralgo"
     r"|ar(count|del|get|grep|info|insert|last|len|m|next|op|ring|scan|seek|set)\w*"
     r"|bf|cf|cms|ft|json|tdigest|topk|ts|vset", _BYTES),
    (r"(auto_close_connection|connection|single_connection)(_\w+)?|(get|set)_(cache|"
     r"connection_kwargs|encoder|retry|response_callback)|response_callbacks"
     r"|parse_response|from_pool",
     "not offered: a client keeps its connections itself; `connect(url)` makes one"),
)  # fmt: skip
"""The line for each name that such a pattern fits as a whole; compiled when one is asked for."""


def hint_for(name: str) -> str | None:
    """Return what to type here for the attribute ``name`` of another client; None if unknown."""
    if (line := HINTS.get(name)) is not None:
        return line
    return next((line for pattern, line in FAMILIES if re.fullmatch(pattern, name)), None)
