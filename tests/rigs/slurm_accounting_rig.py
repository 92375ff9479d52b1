"""Accounting for the Slurm of `tests/rigs/slurm_rig.py`: slurmdbd over a MariaDB of its own. Called by
that module alone.

Debian's packages slurmdbd and mariadb-server. The database listens on a socket in the cluster's
folder, and on no port.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "sacctmgr")

_DBD = """\
AuthType=auth/munge
AuthInfo=socket={d}/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
PidFile={d}/slurmdbd.pid
LogFile={d}/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser={user}
StorageLoc=slurm_acct
"""
_CONF = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={d}/munge.sock
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos
PriorityType=priority/multifactor
"""


def lines(folder: Path, port: int) -> list[str]:
    """What slurm.conf says of it."""
    return _CONF.format(d=folder, port=port).splitlines()


def prepare(folder: Path, port: int, user: str) -> None:
    """Its files, and an empty database."""
    path = folder / "slurmdbd.conf"
    path.touch(mode=0o600)
    path.write_text(_DBD.format(d=folder, port=port, user=user))
    subprocess.run(
        ["mariadb-install-db", "--no-defaults", f"--user={user}", f"--datadir={folder}/db", "--skip-test-db",
         "--auth-root-authentication-method=socket", f"--auth-root-socket-user={user}"],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip


def database(folder: Path, user: str) -> Sequence[str]:
    """argv of the database."""
    small = [
        "--innodb-buffer-pool-size=32M",
        "--innodb-log-file-size=16M",
        "--innodb-flush-log-at-trx-commit=0",
    ]
    return [
        "mariadbd", "--no-defaults", f"--user={user}", f"--datadir={folder}/db", f"--socket={folder}/db.sock",
        f"--pid-file={folder}/db.pid", "--skip-networking", *small,
    ]  # fmt: skip


def env(folder: Path) -> dict[str, str]:
    """Where slurmdbd finds the database."""
    return {"MYSQL_UNIX_PORT": str(folder / "db.sock")}
