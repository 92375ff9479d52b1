"""Memory of the host: the kernel's and the scheduler's kills, failed allocations, shared memory of loader workers."""

from headway.diagnose.rule import EXCEPTION, FACT, PLAIN, SUMMARY, rule

# Ray lists what it could have been.
_GUESSES = r"(?i)common causes|potential root causes|could be|might|may (?:have|be)|possible reason"

RULES = (
    # The kernel.
    rule(
        "host_oom",
        r"[Oo]ut of memory: Kill(?:ed)? process|Memory cgroup out of memory: Kill"
        r"|killed by the OOM killer",
        "out of memory",
        "oom killer",
        confidence=0.97,
        role=FACT,
        unless=_GUESSES,
    ),
    rule(
        "host_oom",
        r"Memory cgroup out of memory|oom-kill:constraint=|invoked oom-killer"
        r"|oom_reaper: reaped process",
        "out of memory",
        "oom",
        confidence=0.96,
        role=FACT,
        unless=_GUESSES,
    ),
    # Schedulers and runtimes.
    rule(
        "host_oom",
        r"Detected \d+ oom[-_ ]?kill event|tasks? have been OOM Killed|\bOut Of Memory\b"
        r"|\bOUT_OF_MEMORY\b(?!.*CUDA)"
        r"|[Ee]xceeded (?:job|step) memory limit|exceeded (?:virtual )?memory limit"
        r"|\bOOM Killed\b|\boom_kill\b.*step",
        "oom",
        "out of memory",
        "out_of_memory",
        "memory limit",
        confidence=0.96,
        role=FACT,
        unless=r"CUDA_ERROR|CUDA|GPU|(?i:warning)",
    ),
    rule(
        "host_oom",
        r"\bOOMKilled\b|System OOM encountered|[Cc]ontainer .*(?:was )?(?:OOM.?killed"
        r"|killed.*memory limit)"
        r"|running beyond (?:physical|virtual) memory limits",
        "oom",
        "memory limits",
        confidence=0.96,
        role=FACT,
        unless=r"OOMKilled\W{1,3}(?:false|False)",
    ),
    rule(
        "host_oom",
        r"TERM_MEMLIMIT|job killed: p?v?mem [\d\w]+ exceeded limit|memory usage limit"
        r"|node was low on resource: memory"
        r"|(?:mem|vmem|pmem) \S+ exceeded limit|[Uu]sed memory .*exceed\w* .*(?:limit|request)",
        "mem",
        confidence=0.93,
        role=FACT,
        unless=r"(?i)gpu|cuda",
    ),
    rule(
        "host_oom",
        r"ray\.exceptions\.OutOfMemoryError|was killed due to the node running low on memory",
        "low on memory",
        "outofmemory",
        confidence=0.96,
        role=FACT,
    ),
    rule(
        "host_oom",
        r"killed due to (?:the node running low on memory|memory pressure)"
        r"|node running low on memory"
        r"|Worker \S+ .*exceeded \d+% memory budget\. Restarting",
        "memory",
        confidence=0.95,
        role=FACT,
    ),
    # Allocations that failed in the program.
    rule(
        "host_oom",
        r"_?ArrayMemoryError|Unable to allocate [\d.]+ \w+ for an array|(?:^|\W)MemoryError\b",
        "memoryerror",
        "unable to allocate",
        confidence=0.95,
    ),
    rule(
        "host_oom",
        r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|std::bad_alloc|ArrowMemoryError"
        r"|java\.lang\.OutOfMemoryError|malloc of size \d+ failed|cannot allocate vector of size"
        r"|fatal error: runtime: out of memory|JavaScript heap out of memory",
        "memory",
        "bad_alloc",
        "malloc",
        "cannot allocate",
        confidence=0.93,
    ),
    rule(
        "host_oom",
        r"Cannot allocate memory|\[Errno 12\]|\bENOMEM\b|paging file is too small",
        "paging file",
        "cannot allocate memory",
        "errno 12]",
        "enomem",
        confidence=0.88,
        unless=r"(?i)pinned|page-locked|ibv_|NET/IB|shared memory|GPU|CUDA",
    ),
    # Loader workers and shared memory.
    rule(
        "shm_or_loader_worker",
        r"Unexpected bus error encountered in worker|insufficient shared memory \(shm\)",
        "bus error",
        "shared memory",
        confidence=0.95,
        unless=r"(?i)^\W*(?:warning|warn)\b",
    ),
    rule(
        "shm_or_loader_worker",
        r"DataLoader worker \(pid.{0,200}?\) is killed by signal",
        "dataloader worker",
        confidence=0.92,
    ),
    rule(
        "shm_or_loader_worker",
        r"DataLoader worker \(pid.{0,200}?\) exited unexpectedly",
        "dataloader worker",
        confidence=0.82,
        role=SUMMARY,
    ),
    rule(
        "shm_or_loader_worker",
        r"unable to (?:open|mmap|resize|write to|allocate)[^<]*shared memory|unable to (?:open"
        r"|write to) file </torch_"
        r"|[Ee]rror while creating shared memory segment|No space left on device.*/dev/shm"
        r"|/dev/shm.*No space left"
        r"|unable to mmap \d+ bytes from file </torch|Shared memory (?:manager|file) .*(?:fail"
        r"|Timeout)"
        r"|torch_shm_manager.*(?:error|failed)|posix_fallocate failed.*No space"
        r"|unable to open shared memory object",
        "shared memory",
        "/torch_",
        "dev/shm",
        "shm_manager",
        "posix_fallocate",
        confidence=0.92,
    ),
    rule(
        "shm_or_loader_worker",
        r"received 0 items of ancdata",
        "ancdata",
        confidence=0.82,
        advice="torch.multiprocessing.set_sharing_strategy('file_system'), or ulimit -n 65536",
    ),
    rule(
        "shm_or_loader_worker",
        r"\[Errno 24\] Too many open files",
        "too many open files",
        confidence=0.6,
        where=EXCEPTION,
        advice="ulimit -n 65536",
    ),
    rule(
        "shm_or_loader_worker",
        r"Caught signal 7 \(Bus error|\bBus error\b(?: +\(core dumped\)|\s*$"
        r"|.*nonexistent physical address)|\(SIGBUS\)|return code = -7\b|exitcode\W+-7\b"
        r"|signal 7\b",
        "bus error",
        "sigbus",
        "-7",
        "signal 7",
        confidence=0.75,
        role=SUMMARY,
    ),
    # A SIGKILL that nobody explains.
    rule(
        "sigkill_unexplained",
        r"Signal 9 \(SIGKILL\) received",
        "sigkill",
        confidence=0.74,
        role=SUMMARY,
    ),
    rule(
        "sigkill_unexplained",
        r"exitcode\W+-9\b|died with <Signals\.SIGKILL|return code = -9\b|exited on signal 9\b"
        r"|(?:exit|return)[ _]?code:?\W{0,3}(?:137|-9)\b|\bSIGKILL\b.*(?:worker|process"
        r"|terminated|killed)"
        r"|killed by signal:? (?:9\b|SIGKILL)",
        "sigkill",
        "signal 9",
        "137",
        "-9",
        confidence=0.7,
        role=SUMMARY,
        unless=r"(?i)will be|sending|to send|escalat",
    ),
    rule(
        "sigkill_unexplained",
        r"^(?:.*?: line \d+: +|\[\d+\][-+]? +)(?:\d+ )?Killed(?:\s.*)?$"
        r"|^(?:\d+ )?Killed(?:\s{2,}.*|\s*)$",
        "killed",
        confidence=0.68,
        role=SUMMARY,
        where=PLAIN,
        unless=r"Killed (?:process|by user|subprocess)",
    ),
    rule(
        "sigkill_unexplained",
        r"task \d+: Killed\b|tasks? [\d,-]+: Killed\b",
        "killed",
        confidence=0.66,
        role=SUMMARY,
    ),
    # A pool or a cluster only knows that a worker is gone.
    rule(
        "sigkill_unexplained",
        r"[Ww]orker (?:process )?(?:\S+ )?(?:died|was killed|crashed) (?:or was killed"
        r"|unexpectedly|while executing)"
        r"|process pool was terminated abruptly"
        r"|worker process managed by the executor was unexpectedly terminated"
        r"|exited unexpectedly with exit code -?9",
        "worker",
        "process pool",
        "exited unexpectedly",
        confidence=0.58,
        role=SUMMARY,
        unless=r"DataLoader worker",
    ),
)
