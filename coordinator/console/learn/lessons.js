// The lessons: each has one thing to learn, at most two minutes, a film, and its code.

const LOCK_CURL = `# acquire: the answer has fencing_token, grant_id and session_id
curl -s --json '{"lease_ms": 5000, "timeout_ms": 10000}' $COORDINATOR/v1/locks/report
# who holds, who waits, how long the lease lasts
curl -s $COORDINATOR/v1/locks/report`;

export const LESSONS = [
  {
    id: "ghost-writer",
    title: "The ghost writer",
    learn: "A holder cannot know that it still holds. Only the store can refuse what is late.",
    text: [
      "A acquires, looks (“held”) and is stopped before it writes: a garbage collection, a " +
        "virtual " +
        "machine on the move, SIGSTOP. Its lease ends, B gets the lock and writes. A wakes and " +
          "does " +
        "what it was about to do.",
      "The token is a number that grows with each holder. The store remembers the highest one it " +
        "has " +
        "seen, and refuses a lower one in the same transaction as the write.",
    ],
    films: [["freeze-ray", "With fencing"], ["freeze-ray-unfenced", "Fencing off: the damage"]],
    python: `guard = SqliteGuard("reports.db", "report")
with Lock(client, "report", guards=[guard]) as grant:
    guard.write(grant.fencing_token, "UPDATE report SET value = ?", ("by A",))
# StaleTokenError: report: token 33 is stale, 34 has been seen`,
    curl: `${LOCK_CURL}
# a write inside the service, only while this grant holds: 410 LockLost if not
curl -s -X PUT --json '{"data": "by A"}' "$COORDINATOR/v1/tree/report?if_held=report:33"`,
    runs: ["ghost_writer", "job_42", "equal_tokens", "before_the_first_write", "two_holders"],
  },
  {
    id: "double-booking",
    title: "Double booking",
    learn: "Look and act under the same lock: what you knew before you waited is the past.",
    text: [
      "Two workers see one pending job, two people see one free seat. Checking first and booking " +
        "then " +
        "sells it twice, however fast both are.",
    ],
    films: [["double-booking", "Seat 1A, twice and once"]],
    python: `with Lock(client, "seat-1A", timeout=10) as grant:
    if seats.read("1A") == "free":          # look again, inside
        seats.book("1A", token=grant.fencing_token)`,
    curl: LOCK_CURL,
    runs: ["one_seat", "one_job_two_workers", "stock_without_a_lock"],
  },
  {
    id: "long-pause",
    title: "A long pause",
    learn: "A pause shorter than the lease costs nothing; after a longer one the client knows " +
      "first.",
    text: [
      "The client counts its lease from when it sent the last heartbeat, less a margin, on a " +
        "clock that " +
        "runs while the process is stopped. So it stops believing before the cluster may grant " +
          "again.",
      "It cannot help with a write that was decided before the pause. That is what the token is " +
        "for.",
    ],
    films: [["long-pause", "A short pause and a long one"]],
    python: `with Lock(client, "report") as grant:
    grant.check()                  # LockLostError if it is not certainly held
    grant.remaining_safe_ms()      # how long nobody else can be granted`,
    curl: `# safe for Coordinator-Safe-Ms, counted from when you sent this
curl -si -X POST --json '{}' $COORDINATOR/v1/sessions/$SESSION/heartbeat`,
    runs: ["garbage_collection", "renewal_fails", "clock_drift"],
  },
  {
    id: "lease",
    title: "Lease and hold time",
    learn: "The lease bounds the silence of a holder, not its work.",
    text: [
      "A lease of 5 s does not mean that work must be done in 5 s: heartbeats extend it while " +
        "the " +
        "holder lives. A long lease makes a crash cost more, a short one a hiccup. To bound the " +
          "work " +
        "itself there is max_hold.",
    ],
    films: [["lease-and-hold", "Working for longer than the lease"]],
    python: `with connect(session_timeout=5) as client:        # the lease
    with Lock(client, "report", max_hold=600):     # the bound of the work
        ...`,
    curl: LOCK_CURL,
    runs: ["partition_while_holding", "partition_longer_than_session", "wait_or_hold"],
  },
  {
    id: "herd",
    title: "The herd",
    learn: "Watch the one before you, not the holder: one wake-up for each release.",
    text: [
      "When all who wait watch the same znode, each release wakes all of them, and one wins. " +
        "With n " +
        "that wait it takes n(n − 1)/2 wake-ups until all had their turn. In a queue each " +
          "watches its " +
        "predecessor: n − 1, and in order. Lock does neither: the server answers the one request " +
          "whose " +
        "turn it is.",
    ],
    films: [["herd", "Eight clients, counted"]],
    python: `names = sorted(client.children("/queue").names)
before = [name for name in names if name < mine]
if not before: ...                                 # it is my turn
else: client.watch(f"/queue/{before[-1]}")         # this one alone`,
    curl: `curl -s "$COORDINATOR/v1/tree/queue?children"
curl -sN "$COORDINATOR/v1/watch?path=/queue/n-0000000007&one_shot"`,
    runs: ["fifty_waiters", "granularity"],
  },
  {
    id: "deadlock",
    title: "Deadlock",
    learn: "The request that would close the circle is refused at once, with the circle.",
    text: [
      "A holds account 1 and waits for 2, B holds 2 and asks for 1. Taking locks in one order " +
        "avoids " +
        "it, if every program keeps to the order. The cluster knows who waits for whom, and looks.",
    ],
    films: [["deadlock", "Found at the second request"]],
    python: `with MultiLock(client, ["account-1", "account-2"]):   # both, in one order
    transfer()`,
    curl: `# 409 Deadlock, with the cycle in "detail"
curl -s --json '{"owner": "B", "session_id": "'$SESSION'"}' $COORDINATOR/v1/locks/account-1`,
    runs: ["deadlock", "transfers"],
  },
  {
    id: "leader",
    title: "Kill, cut, heal",
    learn: "A lock is in the log of a quorum. A minority grants nothing.",
    text: [
      "Who is queued is decided by a quorum and is on its disks. Only the running down of leases " +
        "is " +
        "the leader's: a new leader begins each again in full, so nobody loses a lock by an " +
          "election.",
    ],
    films: [["lost-leader", "The leader is killed"], ["cut-member", "The leader is cut off"]],
    python: `client = connect("http://m1:7071,http://m2:7071,http://m3:7071")
client.status().leader_id          # the client finds a member that answers`,
    curl: `curl -s $COORDINATOR/v1/status
curl -s "$COORDINATOR/v1/locks/report?stale"       # labelled with its age`,
    runs: ["cluster_split", "partition_longer_than_session"],
  },
  {
    id: "redlock",
    title: "Redis and Redlock",
    learn: "Without an order of holders, late writes win. With clocks that jump, there are two " +
      "holders.",
    text: [
      "Both sides have the same schedule, in simulated time. The left is one Redis or Redlock " +
        "over five " +
        "masters, as specified. Kleppmann says that safety must not depend on time; antirez says " +
          "that " +
        "the assumptions hold on real machines, and that every lock that expires has the last " +
          "problem. " +
        "Each film ends with both, in our words.",
    ],
    films: [
      ["redlock-clock-jump", "Redlock: a clock jumps"], ["redlock-long-pause", "Redlock: a pause"],
      ["redlock-late-packet", "Redlock: a late packet"], ["redlock-lost-master",
        "Redlock: a lost master"],
      ["redis-clock-jump", "One Redis: a clock jumps"], ["redis-long-pause", "One Redis: a pause"],
      ["redis-late-packet", "One Redis: a late packet"], ["redis-lost-master",
        "One Redis: memory lost"],
    ],
    python: `# simulated: coordinator/learn/redlock.py and side_by_side.py
# on real members: python -m examples wall_clock_steps`,
    curl: `coordinator learn --script redlock-clock-jump`,
    runs: ["wall_clock_steps", "clock_drift"],
  },
];
