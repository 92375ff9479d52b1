"""Real storage servers for tests: moto's S3 and Azurite's Blob, started once for each worker of the
tests.
"""

import base64
import hashlib
import hmac
import os
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from headway.testing.port import reserve
from tests import needs
from tests.driver import Hw
from tests.waiting import wait_until

AZURITE_NAME = "devstoreaccount1"
# public
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def serve(words: list[str], port: int) -> Iterator[int]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    try:
        wait_until(lambda: answers(port), 60.0, f"{words[0]} on its port")
        yield port
    finally:
        child.terminate()
        child.wait()


@pytest.fixture(scope="session")
def s3() -> Iterator[int]:
    program = needs.program("moto_server", "pip install 'moto[server]'")
    port = reserve()
    yield from serve([program, "-H", "127.0.0.1", "-p", str(port)], port)


@pytest.fixture(scope="session")
def azure() -> Iterator[int]:
    program = needs.program("azurite-blob", "npm install -g azurite")
    port = reserve()
    words = [
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        str(port),
        "--inMemoryPersistence",
        "--disableTelemetry",
    ]
    yield from serve([program, *words, "--skipApiVersionCheck"], port)


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    return Hw(home, tmp_path)


@pytest.fixture(params=["s3", "azure key", "azure sas", "local"])
def place(request: pytest.FixtureRequest, hw: Hw, tmp_path: Path) -> str:
    """A fresh place of each kind, with an account for it in the settings."""
    name = f"c{os.urandom(4).hex()}"
    if request.param == "local":
        (tmp_path / "there").mkdir()
        return str(tmp_path / "there")
    if request.param == "s3":
        address = f"http://127.0.0.1:{request.getfixturevalue('s3')}"
        urllib.request.urlopen(urllib.request.Request(f"{address}/{name}", method="PUT")).close()
        row = f'{{kind: s3, endpoint: "{address}", key_id: LAB_ID, secret: LAB_SECRET}}'
        hw.env |= {"LAB_ID": "testing", "LAB_SECRET": "testing"}
    else:
        address = f"http://127.0.0.1:{request.getfixturevalue('azure')}/{AZURITE_NAME}"
        sas = account_sas()
        urllib.request.urlopen(
            urllib.request.Request(
                f"{address}/{name}?restype=container&{sas}",
                method="PUT",
                headers={"x-ms-version": "2020-10-02"},
            )
        ).close()
        kind = request.param.split()[1]
        row = (
            f'{{kind: azure, account: {AZURITE_NAME}, endpoint: "{address}", {kind}: BLOB_SECRET}}'
        )
        hw.env["BLOB_SECRET"] = AZURITE_KEY if kind == "key" else f"?{sas}"
    (hw.cwd / "headway.yaml").write_text(f"accounts:\n  mine: {row}\n")
    return f"{'s3' if request.param == 's3' else 'az'}://{name}/x"


def account_sas() -> str:
    """A shared access signature of the whole account, made as its manual says."""
    until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    version = "2018-11-09"
    text = "\n".join([AZURITE_NAME, "rwdlac", "b", "sco", "", until, "", "http,https", version, ""])
    sign = base64.b64encode(
        hmac.new(base64.b64decode(AZURITE_KEY), text.encode(), hashlib.sha256).digest()
    )
    return f"sv={version}&ss=b&srt=sco&sp=rwdlac&se={quote(until)}&spr=http,https&sig={quote(sign.decode(), safe='')}"
