"""Collective operations: ranks that did different things, that waited in vain, or that lost a peer."""

from headway.diagnose.rule import CONSEQUENCE, ROOT, rule

RULES = (
    rule(
        "collective_divergence",
        r"[Dd]etected mismatch between collectives|[Mm]ismatched? (?:collective|allreduce"
        r"|allgather|broadcast|tensor)"
        r"|is running collective: .* but |submitted to be (?:reduced|gathered"
        r"|broadcasted).* by subset of ranks"
        r"|lagging/dead/mismatched ranks that caused the desync|[Cc]ollective\w* (?:mismatch"
        r"|out of order)"
        r"|ranks? .*called? different collective",
        "mismatch",
        "is running collective",
        "subset of ranks",
        "different collective",
        "out of order",
        confidence=0.93,
        role=ROOT,
        unless=r"(?i)size mismatch for|^\W*warning",
    ),
    rule(
        "collective_stall",
        r"Watchdog caught collective operation timeout|watchdog got stuck for \d+"
        r"|Heartbeat monitor timed out|[Cc]ollective operation timed? ?out"
        r"|NCCL (?:watchdog )?timeout"
        r"|Timed out waiting \d+ms for (?:recv|send) operation"
        r"|WorkNCCL\(.*ran for \d+ milliseconds before timing out"
        r"|WorkHCCL.*timed? ?out|failed to pass monitoredBarrier"
        r"|reached monitoredBarrier, but received errors"
        r"|monitored[Bb]arrier.*(?:timed out|failed)"
        r"|DEADLINE_EXCEEDED.*(?:all-?reduce|collective|rendezvous)|Horovod.*stall"
        r"|Stalled (?:ranks|ops)|barrier .*timed out"
        r"|wait timeout after \d+ms.*store|ProcessGroup\w*.*(?:timed out|timeout)",
        "timeout",
        "timed out",
        "timing out",
        "monitoredbarrier",
        "deadline_exceeded",
        "stall",
        "got stuck",
        confidence=0.82,
        role=CONSEQUENCE,
        unless=r"(?i)\bset(?:ting)? .*timeout|no timeout|timeout=",
    ),
    rule(
        "collective_cascade",
        r"Horovod has been shut ?down|one of the ranks (?:has )?(?:failed|died|exited)",
        "horovod has been",
        "one of the ranks",
        confidence=0.82,
        role=CONSEQUENCE,
        fuzzy=True,
    ),
    rule(
        "collective_cascade",
        r"[Cc]onnection (?:was )?closed by (?:remote )?peer|ncclRemoteError"
        r"|NCCL remote process exited|remote process exited"
        r"|Connection closed by localRank|socketProgress.*closed|recvValue failed"
        r"|sendBytes failed|store (?:might be|is) down"
        r"|failed to recv, got 0 bytes|Broken pipe|(?:Read|Write|writev|readv) error .*(?:closed"
        r"|reset|Broken)"
        r"|NCCL WARN .*(?:Connection reset by peer|Call to recv from)"
        r"|Application timeout caused pair closure|Socket closed"
        r"|aborted by peer|another rank|another task died|distributed service detected fatal"
        r"|communicator was aborted|ncclCommAbort|NCCL communicator was aborted"
        r"|peer .*has (?:exited|died)"
        r"|Connection reset by peer",
        "closed",
        "ncclremoteerror",
        "remote process",
        "recvvalue",
        "sendbytes",
        "store ",
        "got 0 bytes",
        "broken pipe",
        "reset by peer",
        "call to recv",
        "another rank",
        "another task",
        "detected fatal",
        "aborted",
        "socketprogress",
        "peer",
        confidence=0.8,
        fuzzy=True,
        role=CONSEQUENCE,
        unless=r"(?i)huggingface|https?:|urllib|requests\.|job step aborted|File \"",
    ),
    # The other ranks are told to stop because one has failed.
    rule(
        "cancelled",
        r"closing signal SIG\w+|Received \S+ death signal"
        r"|SignalException: Process \d+ got signal: 15|\(SIGTERM\)"
        r"|Killing subprocess \d+|received SIGTERM|Received SIGTERM|exitcode\W+-15\b"
        r"|exit code:? 143\b|^Terminated\s*$"
        r"|task \d+: Terminated|signal 15\b|return code = -15\b|Signals\.SIGTERM|SIGTERM received",
        "closing signal",
        "death signal",
        "got signal",
        "sigterm",
        "killing subprocess",
        "-15",
        "143",
        "terminated",
        "signal 15",
        confidence=0.55,
        role=CONSEQUENCE,
    ),
)
