"""Frameworks that people use already: one file each, which needs that framework and no other.

``starlette`` (FastAPI), ``django``, ``celery``, ``apscheduler``, ``dramatiq``, and ``redis_lock``,
a lock with the interface of redis-py's. Each is an extra, as in ``pip install
'raft-coordinator[fastapi]'``. They are programs over the recipes and nothing below knows them;
docs/frameworks.md shows how they are used.
"""
