"""What a person asked for, as the text that is stored with a job. Used by `catalog.py`."""

import json
from dataclasses import fields
from functools import lru_cache

import msgspec

from headway.model.job import JobSpec

_decoder = msgspec.json.Decoder(JobSpec)  # several times as fast as json and from_values
_FIELDS = {f.name for f in fields(JobSpec)}


def write(spec: JobSpec) -> str:
    """By `json`: msgspec would make null of NaN, and takes neither bytes that are not UTF-8 nor
    large numbers.
    """
    return json.dumps(msgspec.to_builtins(spec), separators=(",", ":"))


def read(text: str) -> JobSpec:
    try:
        return _decoder.decode(text)
    # bytes that are not UTF-8, NaN, or a type that an earlier release stored
    except msgspec.MsgspecError:
        return JobSpec.from_values({k: v for k, v in json.loads(text).items() if k in _FIELDS})


# for the loop, which reads the same jobs again and again and changes none
read_kept = lru_cache(maxsize=1024)(read)
