"""TLS where one certificate is trusted, by its sha256, and no authority. Used by agents and by
`home/remote_server.py`.

A file of its own: an agent on a node needs no more of TLS than this, and `ssl` is loaded only where
it is used.
"""

from __future__ import annotations

import hashlib
import ssl


def context() -> ssl.SSLContext:
    """For a client that compares the pin itself, right after the handshake."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.minimum_version = ssl.TLSVersion.TLSv1_2
    # the pin names the certificate itself, which says more than a name in it
    found.check_hostname = False
    found.verify_mode = ssl.CERT_NONE
    return found


def fingerprint(certificate: bytes) -> str:
    return hashlib.sha256(certificate).hexdigest()


def pin_of(secure: ssl.SSLSocket) -> str:
    """Of the one that answers at the other end."""
    return fingerprint(secure.getpeercert(binary_form=True) or b"")
