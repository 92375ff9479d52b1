"""Disks and file systems: full, over quota, stale, failing, read-only."""

from headway.diagnose.rule import FACT, ROOT, SUMMARY, rule

RULES = (
    rule(
        "disk_full",
        r"[Nn]o space left on device|\bENOSPC\b|\[Errno 28\]|[Dd]isk quota exceeded|\bEDQUOT\b"
        r"|\[Errno 122\]|FilesystemQuotaExceeded|StorageFull"
        r"|[Dd]isk (?:is )?full|database or disk is full|ephemeral[- ]storage|\bDiskPressure\b"
        r"|not enough (?:free )?disk space|out of disk space"
        r"|[Uu]ser block limit reached|file system (?:is )?full|No usable temporary directory"
        r"|insufficient disk space",
        "no space left",
        "enospc",
        "errno 28]",
        "quota exceeded",
        "edquot",
        "errno 122]",
        "quotaexceeded",
        "storagefull",
        "disk",
        "ephemeral",
        "block limit",
        "system full",
        "system is full",
        "no usable temporary",
        confidence=0.95,
        role=ROOT,
        unless=r"(?i)/dev/shm|shared memory|</torch_|posix_fallocate|ephemeral-storage\W+\d"
        r"|DiskPressure\W+False|no disk ?pressure|requests?:|limits?:"
        r"|nodes are available|sufficient disk|taint",
    ),
    rule(
        "disk_full",
        r"low on resource: ephemeral-storage|exceeds the total limit of containers .*ephemeral"
        r"|usage of EmptyDir volume .* exceeds"
        r"|[Ee]phemeral (?:local )?storage usage exceeds",
        "ephemeral",
        "emptydir",
        confidence=0.97,
        role=FACT,
    ),
    rule(
        "disk_full",
        r"PytorchStreamWriter failed writing file|file write failed"
        r"|inline_container\.cc.*unexpected pos|unexpected pos \d+ vs \d+"
        r"|\d+ requested and \d+ written|basic_ios::clear: iostream error",
        "streamwriter",
        "file write failed",
        "unexpected pos",
        "requested and",
        "iostream error",
        confidence=0.72,
        role=ROOT,
    ),
    rule(
        "disk_full",
        r"^\S+ +\S+ +\S+ +\S+ +100% +/",
        "100%",
        confidence=0.75,
        role=SUMMARY,
        where="plain",
        unless=r"/snap/|/boot|squashfs|\|",
    ),
    rule(
        "storage_io",
        r"Stale file handle|\bESTALE\b|\[Errno 116\]|Input/output error|\[Errno 5\]"
        r"|\[Errno 70\]|\[Errno 121\]|Remote I/O error|Transport endpoint is not connected"
        r"|\[Errno 107\]|Cannot send after transport endpoint shutdown|\[Errno 108\]"
        r"|Read-only file system|\[Errno 30\]|Structure needs cleaning"
        r"|Unable to (?:lock|synchronously).*errno = (?:5|11|37|116)|No locks available"
        r"|\[Errno 37\]|IoError\(.*(?:code: 5|Uncategorized)",
        "stale",
        "errno",
        "input/output error",
        "remote i/o",
        "transport endpoint",
        "read-only file",
        "needs cleaning",
        "no locks",
        "ioerror(",
        confidence=0.92,
        role=ROOT,
    ),
    rule(
        "storage_io",
        r"unable to lock file|failed to lock file|No locks available|cannot lock .*(?:NFS|Lustre)",
        "lock file",
        "no locks",
        "cannot lock",
        confidence=0.94,
        role=ROOT,
    ),
    rule(
        "storage_io",
        r"nfs: server \S+ not responding(?!.*OK)|LustreError: .*(?:evict|fail|error)"
        r"|blk_update_request: .*I/O error|EXT4-fs error|XFS .*(?:error|shutdown|corrupt)"
        r"|Buffer I/O error|I/O error, dev \w+|gpfs.*(?:unmounted|error)|nvme\d.*(?:timeout"
        r"|I/O error)|mmfs.*error|ceph.*(?:hung|session lost)",
        "nfs:",
        "lustre",
        "i/o error",
        "ext4",
        "xfs",
        "gpfs",
        "nvme",
        "mmfs",
        "ceph",
        confidence=0.88,
        role=FACT,
    ),
)
