"""What goes over NFS, from the kernel's own counters."""

from pathlib import Path

from headway.agent.probes.nfs import Nfs, parse
from headway.agent.probes.proc_file import Budget

MOUNTS = """device rootfs mounted on / with fstype rootfs
device nas:/data mounted on /data with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576
\tage:\t1000
\tbytes:\t100 200 0 0 {read} {written} 25 50
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 0 0 1 0 4 100 100 0 100 0 2 0 0
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: {reads} {reads} 0 1000 2000 5 90 {wait} 0
\t       WRITE: 0 0 0 0 0 0 0 0 0
device tmpfs mounted on /tmp with fstype tmpfs
"""


def fill(proc: Path, **counts: int) -> None:
    (proc / "self").mkdir(parents=True, exist_ok=True)
    (proc / "self" / "mountstats").write_text(MOUNTS.format(**counts))


def test_counters_of_nfs_mounts_are_read_and_others_are_not() -> None:
    text = MOUNTS.format(read=5000, written=7, reads=10, wait=150)
    assert parse(text.encode()) == {"nas:/data on /data": (5000, 7, 10, 150)}
    assert parse(b"") == {} and parse(b"device x mounted on / with fstype ext4\n") == {}


def test_rates_and_the_wait_of_a_request_come_with_the_second_sample(tmp_path: Path) -> None:
    fill(tmp_path, read=0, written=0, reads=0, wait=0)
    probe = Nfs(str(tmp_path), Budget(0))
    assert probe.sample(10.0) is None
    fill(tmp_path, read=4_000_000, written=0, reads=100, wait=2_500)
    assert probe.sample(12.0) == {
        "mount": "nas:/data on /data", "read_bps": 2_000_000, "write_bps": 0,
        "requests_ps": 50.0, "wait_ms": 25.0,
    }  # fmt: skip
    probe.close()


def test_a_machine_without_nfs_is_looked_at_rarely(tmp_path: Path) -> None:
    probe = Nfs(str(tmp_path), Budget(0))
    assert probe.sample(0.0) is None
    fill(tmp_path, read=0, written=0, reads=0, wait=0)
    assert probe.sample(1.0) is None and probe.sample(61.0) is None, "the first has no rate"
    fill(tmp_path, read=10, written=0, reads=1, wait=1)
    assert probe.sample(62.0) is None, "the file was missing at first, and is not asked for again"
