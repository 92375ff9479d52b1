"""A real Slurm of some nodes on this machine, for tests, `make bench` and trying things by hand.

    python -m tests.rigs.slurm_rig FOLDER [accounting]       # until Ctrl-C; prints the SLURM_CONF to export

Debian's packages slurm-wlm and munge are enough, with accounting slurmdbd and mariadb-server too;
no service of the system is touched. The daemons are children, and end with this process. Nodes have
four made-up GPUs each, which are character devices or terminals.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from headway.testing.port import reserve
from tests.rigs import slurm_accounting_rig

NODES, CPUS, MEMORY_MIB, GPUS = 4, 4, 4000, 4
START_TIMEOUT_S = 30.0
PROGRAMS = (
    "munged",
    "slurmctld",
    "slurmd",
    "sbatch",
    "squeue",
    "scontrol",
    "sinfo",
    "scancel",
    "srun",
)

_CONF = """\
ClusterName=t
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={d}/munge.sock
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={d}/state
SlurmdSpoolDir={d}/spool.%n
SlurmctldPidFile={d}/ctld.pid
SlurmdPidFile={d}/slurmd.%n.pid
SlurmctldLogFile={d}/log/ctld.log
SlurmdLogFile={d}/log/%n.log
SlurmdParameters=config_overrides
SlurmdTimeout={slurmd_timeout_s}
ReturnToService=1
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=bf_interval=1,batch_sched_delay=0,sched_min_interval=10000
EnforcePartLimits=ALL
KillWait=3
MinJobAge={min_job_age_s}
GresTypes=gpu
JobCompType=jobcomp/filetxt
JobCompLoc={d}/log/jobcomp.log
NodeName=node[1-{nodes}] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs={cpus} \
RealMemory={memory} Gres=gpu:{gpus}
PartitionName=main Nodes=ALL Default=YES MaxTime=60 DefMemPerCPU=100
PartitionName=short Nodes=node1 MaxTime=5 DefMemPerCPU=100
"""


def missing(*, accounting: bool = False) -> list[str]:
    """Programs that are not here."""
    wanted = (*PROGRAMS, *slurm_accounting_rig.PROGRAMS) if accounting else PROGRAMS
    return [name for name in wanted if _which(name) is None]


def _which(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")


class SlurmCluster:
    """`lines`: further settings of slurm.conf. `accounting`: with associations, QoS and their
    limits; the user of the tests is in the account `ml`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        slurmd_timeout_s: int = 10,
        min_job_age_s: int = 300,
        lines: Sequence[str] = (),
        accounting: bool = False,
    ) -> None:
        self.folder, self._accounting = folder, accounting
        self.conf = folder / "slurm.conf"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._write_files(slurmd_timeout_s, min_job_age_s, lines)

    @property
    def env(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.conf)}

    def __enter__(self) -> "SlurmCluster":
        try:
            self.start()
        except BaseException:  # whatever it was, no daemon stays behind
            self.stop()
            raise
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    # -- files

    def _write_files(self, slurmd_timeout_s: int, min_job_age_s: int, lines: Sequence[str]) -> None:
        self.folder.chmod(0o755)  # munged wants a socket that everybody can reach
        for name in ("state", "log", "dev"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        port = reserve(2 + NODES)
        user = _user()
        if self._accounting:
            slurm_accounting_rig.prepare(self.folder, port + NODES + 1, user)
            lines = [*slurm_accounting_rig.lines(self.folder, port + NODES + 1), *lines]
        self.conf.write_text(
            _CONF.format(
                d=self.folder, port=port, first=port + 1, last=port + NODES, user=user, nodes=NODES, cpus=CPUS,
                memory=MEMORY_MIB, gpus=GPUS, slurmd_timeout_s=slurmd_timeout_s, min_job_age_s=min_job_age_s,
            )
            + "".join(f"{line}\n" for line in lines)
        )  # fmt: skip
        gpus = self._make_gpus()
        (self.folder / "gres.conf").write_text(
            f"AutoDetect=off\nNodeName=node[1-{NODES}] Name=gpu File={gpus}\n"
        )
        key = self.folder / "munge.key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(secrets.token_bytes(1024))

    def _make_gpus(self) -> str:
        """Files that Slurm takes for cards: it wants character devices."""
        try:
            for number in range(GPUS):
                path = self.folder / "dev" / f"gpu{number}"
                if not path.exists():
                    os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))
        except PermissionError:
            return f"/dev/tty[0-{GPUS - 1}]"
        return f"{self.folder}/dev/gpu[0-{GPUS - 1}]"

    # -- daemons

    def start(self) -> None:
        d = self.folder
        self._run(
            "munged", "munged", "-F", f"--socket={d}/munge.sock", f"--key-file={d}/munge.key",
            f"--pid-file={d}/munge.pid", f"--log-file={d}/log/munge.log", f"--seed-file={d}/munge.seed",
        )  # fmt: skip
        _wait((d / "munge.sock").exists, "munged")
        if self._accounting:
            self._start_accounting()
        self.start_controller()
        for number in range(1, NODES + 1):
            self.start_node(f"node{number}")
        _wait(self._is_up, "the nodes")

    def _start_accounting(self) -> None:
        program, *options = slurm_accounting_rig.database(self.folder, _user())
        self._run("database", program, *options)
        _wait((self.folder / "db.sock").exists, "the database")
        self._run("slurmdbd", "slurmdbd", "-D")
        _wait(
            lambda: self.command("sacctmgr", "-i", "add", "cluster", "t").returncode == 0,
            "slurmdbd",
        )
        self.account("add", "account", "ml", "Description=tests")
        self.account("add", "user", _user(), "Account=ml")
        # root is in one of its own by birth
        self.account("modify", "user", _user(), "set", "DefaultAccount=ml")

    def account(self, *words: str) -> None:
        """One change with sacctmgr."""
        done = self.command("sacctmgr", "-i", *words)
        if done.returncode:
            raise OSError(f"sacctmgr {' '.join(words)}: {done.stderr or done.stdout}")

    def start_controller(self, *options: str) -> None:
        """`-c`: without its state, as one whose disk was lost."""
        self._run("slurmctld", "slurmctld", "-D", "-i", *options)

    def start_node(self, node: str) -> None:
        self._run(node, "slurmd", "-D", "-N", node)

    def _run(self, name: str, program: str, *options: str) -> None:
        path = _which(program)
        if path is None:
            wanted = f"slurm-wlm munge{' slurmdbd mariadb-server' if self._accounting else ''}"
            raise FileNotFoundError(f"no {program} here; type: sudo apt-get install {wanted}")
        with (self.folder / "log" / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                [path, *options], env=self._environment(), stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True,
            )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        """Daemons serve many tests, so they belong to no home."""
        own = {k: v for k, v in os.environ.items() if not k.startswith("HEADWAY_")} | self.env
        return own | (slurm_accounting_rig.env(self.folder) if self._accounting else {})

    def _is_up(self) -> bool:
        done = self.command("sinfo", "-h", "-N", "-p", "main", "-o", "%T")
        return done.returncode == 0 and done.stdout.split().count("idle") == NODES

    def command(self, *argv: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **self.env}
        return subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=60, check=False
        )

    def kill(self, daemon: str, number: int = signal.SIGKILL) -> None:
        """A signal that ends `slurmctld` or a node's daemon; with SIGTERM it saves what it knows."""
        child = self._daemons.pop(daemon)
        child.send_signal(number)
        child.wait()

    def wait_idle(self) -> None:
        """Until every node can be used again."""
        _wait(self._is_up, "the nodes")

    def stop(self) -> None:
        if "slurmctld" in self._daemons:
            self.command("scancel", "--user", _user(), "--signal=KILL", "--full")
        for child in reversed(self._daemons.values()):
            child.send_signal(signal.SIGTERM)
        for child in self._daemons.values():
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._daemons.clear()


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def _wait(is_so: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while not is_so():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what} did not come up in {START_TIMEOUT_S:g} s")
        time.sleep(0.05)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell has set the first one aside
        signal.signal(number, signal.default_int_handler)
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with SlurmCluster(folder, accounting="accounting" in sys.argv[2:]) as cluster:
        sys.stdout.write(f"export SLURM_CONF={cluster.conf}\n")
        sys.stdout.flush()
        try:
            signal.pause()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
