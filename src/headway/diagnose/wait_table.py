"""What a thread waits in, by the frames of its stack: the table, and nothing else. Read by
`stacks.py`.

A row is (kind, word, file, function): regular expressions for the end of a frame's file and for its
whole function; `{}` in the word is the function. Rows for source lines are (kind, word, pattern):
a call into C has no frame of its own, and only the text of the line that made it tells.

Kinds, those that say most first:
  collective  every rank of a group has to come (a barrier, too)
  data        the input pipeline of this rank: its loader's workers
  join        another thread or process of the same rank
  queue       somebody who puts or takes
  lock        somebody who holds it
  device      a GPU
  read        a file, a pipe or a socket
  event       somebody who sets it
  sleep       time; usually a loop that polls
"""

KINDS = ("collective", "data", "join", "queue", "lock", "device", "read", "event", "sleep")

_C10D = r"torch/distributed/(distributed_c10d|_functional_collectives|nn/functional)\.py"
_COLLECTIVES = (
    r"(all_reduce|all_gather\w*|_all_gather_base|reduce_scatter\w*|_reduce_scatter_base|reduce"
    r"|broadcast\w*|gather\w*|scatter\w*|all_to_all\w*|send\w*|recv\w*|batch_isend_irecv"
    r"|isend|irecv|barrier|monitored_barrier|all_reduce_coalesced|all_gather_object)"
)

FRAMES: tuple[tuple[str, str, str, str], ...] = (
    ("collective", "{}", _C10D, _COLLECTIVES),
    ("collective", "rendezvous", _C10D, r"(init_process_group|_store_based_barrier|new_group\w*)"),
    ("collective", "rendezvous", r"torch/distributed/rendezvous\.py", r".*"),
    ("collective", "{}", r"deepspeed/comm/(comm|torch)\.py", _COLLECTIVES),
    ("collective", "{}", r"accelerate/(state|accelerator|utils/operations)\.py",
     r"(wait_for_everyone|gather\w*|reduce|broadcast\w*)"),
    ("collective", "barrier", r"lightning\w*/.*strategies/\w+\.py", r"barrier"),
    ("collective", "{}", r"horovod/\w+/mpi_ops\.py", r"(synchronize|allreduce\w*|allgather\w*|broadcast\w*|barrier|join)"),
    ("collective", "{}", r"mpi4py/.*\.py", r".*"),
    ("collective", "sync_global_devices", r"jax/.*multihost_utils\.py", r".*"),
    ("collective", "rendezvous", r"jax/_src/distributed\.py", r".*"),
    ("collective", "{}", r"(cupy|cupyx)/.*nccl.*\.py", r".*"),
    # gradients are reduced inside the backward pass; seen as a wait only when nothing else moves
    ("collective", "backward", r"torch/autograd/(graph|__init__)\.py", r"(_engine_run_backward|backward)"),
    ("data", "DataLoader", r"torch/utils/data/dataloader\.py", r"(_try_get_data|_get_data|_next_data|__next__)"),
    ("data", "DataLoader shutdown", r"torch/utils/data/dataloader\.py", r"(_shutdown_workers|__del__)"),
    ("data", "tf.data", r"tensorflow/python/data/ops/iterator_ops\.py", r".*"),
    ("join", "thread join", r"threading\.py", r"(join|_wait_for_tstate_lock|_shutdown)"),
    ("join", "process join", r"multiprocessing/(process|popen_\w+)\.py", r"(join|wait|poll)"),
    ("join", "spawned ranks", r"torch/multiprocessing/spawn\.py", r"(join|spawn|start_processes)"),
    ("join", "its workers", r"torch/distributed/elastic/.*\.py", r".*"),
    ("join", "subprocess", r"subprocess\.py", r"(wait|_wait|_try_wait|communicate|_communicate|run|call|check_\w+)"),
    ("join", "future.result", r"concurrent/futures/\w+\.py", r"(result|result_or_cancel|wait|__exit__|shutdown|exception)"),
    ("join", "pool.{}", r"multiprocessing/pool\.py", r"(get|wait|join|map|starmap|apply|next)"),
    ("queue", "queue.{}", r"queue\.py", r"(get|put|join)"),
    ("queue", "queue.{}", r"multiprocessing/queues\.py", r"(get|put)"),
    ("queue", "queue.get", r"multiprocessing/managers\.py", r"_callmethod"),
    ("queue", "asyncio", r"asyncio/(base_events|runners|queues|locks)\.py", r".*"),
    ("lock", "lock", r"threading\.py", r"(acquire|__enter__)"),
    ("lock", "lock", r"multiprocessing/synchronize\.py", r"(acquire|__enter__|wait)"),
    ("lock", "file lock", r"(filelock|portalocker|fasteners)/.*\.py", r".*"),
    ("lock", "import lock", r"<frozen importlib\._bootstrap>", r"(acquire|_lock_unlock_module|__enter__)"),
    ("device", "GPU", r"torch/cuda/(__init__|streams)\.py", r"(synchronize|wait_\w+)"),
    ("device", "GPU", r"jax/_src/(array|api)\.py", r"(block_until_ready|_value|__array__)"),
    ("read", "recv", r"multiprocessing/connection\.py", r"(_?recv\w*|wait|_?poll|accept|_?send\w*)"),
    ("read", "socket", r"(socket|ssl|http/client|ftplib|smtplib|socketserver)\.py", r".*"),
    ("read", "network", r"(requests|urllib3|httpx|aiohttp|boto3|botocore|s3fs|fsspec|gcsfs|grpc)/.*\.py", r".*"),
    ("read", "select", r"selectors\.py", r"select"),
    ("read", "file", r"(gzip|lzma|bz2|_compression|tarfile|zipfile|shutil|codecs)\.py", r".*"),
    ("event", "event", r"threading\.py", r"(wait|wait_for)"),
)  # fmt: skip

# Names that mean the same wherever they stand: people wrap collectives in functions of these names.
OWN_COLLECTIVES = (
    r"all_?reduce\w*|all_?gather\w*|reduce_scatter\w*|all_?to_?all\w*|barrier|wait_for_everyone"
    r"|sync(?:hronize)?_ranks|sync_global_devices|broadcast_object\w*"
)

_MPI_BUFFERS = (
    r"\.(Barrier|Allreduce|Allgatherv?|Alltoall[vw]?|Bcast|Reduce|Gatherv?|Scatterv?"
    r"|Reduce_scatter\w*)\("
)
_MPI_OBJECTS = (
    r"\b(?:comm|COMM_WORLD|world|mpi)\w*\.(barrier|allreduce|allgather|alltoall|bcast|reduce|gather"
    r"|scatter|Recv|recv|Send|send|Ssend|ssend|Sendrecv|sendrecv|Probe|probe)\("
)
_READS = (
    r"\.(read\w*|recv\w*|accept|connect)\(|\bos\.(read|readv|pread)\("
    r"|\bfor \w+ in (f|fh|fp|file|stream|sys\.stdin|pipe)\b"
)
_BARE = r"(?<![\w.])"
SOURCES: tuple[tuple[str, str, str], ...] = (
    # mpi4py and others whose collectives are C
    ("collective", "{}", _MPI_BUFFERS),
    ("collective", "{}", _MPI_OBJECTS),
    ("collective", "{}", rf"\bdist\w*\.{_COLLECTIVES}\("),
    ("collective", "barrier", r"\bbarrier\w*\.wait\("),
    ("collective", "wait of a collective", r"\bwork\w*\.wait\("),
    ("device", "GPU", r"\.(item|cpu|tolist)\(\)|\.synchronize\(|block_until_ready"),
    ("lock", "file lock", r"\b(flock|lockf)\("),
    ("lock", "lock", r"\.acquire\(|^with\s+\S*(lock|mutex|sem)\w*\b|^async with\s+\S*lock"),
    ("join", "thread join", r"\.join\(\s*\)|\.join\(timeout"),
    ("join", "child process", r"\bos\.(wait|waitpid|wait3|wait4|waitid)\("),
    ("join", "subprocess", r"\bsubprocess\.\w+\(|\bos\.system\("),
    ("queue", "queue.{}", r"\b\w*(?:queue|fifo|jobs|tasks|inbox|channel)\w*\.(get|put)\(|\bq\w?\.(get|put)\("),
    ("read", "input", _BARE + r"input\("),
    ("read", "open", _BARE + r"open\(|\bos\.open\("),
    ("read", "read", _READS),
    ("read", "write", r"\bos\.(write|writev|fsync|fdatasync)\(|\.flush\(\)"),
    ("read", "select", r"\.(select|poll)\(|\bepoll\b"),
    ("event", "event", r"\.wait\(|\.wait_for\("),
    ("event", "a signal", r"\bsignal\.(pause|sigwait\w*|sigtimedwait)\("),
    ("sleep", "sleep", r"\bsleep\("),
)  # fmt: skip

# Frames by which a process is known as a helper: its words, and the file of one of its frames.
HELPERS: tuple[tuple[str, str], ...] = (
    ("DataLoader worker", r"torch/utils/data/_utils/worker\.py"),
    ("pool worker", r"multiprocessing/pool\.py"),
    ("process pool worker", r"concurrent/futures/process\.py"),
    ("resource tracker", r"multiprocessing/resource_tracker\.py"),
    ("fork server", r"multiprocessing/forkserver\.py"),
)
