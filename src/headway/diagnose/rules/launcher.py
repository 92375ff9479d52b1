"""Launchers: mpirun, PMI, srun steps, ssh; and what they say of processes that ended."""

from headway.diagnose.rule import CONSEQUENCE, ROOT, SUMMARY, rule

RULES = (
    rule(
        "mpi_launcher",
        r"(?:ORTE|PRTE|PRRTE) (?:was unable|has lost communication|daemon)|(?:ORTE"
        r"|PRTE) daemon has unexpectedly failed"
        r"|not enough slots available|Fatal error in P?MPI_Init|PMI[X2]?\w* ?(?:ERROR"
        r"|_Init failed)|OPAL ERROR"
        r"|looks like (?:MPI_INIT|orte_init|opal_init|MPI_Init\w*|prte_init) failed"
        r"|HYDU?_\w+.*(?:error|fail|unable)"
        r"|mpirun (?:was unable to|has detected|lost)"
        r"|An? (?:ORTE|PRTE) daemon|orted? .*(?:lost|not found)"
        r"|All nodes which are allocated for this job are already filled"
        r"|UCX  ?ERROR.*(?:wireup|no active messages)|unable to launch the specified application"
        r"|MPI_ERR_\w+: "
        r"|ORTE_ERROR_LOG|PMIX ERROR|plm_rsh|pmix_.*\bfailed|Open MPI .*was unable"
        r"|could not open a PMI",
        "orte",
        "prte",
        "prrte",
        "slots available",
        "mpi",
        "pmi",
        "hyd",
        "opal",
        "plm_rsh",
        "already filled",
        "ucx",
        confidence=0.93,
        role=ROOT,
        unless=r"(?i)warning|unable to (?:find|access).*executable|exited on signal"
        r"|non-zero exit|info:|could not access"
        r"|MPI_ABORT was invoked|with errorcode",
    ),
    rule(
        "mpi_launcher",
        r"PMI_\w+ returned -1|Unable to write to PMI_fd",
        "pmi_",
        confidence=0.85,
    ),
    rule(
        "mpi_launcher",
        r"srun: error: (?:Task launch|Unable to create step|Application launch failed"
        r"|.*[Ll]aunch failed)"
        r"|slurm_send_recv_msgs?.*failed|Host key verification failed"
        r"|ssh: connect to host \S+ port \d+: "
        r"|ssh: Could not resolve hostname|couldn't (?:ssh|reach) .*host",
        "launch",
        "create step",
        "slurm_send",
        "host key",
        "ssh",
        confidence=0.82,
        role=ROOT,
    ),
    rule(
        "mpi_launcher",
        r"srun: error: Unable to (?:satisfy|confirm|contact)|Unable to contact slurm controller"
        r"|Job credential expired",
        "srun: error",
        "slurm controller",
        "credential expired",
        confidence=0.7,
    ),
    # What was seen of processes that ended: the reason is somewhere else, where there is one.
    rule(
        "code_exception",
        r"MPI_ABORT was invoked on rank (?P<rank>\d+)|Primary job +terminated normally, but"
        r"|exited with non-zero status",
        "mpi_abort",
        "primary job",
        "non-zero",
        confidence=0.45,
        role=CONSEQUENCE,
    ),
    rule(
        "segfault_or_abort",
        r"Signal 11 \(SIGSEGV\) received",
        "sigsegv",
        confidence=0.9,
        role=SUMMARY,
    ),
    rule(
        "segfault_or_abort",
        r"Segmentation fault|\(SIGSEGV\)|signal 11\b|exit(?:ed with exit )?code:?\W{1,3}(?:139"
        r"|-11)\b|exitcode\W+-11\b"
        r"|Signals\.SIGSEGV|SIGSEGV\b.*(?:received|caught|fault)|segfault at [0-9a-f]+ ip"
        r"|return code = -11\b"
        r"|Unexpected segmentation fault",
        "segmentation fault",
        "sigsegv",
        "signal 11",
        "139",
        "-11",
        "segfault",
        confidence=0.88,
        role=SUMMARY,
        unless=r"(?i)might|may (?:cause|lead)|can cause|to avoid|known to",
    ),
    rule(
        "segfault_or_abort",
        r"free\(\): (?:invalid|double)|double free or corruption|malloc\(\): |munmap_chunk\(\)"
        r"|corrupted (?:size|double-linked)"
        r"|stack smashing detected|terminate called without an active exception"
        r"|pure virtual method called"
        r"|Fatal Python error: (?!.*KeyboardInterrupt|_enter_buffered_busy)|realloc\(\): "
        r"|Floating point exception|free\(\): |heap corruption",
        "free()",
        "double free",
        "malloc()",
        "munmap_chunk",
        "corrupted",
        "smashing",
        "terminate called",
        "pure virtual",
        "fatal python error",
        "realloc()",
        "floating point exception",
        confidence=0.88,
        role=ROOT,
    ),
    rule(
        "segfault_or_abort",
        r"\*\*\* Process received signal \*\*\*",
        "process received signal",
        confidence=0.86,
        role=ROOT,
    ),
    # Why it aborted, before the shell says that it did.
    rule(
        "segfault_or_abort",
        r"terminate called after throwing an instance of|^\W{0,2}F\d{4} .*\bCheck failed: "
        r"|^\S+: \S+:\d+: .*Assertion [`'].* failed\.",
        "terminate called",
        "check failed",
        "assertion",
        confidence=0.78,
        role=SUMMARY,
        unless=r"block: \[",
    ),
    rule(
        "segfault_or_abort",
        r"\bAborted\b(?:\s+\(core dumped\)|\s*$)|\(SIGABRT\)|exited on signal 6\b"
        r"|exit(?:ed with exit )?code:?\W{1,3}(?:134|-6)\b"
        r"|exitcode\W+-6\b|Signals\.SIGABRT|return code = -6\b|\(core dumped\)"
        r"|Assertion [`'\"].*[`'\"] failed",
        "aborted",
        "sigabrt",
        "signal 6",
        "134",
        "-6",
        "core dumped",
        "assertion ",
        confidence=0.72,
        role=SUMMARY,
        unless=r"Job step aborted|Illegal instruction|Bus error|block: \[",
    ),
    rule(
        "illegal_instruction",
        r"Illegal instruction|\(SIGILL\)|signal 4\b|exitcode\W+-4\b|exit code:? 132\b"
        r"|Signals\.SIGILL|traps: .* invalid opcode"
        r"|return code = -4\b",
        "illegal instruction",
        "sigill",
        "signal 4",
        "-4",
        "132",
        "invalid opcode",
        confidence=0.93,
        role=SUMMARY,
        unless=r"CUDA|an illegal instruction was encountered",
    ),
    rule(
        "illegal_instruction",
        r"was compiled to use \w+ instructions, but these aren't available"
        r"|requires? AVX\w*.{0,40}not (?:supported|available)"
        r"|CPU does not support (?:AVX|SSE)",
        "instructions, but",
        "avx",
        "sse",
        confidence=0.93,
        role=ROOT,
    ),
    rule(
        "command_not_found",
        r"^(?:\S*/)?(?:ba|da|z|k)?sh: (?:line \d+: |\d+: )?\S+: (?:Permission denied"
        r"|Is a directory)",
        "permission denied",
        "is a directory",
        confidence=0.92,
        where="plain",
    ),
    rule(
        "command_not_found",
        r"(?:^|\W)(?:ba|z|da|k)?sh: .*(?:command )?not found|: command not found\s*$"
        r"|execve\(\): (?:\S+): (?:No such file|Permission denied)"
        r"|executable file not found in \$?PATH|^(?:\S*/)?env: .*: No such file or directory"
        r"|unable to find the specified executable"
        r"|could not access\s+or execute an executable|bad interpreter: |[Ee]xec format error"
        r"|^\S*: \d+: \S+: not found$"
        r"|exec: \"?\S+\"?: (?:no such file|permission denied|stat )|CreateContainerError.*exec"
        r"|(?:failed to|cannot) exec"
        r"|while attempting\s+to start process|cannot execute(?: binary file)?\b",
        "not found",
        "execve()",
        "env: ",
        "executable",
        "bad interpreter",
        "exec format",
        "exec: ",
        "exec",
        "attempting",
        "cannot execute",
        confidence=0.9,
        role=ROOT,
        where="plain",
        unless=r"(?i)sourcing|module: command not found|nvidia-smi|GLIBC|lscpu|warning",
    ),
)
