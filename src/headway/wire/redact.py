"""Secrets: which names and values are secret, and masking them. Used before anything reaches a
spool or the database.

Three ways, in this order of trust: the exact values of variables judged secret (promised, from 8
characters on), values under a secret-looking key, and known shapes (best effort). What a program
prints in a new shape cannot be known.
"""

from __future__ import annotations

from headway.model.limits import SECRET_BYTES_MIN

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

MASK = "********"

# The rule, which docs/guides/configuration.md tells people. A name is cut into words: API_KEY,
# db.password and githubToken are two each. It is secret when
# - one of its words is one of these, or ends in one of _GLUED (PGPASSWORD, MY_ENVTOKEN),
_SECRET_WORDS = frozenset(
    "password passwords passwd passphrase passcode pwd secret secrets token apikey apikeys credential "
    "credentials cred creds cookie cookies authorization auth sas bearer jwt psk dsn htpasswd netrc".split()
)
_GLUED = tuple(
    "password passwd passphrase passcode secret token tokens apikey credential credentials accesskey secretkey "
    "privatekey authkey accountkey storagekey masterkey clientkey licensekey encryptionkey signingkey sshkey "
    "connectionstring connstr".split()
)
# - or its last word is one of these, and the word before it is none of those,
_SECRET_ENDINGS = {
    "key": frozenset(
        "sort primary foreign public partition cache metric metrics image label input output text monitor dict map "
        "index group join hot row column feature features target data dataset batch state config lookup order any "
        "arrow function host meta caption video audio mask idempotency dedup query attention".split()
    ),
    "keys": frozenset(
        "sort primary foreign public metric metrics image label input output text dict batch state config query "
        "attention missing unexpected ignore ignored drop keep num n".split()
    ),
    "pass": frozenset(
        "first second one two single multi forward backward num n by low high band max".split()
    ),
    "pat": frozenset("file glob name path search regex match exclude include".split()),
    "tokens": frozenset(
        "max min num n total train training eval test new input output prompt completion seen of batch special "
        "extra additional all valid image text context cached generated per added sequence".split()
    ),
}
# - or two words that follow each other are one of these.
_SECRET_PAIRS = frozenset(
    "api_key access_key private_key secret_key account_key ssh_key encryption_key signing_key auth_key "
    "connection_string conn_str client_secret session_id sas_token webhook_url".split()
)
# Words that say which one of several it is: API_KEY_2 and DB_PASS_PROD end in KEY and PASS.
_WHICH = frozenset(
    "old new prod production dev test staging default base64 b64 value backup secondary id live".split()
)
# Words behind `token` and `auth` that make it a matter of models or of settings.
_AFTER = {
    "token": frozenset(
        "embedding embeddings dim dims dropout type types ids length len count size budget limit level mixer "
        "merging shift classification parallelism per pos position positions mask drop loss probs".split()
    ),
    "auth": frozenset(
        "method type mode url uri sock provider enabled endpoint backend server user file config domain host port "
        "scheme".split()
    ),
}
# Ordinary names, and ordinary words that end like a secret.
_NOT_SECRET = frozenset(
    "max_tokens num_tokens token_count tokens_per_second n_tokens total_tokens pad_token eos_token bos_token unk_token "
    "sep_token cls_token mask_token image_token stop_token start_token end_token special_token prompt_token "
    "pad_token_id eos_token_id bos_token_id unk_token_id mask_token_id sep_token_id cls_token_id image_token_id "
    "decoder_start_token_id forced_bos_token_id forced_eos_token_id next_token last_token first_token "
    "auth_method ssh_auth_sock".split()
)
_PLAIN_WORDS = frozenset(
    "subtoken subtokens pretoken detoken multitoken bypass compass lowpass highpass bandpass encompass".split()
)
# every shell has these, and they are no secrets
_PLAIN_VARIABLES = frozenset({"PWD", "OLDPWD", "XDG_SESSION_ID"})

# Known shapes. Each has literals that must occur for the pattern to be tried at all: see
# agent/ship/mask.py.
SHAPES: tuple[tuple[str, tuple[bytes, ...], bytes], ...] = (
    ("aws key id", (b"AKIA", b"ASIA"), rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("github token", (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"), rb"\bgh[pousr]_[A-Za-z0-9]{36,255}\b"),
    ("github token", (b"github_pat_",), rb"\bgithub_pat_[A-Za-z0-9_]{22,255}\b"),
    ("gitlab token", (b"glpat-",), rb"\bglpat-[A-Za-z0-9_-]{20,64}"),
    ("hugging face token", (b"hf_",), rb"\bhf_[A-Za-z0-9]{30,64}\b"),
    ("openai key", (b"sk-",), rb"\bsk-[A-Za-z0-9_-]{20,200}"),
    ("google key", (b"AIza",), rb"\bAIza[0-9A-Za-z_-]{35}\b"),
    ("nvidia key", (b"nvapi-",), rb"\bnvapi-[A-Za-z0-9_-]{40,100}"),
    ("groq key", (b"gsk_",), rb"\bgsk_[A-Za-z0-9]{40,64}\b"),
    ("npm token", (b"npm_",), rb"\bnpm_[A-Za-z0-9]{36}\b"),
    ("docker token", (b"dckr_pat_",), rb"\bdckr_pat_[A-Za-z0-9_-]{20,64}"),
    ("slack token", (b"xox",), rb"\bxox[abprs]-[A-Za-z0-9-]{10,200}"),
    ("pypi token", (b"pypi-",), rb"\bpypi-[A-Za-z0-9_-]{50,255}"),
    ("json web token", (b"eyJ",), rb"\beyJ[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,1000}"),
    ("azure signature", (b"sig=",), rb"(?<=sig=)[A-Za-z0-9%+/=]{32,128}"),
    ("azure key", (b"AccountKey=",), rb"(?<=AccountKey=)[A-Za-z0-9+/=]{40,128}"),
    ("password in an address", (b"://",), rb"(?<=://)[^\s/:@]{1,128}:[^\s/@]{1,256}(?=@)"),
    ("bearer token", (b"earer ",), rb"(?<=earer )[A-Za-z0-9._~+/=-]{16,4096}"),
    (
        "private key",
        (b"-----BEGIN ",),
        rb"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----[\s\S]{0,8192}?-----END [A-Z ]{0,32}PRIVATE KEY-----",
    ),
)  # fmt: skip
# Compiled when first needed, which is seldom: all of them take longer than everything else before
# the first log.
_TEXT_SHAPES = [(tuple(lit.decode() for lit in lits), shape.decode()) for _, lits, shape in SHAPES]


# By a character of each literal: most texts have few of these, and then nothing else is looked for.
_BY_MARK: "dict[str, list[str]]" = {}
for _literals, _ in _TEXT_SHAPES:
    for _literal in _literals:
        _mark = next((mark for mark in "_-=:" if mark in _literal), max(_literal[:3]))
        _BY_MARK.setdefault(_mark, []).append(_literal)
_MARKS = tuple((mark, tuple(literals)) for mark, literals in _BY_MARK.items())


def words_of(name: str) -> list[str]:
    """`githubAPIToken_2` is github, API, Token and 2. By hand: a pattern would have to be compiled
    first.
    """
    words, i, size = [], 0, len(name)
    while i < size:
        start = i
        while i < size and "A" <= name[i] <= "Z":
            i += 1
        if i < size and "a" <= name[i] <= "z":
            if i - start > 1:  # the last capital begins the next word
                words.append(name[start : i - 1])
                start = i - 1
            while i < size and "a" <= name[i] <= "z":
                i += 1
        elif i == start:
            while i < size and name[i].isdecimal():
                i += 1
        if i > start:
            words.append(name[start:i])
        else:
            i += 1
    return words


def is_secret_name(name: str, extra: "Iterable[str]" = ()) -> bool:
    """Whether a variable or key of this name holds a secret: the rule at the top of this file."""
    if name in extra:
        return True
    if name in _PLAIN_VARIABLES:
        return False
    words = [word.lower() for word in words_of(name)]
    if not words or "_".join(words) in _NOT_SECRET:
        return False
    for word, after in zip(words, [*words[1:], ""]):
        if word in _SECRET_WORDS and after not in _AFTER.get(word, ()):
            return True
        if (
            word.endswith(_GLUED)
            and word not in _SECRET_WORDS
            and word not in _SECRET_ENDINGS
            and word not in _PLAIN_WORDS
        ):
            return True
        if word.endswith("pass") and word != "pass" and word not in _PLAIN_WORDS:
            return True
        if f"{word}_{after}" in _SECRET_PAIRS:
            return True
    while len(words) > 1 and (words[-1].isdecimal() or words[-1] in _WHICH):
        words.pop()
    before = words[-2] if len(words) > 1 else ""
    # alone, it is a secret as a variable of an environment (KEY, PASS), not as a key of a config
    if words[-1] in _SECRET_ENDINGS and (before or name.isupper()):
        return before not in _SECRET_ENDINGS[words[-1]]
    return False


def has_secret_shape(value: str) -> bool:
    """Whether all of a value is a secret by its look, whatever its name."""
    for literals, shape in _TEXT_SHAPES:
        if any(literal in value for literal in literals):
            import re  # here: see `_substitute`

            if re.fullmatch(shape, value) is not None:
                return True
    return False


def secret_values(env: "Mapping[str, str]", extra: "Iterable[str]" = ()) -> list[str]:
    """The values to mask wherever they appear, longest first so that one that contains another goes
    first.
    """
    names = frozenset(extra)
    long = {k: v for k, v in env.items() if len(v.encode(errors="replace")) >= SECRET_BYTES_MIN}
    found = {v for k, v in long.items() if is_secret_name(k, names) or has_secret_shape(v)}
    return sorted(found, key=len, reverse=True)


def mask_text(text: str, values: "Iterable[str]" = ()) -> str:
    """Mask exact values and known shapes inside a text."""
    for value in values:
        if value in text:
            text = text.replace(value, MASK)
    if not _may_have_shape(text):
        return text
    for literals, shape in _TEXT_SHAPES:
        if any(literal in text for literal in literals):
            text = _substitute(shape, text)
    return text


def _may_have_shape(text: str) -> bool:
    for mark, literals in _MARKS:
        if mark in text:
            for literal in literals:  # not any(): asked for every log record
                if literal in text:
                    return True
    return False


def _substitute(shape: str, text: str) -> str:
    import re  # takes longer than everything else before the first log, and is seldom needed

    return re.sub(shape, MASK, text)


def mask_value(
    key: str, value: object, values: "Iterable[str]" = (), extra: "Iterable[str]" = ()
) -> object:
    """A value under a key: all of it when the key is secret-looking, else what is secret inside."""
    if (
        isinstance(value, (str, int, float))
        and not isinstance(value, bool)
        and is_secret_name(key, extra)
    ):
        return MASK if str(value) else value
    return mask_data(value, values, extra)


def mask_data(data: object, values: "Iterable[str]" = (), extra: "Iterable[str]" = ()) -> "Any":
    """Plain JSON data with its secrets masked; the input is not changed."""
    if isinstance(data, str):
        return mask_text(data, values)
    if isinstance(data, dict):
        return {
            mask_text(k, values) if isinstance(k, str) else k: mask_value(str(k), v, values, extra)
            for k, v in data.items()
        }
    if isinstance(data, (list, tuple)):
        return [mask_data(item, values, extra) for item in data]
    return data


def mask_argv(
    argv: list[str], values: "Iterable[str]" = (), extra: "Iterable[str]" = ()
) -> list[str]:
    """A command line: `--api-key X`, `--api-key=X`, `TOKEN=x`, exact values and shapes."""
    values, masked, after_secret = list(values), [], False
    for word in argv:
        name, _, assigned = word.partition("=")
        is_flag = (
            name.startswith("-")
            and name.lstrip("-").replace("-", "_").replace(".", "_").isidentifier()
        )
        if after_secret and not word.startswith("-"):
            masked.append(MASK)
        elif assigned and (is_flag or name.isidentifier()) and is_secret_name(name, extra):
            masked.append(f"{name}={MASK}")
        else:
            masked.append(mask_text(word, values))
        after_secret = (
            word.startswith("-") and "=" not in word and is_secret_name(word.lstrip("-"), extra)
        )
    return masked
