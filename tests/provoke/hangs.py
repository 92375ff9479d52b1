"""Real hangs, each with what is to be found of it: the rank to look at and the causes that are right.

A case is a script for `ranks` processes. Each steps a few times, then the way in which it gets stuck
begins. `STEPS` is put in front of all: `step()` prints a loss as training loops do. Ranks that wait for
others do so by `together()`, which is called like a collective and waits in a socket of the job, or by
a real collective where `needs` says so. Read by `hang_score.py` and by `tests/fault/test_hangs.py`.
"""

from dataclasses import dataclass, field

STEPS = r'''
import ctypes, fcntl, multiprocessing, os, queue, select, signal, socket, subprocess, sys, threading, time
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
count = 0

def step(n=20):
    global count
    for _ in range(n):
        count += 1
        print(f"step {count} loss {1 / count:.4f}", flush=True)
        time.sleep(0.02)

class Comm:
    """A barrier of the job's ranks over a socket, called as mpi4py's is."""
    def __init__(self):
        port = int(os.environ["HANG_PORT"])
        self.server, self.dead = None, False
        if rank == 0:
            self.server = socket.create_server(("127.0.0.1", port))
            threading.Thread(target=self.serve, daemon=True).start()
        for _ in range(500):
            try:
                self.socket = socket.create_connection(("127.0.0.1", port))
                break
            except OSError:
                time.sleep(0.02)
    def serve(self):
        peers = [self.server.accept()[0] for _ in range(world)]
        while True:
            for peer in peers:
                if not peer.recv(1):
                    return
            while self.dead:
                time.sleep(1)
            for peer in peers:
                peer.sendall(b"x")
    def barrier(self):
        self.socket.sendall(b"x")
        self.socket.recv(1)
    def all_gather(self):
        self.socket.recv(1)

if world > 1 and os.environ.get("HANG_PORT"):
    comm = Comm()

def together():
    comm.barrier()

def train(n=10):
    for _ in range(n):
        step(1)
        together()
'''


@dataclass(frozen=True)
class Case:
    name: str
    script: str
    ranks: int = 1
    odd: tuple[int, ...] = (0,)  # any of these; empty: nobody is to be named
    causes: tuple[str, ...] = ("hang",)
    needs: str = ""  # torch, mpi
    fast: bool = False  # in the sample of `make test`
    words: tuple[str, ...] = field(default=())  # that the text must have


def _alone(name: str, body: str, *words: str, **more: object) -> Case:
    return Case(name, f"step()\n{body}", words=words, **more)  # type: ignore[arg-type]


def _one_of_four(name: str, body: str, *words: str, rank: int = 2, **more: object) -> Case:
    """All wait for this rank in a collective."""
    script = f"train()\nif rank == {rank}:\n"
    script += "".join(f"    {line}\n" for line in body.splitlines())
    script += "train(1000)"
    return Case(name, script, 4, (rank,), ("collective_stall",), words=words, **more)  # type: ignore[arg-type]


MPI = """from mpi4py import MPI
comm = MPI.COMM_WORLD
rank = comm.Get_rank()
for _ in range(10):
    comm.allreduce(1)
    step(1)
"""
CASES: tuple[Case, ...] = (
    # -- one process
    _alone("lock_twice", "lock = threading.Lock()\nlock.acquire()\nlock.acquire()", "lock"),
    _alone("with_lock_twice", "lock = threading.Lock()\nwith lock:\n    with lock: pass", "lock"),
    _alone("queue_get", "def next_batch(): return queue.Queue().get()\nnext_batch()", "queue.get"),
    _alone("queue_put_full", "q = queue.Queue(1)\nq.put(1)\nq.put(2)", "queue.put"),
    _alone("queue_join", "q = queue.Queue()\nq.put(1)\nq.join()", "queue.join"),
    _alone("event_wait", "threading.Event().wait()", "event"),
    _alone("condition_wait", "c = threading.Condition()\nwith c: c.wait()", "event"),
    _alone("thread_join", "t = threading.Thread(target=threading.Event().wait)\nt.start()\nt.join()",
           "thread join"),
    _alone("two_locks_crossed", """a, b = threading.Lock(), threading.Lock()
def other():
    with b:
        time.sleep(0.2)
        with a: pass
t = threading.Thread(target=other)
t.start()
with a:
    time.sleep(0.2)
    with b: pass""", "lock"),
    _alone("pipe_read", "os.read(os.pipe()[0], 1)", "read"),
    _alone("pipe_write_full", "pipe = open(os.pipe()[1], 'wb')\npipe.write(bytes(10**6))\npipe.flush()"),
    _alone("fifo_open", "path = f'fifo-{os.getpid()}'\nos.mkfifo(path)\nopen(path).read()", "open"),
    _alone("socket_accept", "s = socket.create_server(('127.0.0.1', 0))\ns.accept()", "socket"),
    _alone("socket_recv", "a, b = socket.socketpair()\na.recv(1)", "read"),
    _alone("select_nothing", "a, b = socket.socketpair()\nselect.select([a], [], [])", "select"),
    _alone("poll_loop", "def poll():\n    while not os.path.exists('never'):\n        time.sleep(0.05)\npoll()",
           "sleep"),
    _alone("long_sleep", "time.sleep(10000)", "sleep"),
    _alone("file_lock", """f = open(f'lock-{os.getpid()}', 'w')
g = open(f'lock-{os.getpid()}', 'w')
fcntl.flock(f, fcntl.LOCK_EX)
fcntl.flock(g, fcntl.LOCK_EX)""", "file lock"),
    _alone("gil_held_in_c", "libc = ctypes.PyDLL(None)\nr, w = os.pipe()\nbuffer = ctypes.create_string_buffer(1)\n"
           "libc.read(r, buffer, 1)"),
    _alone("subprocess_hangs", "subprocess.run([sys.executable, '-c', 'import time; time.sleep(9999)'])",
           "subprocess"),
    _alone("shell_hangs", "os.system('sleep 9999')", "subprocess"),
    _alone("child_process_join", """p = multiprocessing.get_context('fork').Process(target=threading.Event().wait)
p.start()
p.join()""", "process join"),
    _alone("pool_worker_stuck", """def work(n):
    if n == 1: threading.Event().wait()
    return n
with multiprocessing.get_context('fork').Pool(2) as pool: pool.map(work, range(4))""", "pool"),
    _alone("executor_future", """from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
pool.submit(threading.Event().wait).result()""", "future.result"),
    _alone("stopped", "os.kill(os.getpid(), signal.SIGSTOP)", "stopped", fast=True),
    _alone("mp_queue_get", "multiprocessing.get_context('fork').Queue().get()", "queue.get"),
    _alone("asyncio_never", "import asyncio\nasync def main(): await asyncio.Event().wait()\nasyncio.run(main())"),
    _alone("semaphore", "s = threading.Semaphore(0)\ns.acquire()", "lock"),
    _alone("wait_for_child", "if os.fork() == 0:\n    threading.Event().wait()\nos.wait()", "child process"),
    # -- four ranks, three of which wait for one
    _one_of_four("rank_in_queue", "def next_batch(): return queue.Queue().get()\nnext_batch()",
                 "queue.get", fast=True),
    _one_of_four("rank_in_lock", "lock = threading.Lock()\nlock.acquire()\nlock.acquire()", "lock", rank=0),
    _one_of_four("rank_stopped", "os.kill(os.getpid(), signal.SIGSTOP)", "stopped", rank=3, fast=True),
    _one_of_four("rank_sleeps", "time.sleep(10000)", "sleep", rank=1),
    _one_of_four("rank_reads_fifo", "path = f'fifo-{os.getpid()}'\nos.mkfifo(path)\nopen(path).read()", "open"),
    _one_of_four("rank_in_c_with_gil", "libc = ctypes.PyDLL(None)\nr, w = os.pipe()\n"
                 "libc.read(r, ctypes.create_string_buffer(1), 1)", rank=1),
    _one_of_four("rank_in_file_lock", """f, g = open('l', 'w'), open('l', 'w')
fcntl.flock(f, fcntl.LOCK_EX)
fcntl.flock(g, fcntl.LOCK_EX)""", "file lock", rank=3),
    _one_of_four("rank_in_subprocess", "subprocess.run(['sleep', '9999'])", "subprocess"),
    _one_of_four("rank_polls", "while not os.path.exists('never'): time.sleep(0.05)", "sleep", rank=0),
    _one_of_four("rank_joins_thread", "t = threading.Thread(target=threading.Event().wait)\nt.start()\nt.join()",
                 "thread join"),
    _one_of_four("rank_swallowed_an_error", """try:
    raise ValueError('bad sample')
except ValueError:
    threading.Event().wait()""", "event", rank=3),
    Case("rank_in_another_collective", """train()
if rank == 1:
    comm.all_gather()
train(1000)""", 4, (1,), ("collective_divergence",), words=("all_gather",)),
    Case("all_wait_in_the_same_collective", """train()
comm.dead = True
train(1000)""", 4, (), ("collective_stall",)),
    # -- PyTorch with gloo
    Case("gloo_rank_skips_all_reduce", """import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(4)
for _ in range(10):
    dist.all_reduce(x)
    step(1)
if rank == 1:
    queue.Queue().get()
dist.all_reduce(x)""", 2, (1,), ("collective_stall",), "torch", words=("all_reduce", "queue.get")),
    Case("gloo_divergence", """import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(4)
def evaluate(): dist.broadcast(x, 2)
for _ in range(10):
    dist.all_reduce(x)
    step(1)
if rank == 2:
    dist.recv(x, 0)
dist.all_reduce(x)""", 3, (2,), ("collective_divergence", "collective_stall"), "torch"),
    Case("gloo_barrier_stopped_rank", """import torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(10):
    dist.barrier()
    step(1)
if rank == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
dist.barrier()""", 3, (0,), ("collective_stall",), "torch", words=("stopped",)),
    Case("ddp_rank_leaves_backward", """import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
for _ in range(10):
    model(torch.ones(2, 4)).sum().backward()
    step(1)
loss = model(torch.ones(2, 4)).sum()
if rank == 1:
    threading.Event().wait()
loss.backward()""", 2, (1,), ("collective_stall",), "torch", words=("event",)),
    Case("dataloader_worker_stuck", """import torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 1000
    def __getitem__(self, index):
        if index == 60: threading.Event().wait()
        return torch.ones(1)
for batch in torch.utils.data.DataLoader(Data(), num_workers=2):
    step(1)""", 1, (0,), ("dataloader_hang",), "torch", words=("DataLoader", "worker")),
    Case("dataloader_worker_stopped", """import torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 1000
    def __getitem__(self, index):
        if index == 60: os.kill(os.getpid(), signal.SIGSTOP)
        return torch.ones(1)
for batch in torch.utils.data.DataLoader(Data(), num_workers=2):
    step(1)""", 1, (0,), ("dataloader_hang",), "torch", words=("DataLoader", "stopped")),
    Case("one_rank_without_data", """import torch, torch.distributed as dist
dist.init_process_group("gloo")
class Data(torch.utils.data.Dataset):
    def __len__(self): return 1000
    def __getitem__(self, index):
        if index == 60 and rank == 1: threading.Event().wait()
        return torch.ones(1)
for batch in torch.utils.data.DataLoader(Data(), num_workers=1):
    dist.all_reduce(batch)
    step(1)""", 2, (1,), ("dataloader_hang",), "torch", words=("DataLoader",)),
    Case("rendezvous_never_complete", """step()
import torch.distributed as dist
os.environ["WORLD_SIZE"] = str(world + 1)
dist.init_process_group("gloo")""", 2, (), ("collective_stall", "hang"), "torch"),
    # -- MPI: mpirun starts the ranks
    Case("mpi_rank_in_queue", MPI + """if rank == 2:
    queue.Queue().get()
comm.Barrier()""", 4, (2,), ("collective_stall",), "mpi", words=("Barrier", "queue.get")),
    Case("mpi_receive_that_nobody_sends", MPI + """if rank == 1:
    comm.recv(source=0, tag=77)
comm.allreduce(1)""", 4, (1,), ("collective_divergence", "collective_stall"), "mpi", words=("allreduce", "recv")),
    Case("mpi_rank_stopped", MPI + """if rank == 3:
    os.kill(os.getpid(), signal.SIGSTOP)
comm.Barrier()""", 4, (3,), ("collective_stall",), "mpi", words=("stopped",)),
    Case("mpi_other_collective", MPI + """if rank == 0:
    comm.gather(1, root=0)
comm.bcast(1, root=0)
comm.Barrier()""", 3, (0,), ("collective_divergence", "collective_stall"), "mpi"),
)  # fmt: skip

# Jobs that are silent and do not hang: nothing may be found of them.
CLEAN: tuple[Case, ...] = (
    _alone("compiles", "end = time.time() + 12\nwhile time.time() < end: sum(range(1000))\nstep()"),
    _alone("writes_a_checkpoint", """with open('checkpoint', 'wb') as f:
    for _ in range(60):
        f.write(bytes(2**20))
        f.flush()
        os.fsync(f.fileno())
        time.sleep(0.2)
step()"""),
    _alone("reads_slowly", """data = open('data', 'wb+')
data.write(bytes(2**22))
for n in range(60):
    data.seek(n * 2**16)
    data.read(2**16)
    time.sleep(0.2)
step()"""),
    _alone("child_computes", """subprocess.run([sys.executable, '-c', '''
import time
end = time.time() + 12
while time.time() < end: sum(range(1000))'''])
step()"""),
    Case("rank_zero_evaluates", """train()
if rank == 0:
    def evaluate():
        end = time.time() + 12
        while time.time() < end: sum(range(1000))
    evaluate()
train()""", 4),
    Case("sleeps_before_it_begins", "time.sleep(14)\nstep()", 1),
)  # fmt: skip
