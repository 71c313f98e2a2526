"""The matrix of recipes: what each of them has. ``test_matrix`` holds it true.

A cell names a thing that a test finds (a heading, a trace, a world, a row, a verb, a story), or
says with ``no`` why none is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass, field


class no(str):
    """A reason why a cell stays empty."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True)
class Row:
    """One recipe."""

    home: str
    """Its module in ``recipes``."""
    page: str
    """``page.md#Heading`` in docs, whose section names it."""
    trace: str
    """In ``tests/traces``."""
    world: str
    """``file::test`` in ``tests/recipes`` that is a simulated world with its invariants."""
    cancelled: str
    """A row of ``test_cancelled_recipes`` or ``cancelling``."""
    broken: str
    """A row of ``test_broken_recipes``, or of ``tests/client/test_broken_connections``."""
    verb: str
    """Of the command line."""
    story: str
    """In ``examples``."""
    token: str
    """``module:Class.attribute`` in ``recipes``: what says who was chosen, in order."""


SAME_AS_LOCK = no("its znodes are those of a Lock, see queues-enter-and-release")
NOBODY_CHOSEN = no("nobody is chosen")
IN_PYTHON = no("it wraps a function of the program; a shell has `coordinator lock NAME -- CMD`")
NO_STORY = no("no article tells one; docs/recipes.md has a runnable example")
READS = no("it only reads")
GRANT = "locks.grant:Grant.fencing_token"  # set in __init__
KINDS = "test_kind_worlds::test_no_two_are_inside_who_exclude_each_other"

MATRIX: dict[str, Row] = {
    "Lock": Row(
        home="lock", page="recipes.md#The fair lock", trace="queues-enter-and-release",
        world=KINDS, cancelled="Lock", broken="acquire", verb="lock", story="daily_report",
        token=GRANT,
    ),
    "ReentrantLock": Row(
        home="reentrant_lock", page="recipes.md#A reentrant lock",
        trace="recipe-reentrant-lock",
        world="test_small_worlds::test_only_one_owner_is_inside_however_often_it_enters",
        cancelled="ReentrantLock", broken="ReentrantLock",
        verb=no("a shell that holds a lock has no second body in its own name"),
        story=NO_STORY, token=GRANT,
    ),
    "RWLock": Row(
        home="rw_lock", page="recipes.md#Readers and writers", trace="queues-read-write",
        world=KINDS, cancelled="Reader", broken="RWLock", verb="lock", story=NO_STORY,
        token=GRANT,
    ),
    "Semaphore": Row(
        home="semaphore", page="recipes.md#Semaphore", trace="queues-semaphore", world=KINDS,
        cancelled="Semaphore", broken="Semaphore", verb="lock", story=NO_STORY, token=GRANT,
    ),
    "MultiLock": Row(
        home="multi_lock", page="recipes.md#Several locks", trace="queues-multi-lock",
        world=KINDS, cancelled="MultiLock", broken="acquire several", verb="lock",
        story="transfers", token=GRANT,
    ),
    "TreeLock": Row(
        home="tree_lock", page="locks.md#Which lock or recipe", trace="contenders-made-by-hand",
        world=KINDS, cancelled="TreeLock", broken="acquire by znodes",
        verb=no("it shows that the plain tree is enough; `lock` holds the same lock"),
        story=NO_STORY, token=GRANT,
    ),
    "ManualLock": Row(
        home="manual_lock", page="recipes.md#Held by hand", trace="recipe-manual-lock",
        world="test_manual_lock::test_there_are_never_two_holders_and_tokens_grow",
        cancelled="ManualLock", broken="ManualLock.acquire", verb="hold", story=NO_STORY,
        token="manual_lock:HeldByHand.fencing_token",
    ),
    "Revoker": Row(
        home="revoker", page="recipes.md#Ask the holder to give up", trace="recipe-revoker",
        world="test_revoker::test_who_asks_is_answered_truly", cancelled="Revoker",
        broken=no("an answer is read from the tree: what is not known raises nothing definite"),
        verb="ask", story=NO_STORY, token=NOBODY_CHOSEN,
    ),
    "Election": Row(
        home="election", page="election.md#In Python", trace="recipe-election",
        world="test_member_worlds::test_at_most_one_leads_whoever_is_handed_over_to",
        cancelled="an Election handed over", broken="Election.hand_over", verb="elect",
        story="three_replicas", token="locks.grant:Grant.epoch",
    ),
    "exclusive": Row(
        home="exclusion", page="recipes.md#Run a function under a lock", trace=SAME_AS_LOCK,
        world="test_small_worlds::test_a_function_runs_in_one_place_at_a_time",
        cancelled="exclusive", broken="exclusive", verb="lock", story=NO_STORY, token=GRANT,
    ),
    "Once": Row(
        home="once", page="sharing.md#Work once for each key", trace="recipe-once",
        world="test_small_worlds::test_all_who_ask_for_a_key_get_the_same_result",
        cancelled="Once", broken="Once",
        verb="once",
        story="ambiguous_payment", token="once:Attempt.fencing_token",
    ),
    "Job": Row(
        home="job", page="jobs.md#In Python", trace="recipe-job",
        world="test_member_worlds::test_no_interval_is_done_twice_and_tokens_grow_with_them",
        cancelled="Job", broken="Job", verb="once", story="daily_report",
        token="jobs.ledger:Run.fencing_token",
    ),
    "once_per": Row(
        home="once_per", page="jobs.md#In Python", trace="recipe-job",
        world="test_job_worlds::test_each_interval_is_done_once_and_its_tokens_grow",
        cancelled="Job", broken="Job", verb="once", story="daily_report",
        token="jobs.ledger:Run.fencing_token",
    ),
    "Jobs": Row(
        home="jobs.listing", page="jobs.md#What is kept", trace="recipe-job",
        world="test_job_worlds::test_each_interval_is_done_once_and_its_tokens_grow",
        cancelled="Job", broken=READS, verb="jobs", story="at_most_at_least_once",
        token=NOBODY_CHOSEN,
    ),
    "TokenBucket": Row(
        home="token_bucket", page="sharing.md#A shared rate", trace="recipe-token-bucket",
        world="test_small_worlds::test_a_rate_is_not_exceeded_whoever_dies",
        cancelled="TokenBucket", broken="TokenBucket",
        verb="bucket", story="token_bucket", token=NOBODY_CHOSEN,
    ),
    "TokenChunk": Row(
        home="token_bucket", page="sharing.md#A shared rate", trace="recipe-token-bucket",
        world="test_small_worlds::test_a_rate_is_not_exceeded_whoever_dies",
        cancelled="TokenBucket", broken="TokenBucket",
        verb=no("a shell's process ends before its chunk is spent"), story=NO_STORY,
        token=NOBODY_CHOSEN,
    ),
    "Counter": Row(
        home="counter", page="sharing.md#A shared number", trace="recipe-counter",
        world="test_waiting_worlds::test_a_counter_counts_each_addition_once",
        cancelled="Counter", broken="Counter", verb="counter", story="second_net",
        token=NOBODY_CHOSEN,
    ),
    "Flag": Row(
        home="flag", page="sharing.md#Waiting for each other", trace="recipe-flag-and-barrier",
        world="test_waiting_worlds::test_a_flag_wakes_all_and_a_closed_barrier_lets_nobody_pass",
        cancelled="Flag", broken="Flag", verb="flag", story=NO_STORY, token=NOBODY_CHOSEN,
    ),
    "Barrier": Row(
        home="flag", page="sharing.md#Waiting for each other", trace="recipe-flag-and-barrier",
        world="test_waiting_worlds::test_a_flag_wakes_all_and_a_closed_barrier_lets_nobody_pass",
        cancelled="Barrier", broken="Barrier.close", verb="barrier", story=NO_STORY,
        token=NOBODY_CHOSEN,
    ),
    "DoubleBarrier": Row(
        home="double_barrier", page="sharing.md#Waiting for each other",
        trace="recipe-double-barrier",
        world="test_waiting_worlds::test_a_double_barrier_begins_and_ends_together",
        cancelled="a pair at a DoubleBarrier", broken="DoubleBarrier",
        verb=no("two latches do it in a shell, one to begin and one to end together"),
        story=NO_STORY, token=NOBODY_CHOSEN,
    ),
    "Latch": Row(
        home="latch", page="sharing.md#Waiting for each other", trace="recipe-latch",
        world="test_waiting_worlds::test_a_latch_opens_when_each_part_was_counted",
        cancelled="Latch", broken="Latch", verb="latch", story=NO_STORY, token=NOBODY_CHOSEN,
    ),
    "Condition": Row(
        home="condition", page="sharing.md#Waiting for each other", trace="recipe-condition",
        world="test_waiting_worlds::test_a_condition_misses_no_notification",
        cancelled="Condition", broken="Condition",
        verb=no("its check is a function of the program; `coordinator watch` wakes a shell"),
        story=NO_STORY, token=NOBODY_CHOSEN,
    ),
    "Group": Row(
        home="group", page="sharing.md#Which programs are running", trace="recipe-group",
        world="test_group::test_after_all_bad_weather_those_are_listed_who_live",
        cancelled="Group", broken="Group", verb="services", story="who_can_do_it",
        token="groups.membership:Membership.fencing_token",
    ),
    "Partitioner": Row(
        home="partitioner", page="sharing.md#Shares of work", trace="recipe-partitioner",
        world="test_member_worlds::test_no_partition_has_two_owners_who_believe",
        cancelled="Partitioner",
        broken=no("run() goes on over broken connections; what it holds are Locks and a Group"),
        verb=no("its work is a function that is told to stop; a shell takes `lock NAME/NUMBER`"),
        story="partitioned_jobs", token="partitioner:Owned.fencing_token",
    ),
    "WorkQueue": Row(
        home="work_queue", page="sharing.md#A queue of work", trace="recipe-work-queue",
        world="test_member_worlds::"
        "test_nothing_of_a_queue_is_lost_and_what_is_acknowledged_is_gone",
        cancelled="WorkQueue", broken="WorkQueue.take", verb="queue", story="work_until_done",
        token="sharing.delivery:Delivery.fencing_token",
    ),
    "Pool": Row(
        home="pool", page="sharing.md#A pool", trace="recipe-pool",
        world="test_pool::test_no_resource_has_two_borrowers", cancelled="Pool", broken="Pool",
        verb="borrow", story=NO_STORY, token="pool:Borrowed.fencing_token",
    ),
    "CachedValue": Row(
        home="cached_value", page="sharing.md#A value read without a request",
        trace="recipe-cached-value",
        world="test_cached_value::test_no_read_is_older_than_what_was_acknowledged_before",
        cancelled="CachedValue", broken="CachedValue",
        verb=no("a copy is worth nothing to a process that reads once"), story=NO_STORY,
        token=NOBODY_CHOSEN,
    ),
    "TreeCache": Row(
        home="tree_cache", page="sharing.md#A copy of a subtree", trace="recipe-tree-cache",
        world="test_tree_cache::test_the_cache_is_the_tree_at_its_zxid_always",
        cancelled="TreeCache", broken=READS, verb="watch", story="told_of_each_change",
        token=NOBODY_CHOSEN,
    ),
    "Configuration": Row(
        home="configuration", page="sharing.md#Shared configuration",
        trace="recipe-configuration",
        world="test_configuration::test_no_reader_sees_half_of_a_change",
        cancelled="Configuration", broken="Configuration", verb="config",
        story="settings_all_or_none", token=NOBODY_CHOSEN,
    ),
    "CommitLog": Row(
        home="commit_log", page="sharing.md#A transaction at several sites",
        trace="recipe-commit-log",
        world="test_commit_worlds::test_a_transaction_is_done_at_all_sites_or_at_none",
        cancelled="CommitLog", broken="CommitLog", verb="commit-log",
        story="payment_across_five_sites", token="sharing.commit_record:Transaction.fencing_token",
    ),
    "CommitSite": Row(
        home="commit_site", page="sharing.md#A transaction at several sites",
        trace="recipe-commit-log",
        world="test_commit_worlds::test_a_transaction_is_done_at_all_sites_or_at_none",
        cancelled="CommitLog", broken="CommitSite.vote", verb="commit-log",
        story="payment_across_five_sites", token="sharing.commit_record:Transaction.fencing_token",
    ),
}  # fmt: skip

PARTS: dict[str, str] = {
    "Grant": "Lock", "Held": "Lock", "FOREVER": "Lock", "Leadership": "Election",
    "SuccessionRequest": "Election",
    "RevokeRequest": "Revoker", "RevokeAnswer": "Revoker", "execute_exclusive": "exclusive",
    "run_exclusive": "exclusive", "Run": "Job", "JobReply": "Job", "JobRun": "Jobs",
    "JobView": "Jobs", "GroupMember": "Group", "Membership": "Group", "Owned": "Partitioner",
    "Delivery": "WorkQueue", "Borrowed": "Pool", "CachedZnode": "TreeCache",
    "CacheChange": "TreeCache", "CacheUpdate": "TreeCache", "Snapshot": "Configuration",
    "Transaction": "CommitLog",
}  # fmt: skip
"""What else is exported: the recipe whose values and arguments these are."""


@dataclass(frozen=True)
class Integration:
    """A module of ``coordinator.integrations``: its page, and the test against the real library."""

    page: str
    test: str
    libraries: tuple[str, ...] = field(default=())


INTEGRATIONS: dict[str, Integration] = {
    "starlette": Integration(
        "FastAPI", "test_web::test_fastapi_holds_a_lock_around_an_endpoint", ("fastapi",)
    ),
    "django": Integration(
        "Django", "test_web::test_a_django_command_runs_on_one_machine_at_a_time", ("django",)
    ),
    "celery": Integration(
        "Celery tasks", "test_workers::test_a_celery_task_runs_one_at_a_time", ("celery",)
    ),
    "celery_beat": Integration(
        "Celery beat",
        "test_workers::test_one_celery_beat_sends_and_the_next_goes_on_from_there",
        ("celery",),
    ),
    "dramatiq": Integration(
        "Dramatiq", "test_workers::test_a_dramatiq_actor_runs_one_at_a_time", ("dramatiq",)
    ),
    "apscheduler": Integration(
        "APScheduler", "test_workers::test_apscheduler_runs_each_time_on_one_replica",
        ("apscheduler",),
    ),
    "tooz": Integration(
        "tooz", "test_tooz::test_groups_have_members_with_capabilities", ("tooz",)
    ),
    "redis_lock": Integration(
        "Code that expects redis-py's lock",
        "test_redis_lock::test_it_is_acquired_and_released_as_the_real_one", ("redis",),
    ),
    "python_redis_lock": Integration(
        "Code that uses python-redis-lock",
        "test_python_redis_lock::test_who_holds_it_keeps_others_out", ("python-redis-lock",),
    ),
}  # fmt: skip
HELPERS = {"current", "extras"}
"""Modules beside the integrations that they share."""
