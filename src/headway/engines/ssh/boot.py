"""The first program on a login node: it takes the zip application once per version, then becomes
the relay.

Called by `engines/ssh/relay_client.py`. Any Python 3 must understand it, and any login shell must
leave its words alone: the program is one word of letters, and it shows itself by a line with a mark
(`wire/relay_messages.py`), so banners do not matter.
"""

import base64
import shlex

from headway.home.zipapp import PYTHON_MIN

BOOT = """
import hashlib, os, sys
folder, home, size, digest, nonce = sys.argv[1:6]
os.umask(0o077)
folder = os.path.abspath(os.path.expanduser(folder))
path = os.path.join(folder, "bin", "headway-" + digest[:16] + ".pyz")
mark = hashlib.sha256(nonce.encode()).hexdigest()[:32]
def say(word):
    os.write(1, ("\\n" + mark + " " + word + "\\n").encode())
def is_there():
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest() == digest
    except OSError:
        return False
if not is_there():
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    say("send")
    data = b""
    while len(data) < int(size):
        more = os.read(0, min(1 << 20, int(size) - len(data)))
        if not more:
            sys.exit(1)
        data += more
    if hashlib.sha256(data).hexdigest() != digest:
        say("spoilt")
        sys.exit(1)
    draft = path + "." + str(os.getpid())
    with open(draft, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
say("ready")
os.execv(sys.executable, [sys.executable, "-I", "-S", path, "relay", folder, "--home=" + home])
"""

PYTHONS = ("python3", "python3.14", "python3.13", "python3.12", "python3.11", "python")
_SCRIPT = (
    'for p in {pythons}; do if "$p" -c "import sys;sys.exit(sys.version_info<{least})" >/dev/null 2>&1 </dev/null; '
    'then exec "$p" -I -S -c \'import base64;exec(base64.b64decode("{boot}"))\' {words}; fi; done; '
    "echo; echo {mark} no-python"
)

_LOGIN = 'if command -v bash >/dev/null 2>&1; then exec bash -l -c "$1"; else exec sh -c "$1"; fi'


def command(
    python: str | None, folder: str, home: str, size: int, digest: str, nonce: str, mark: str
) -> str:
    """What ssh is given: one line, in which a login shell finds nothing to expand. A login shell's
    environment is asked for, since many clusters put Slurm's commands on the PATH there alone.
    """
    boot = base64.b64encode(BOOT.encode()).decode()
    pythons = [python] if python else PYTHONS
    script = _SCRIPT.format(
        pythons=shlex.join(pythons), least=str(PYTHON_MIN).replace(" ", ""), boot=boot,
        words=shlex.join([folder, home, str(size), digest, nonce]), mark=mark,
    )  # fmt: skip
    return f"exec sh -c {shlex.quote(_LOGIN)} headway {shlex.quote(script)}"
