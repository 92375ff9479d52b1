"""Job files: what they may say, what is told when they are wrong, and what becomes of them."""

import sys
from pathlib import Path
from typing import Any

import pytest

from headway.model.errors import UsageError
from headway.model.job import JobSpec
from headway.settings import jobfile, named_secrets, sweep, template
from headway.settings.jobschema import JOB, json_schema

DESIGN = """\
name: voc20
command: python train.py --data voc20 --lr {{ lr }}
parameters: {lr: 0.1}
gpus: 8
multi_process: true
memory: 32GiB
time: 4h
env: {NCCL_IB_DISABLE: "0"}
secrets: [WANDB_API_KEY]
image: pytorch:2.13
retry: {max: 3}
hold: 1h
smoke: {parameters: {lr: 0.5}, arguments: ["--num_epochs=1", "--restrict_subjects=1"], gpus: 1}
"""


def written(folder: Path, text: str, name: str = "job.yaml") -> jobfile.JobFile:
    path = folder / name
    path.write_text(text)
    return jobfile.load(path)


def prepared(folder: Path, text: str, *sets: tuple[str, str], **how: Any) -> jobfile.Prepared:
    return jobfile.prepare(written(folder, text), sets, **how)


def refused(folder: Path, text: str, *sets: tuple[str, str], **how: Any) -> str:
    with pytest.raises(UsageError) as error:
        prepared(folder, text, *sets, **how)
    return f"{error.value.message} | {error.value.hint}".replace(f"{folder}/", "")


def test_the_job_of_the_design_becomes_a_job_spec(tmp_path: Path) -> None:
    found = prepared(tmp_path, DESIGN)
    spec = JobSpec.from_values(found.spec)
    assert spec.command == ["python", "train.py", "--data", "voc20", "--lr", "0.1"]
    assert (spec.name, spec.processes, spec.memory_bytes, spec.max_duration_s) == (
        "voc20",
        8,
        32 * 1024**3,
        14_400.0,
    )
    assert (spec.retry.max, spec.hold_s, spec.image, spec.parameters) == (
        3,
        3_600.0,
        "pytorch:2.13",
        {"lr": 0.1},
    )
    assert (spec.cwd, spec.smoke, found.env, found.secrets) == (
        str(tmp_path), False, {"NCCL_IB_DISABLE": "0"}, ["WANDB_API_KEY"],
    )  # fmt: skip
    assert found.elements == []


@pytest.mark.cap(46)
def test_smoke_changes_parameters_arguments_and_gpus(tmp_path: Path) -> None:
    spec = prepared(tmp_path, DESIGN, smoke=True).spec
    assert spec["command"][-3:] == ["0.5", "--num_epochs=1", "--restrict_subjects=1"]
    assert (spec["processes"], spec["smoke"]) == (1, True)
    assert prepared(tmp_path, DESIGN, ("lr", "2"), smoke=True).spec["parameters"] == {"lr": 2.0}
    assert "has no section `smoke`" in refused(tmp_path, "command: x\n", smoke=True)


def test_roles_and_folders_take_their_fields(tmp_path: Path) -> None:
    text = """\
name: n
command: python worker.py
roles:
  worker: {instances: 4, gpus: 2, memory: 1GiB}
  chief: {command: 'python chief.py --n {{ n }}', completion: any}
parameters: {n: 3}
folders:
  data: {from: "az://datasets/voc20", account: east, mode: ro}
  out/models: {to: /srv/models}
  words: {from: ../words, to: "~/words"}
code: {exclude: ["*.ckpt"]}
"""
    found = prepared(tmp_path, text)
    spec = JobSpec.from_values(found.spec)
    assert [(r.name, r.instances, r.gpus, r.memory_bytes, r.completion) for r in spec.roles] == [
        ("worker", 4, 2, 1024**3, "all"), ("chief", 1, 0, None, "any"),
    ]  # fmt: skip
    assert spec.roles[1].command == ["python", "chief.py", "--n", "3"]
    assert (spec.folders[0].source, spec.folders[0].mode, spec.folders[1].target) == (
        "az://datasets/voc20", "ro", "/srv/models",
    )  # fmt: skip
    # a path counts from the file; the home is that of the machine where the folder is, which may be
    # a cluster's
    assert (spec.folders[2].source, spec.folders[2].target) == (
        str(tmp_path.parent / "words"),
        "~/words",
    )
    assert found.code == {"include": [], "exclude": ["*.ckpt"]}


def test_the_job_section_of_a_project_is_a_job(tmp_path: Path) -> None:
    text = "experiment: e1\njob:\n  command: python train.py\n  gpuz: 3\n"
    assert 'headway.yaml, line 4: unknown key "gpuz"; did you mean "gpus"?' in _message(
        tmp_path, text, "headway.yaml"
    )
    found = written(tmp_path, "job: {command: true}\n".replace("true", "ls -l"), "headway.yaml")
    assert found.values["command"] == ["ls", "-l"]
    assert "has no section `job`" in _message(tmp_path, "experiment: e1\n", "headway.yaml")


def _message(folder: Path, text: str, name: str) -> str:
    with pytest.raises(UsageError) as error:
        written(folder, text, name)
    return error.value.message.replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "command: x\ngpu_pernode: 4\n",
            'job.yaml, line 2: unknown key "gpu_pernode"; did you mean "gpu_per_node"?',
        ),
        (
            "command: x\nretry:\n  maxx: 1\n",
            'job.yaml, line 3: unknown key "maxx"; did you mean "max"?',
        ),
        ("command: x\nretry:\n  max: -1\n", "job.yaml, line 3: retry.max: -1 is too small"),
        ("command: x\ngpus: 0\n", "line 2: gpus: 0 is too small | valid: a whole number from 1"),
        ("command: x\ngpus: two\n", 'line 2: gpus: "two" is not a whole number'),
        ("command: x\ntime: 4 fortnights\n", "line 2: time"),
        ("command: x\nmemory: 32G\n", "32GiB or 32GB"),
        ("command: 3\n", "line 1: command: 3 stands here | valid: a command line"),
        (
            "command: x\nmulti_process: yes\n",
            "line 2: multi_process: 'yes' stands here | valid: true or false",
        ),
        ("command: x\nenv: {A: [1]}\n", "line 2: env.A: a list stands here"),
        ("command: x\nenv: {A=B: 1}\n", "is not the name of an environment variable"),
        (
            "command: x\ntags: [1]\n",
            "line 2: tags: 1 stands here | valid: a tag; write it in quotes",
        ),
        ('command: x\nname: "a\\nb"\n', "is not allowed"),
        ("command: x\nroles: {Chief: {}}\n", "'Chief' is not the name of a role"),
        ("command: x\nroles: {a: {completion: some}}\n", "'some' is not one of all, any, none"),
        ("command: x\nfolders: {../up: {from: /x}}\n", "is not a folder below the job's own"),
        ("command: x\ngpus: 2\nprocesses: 3\n", "line 3: processes: gpus is 2"),
        ("gpus: 2\n", "line 1: a job needs a command"),
        ("roles: {a: {}}\n", "roles.a: it has no command"),
        ("command: ''\n", "line 1: command: the text is empty"),
        ("command: 'a \"b'\n", "line 1: command: No closing quotation"),
        ("command: a && b\n", "'&&' is for a shell"),
        ("command: |\n  a\n  b\n", "several lines"),
        ("command: x\ncwd: nowhere\n", "line 2: cwd: the folder"),
        ("- a\n", "line 1: a list stands here"),
        ("command: !!python/object x\n", "the tag"),
        ("command: x\nenv: {A: .inf}\n", "is not a finite number"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_what_is_valid(
    tmp_path: Path, text: str, words: str
) -> None:
    assert words in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("python train.py --lr {{ lr }}", ["python", "train.py", "--lr", "{{lr}}"]),
        ("a 'b c' \"d e\" f\\ g", ["a", "b c", "d e", "f g"]),
        ("a \\\n  b", ["a", "b"]),
        ("a\n", ["a"]),
        ("find . -exec rm {} ';'", ["find", ".", "-exec", "rm", "{}", ";"]),
        ("bash -c 'a && b\nc'", ["bash", "-c", "a && b\nc"]),
        ("docker ps --format {{.ID}} # x", ["docker", "ps", "--format", "{{.ID}}", "#", "x"]),
    ],
)
def test_a_command_is_split_as_a_shell_does_without_one(given: str, words: list[str]) -> None:
    assert template.words(given, "command") == words


# -- parameters


@pytest.mark.parametrize(
    ("text", "sets", "words"),
    [
        ("command: a {{ lrr }}\nparameters: {lr: 1}\n", [], 'line 1: command: there is no parameter "lrr"; did'),
        ("command: a\nparameters: {lr: 1}\n", [], "line 2: parameters.lr: nothing uses this parameter"),
        ("command: a {{ lr }}\nparameters: {lr: null}\n", [], "parameters.lr: it has no value | give one: --set"),
        ("command: a {{ lr }}\nparameters: {lr: 1}\n", [("lr", "x")], "--set lr: 'x' is not a whole number"),
        ("command: a {{ lr }}\nparameters: {lr: 1}\n", [("lq", "1")], '--set: there is no parameter "lq"'),
        ("command: a {{ lr }}\nparameters: {lr: true}\n", [("lr", "yes")], "is not true or false"),
        ("command: a {{ index }}\n", [], "{{ index }} is for arrays"),
        ("command: a\nparameters: {index: 1}\n", [], "cannot be a parameter's name"),
        ("command: a {{ lr }}\nmatrix: {lr: [0.1, x]}\n", [], "matrix.lr: 'x' is not a number"),
        ("command: a {{ lr }}\nmatrix: {lr: []}\n", [], "a list of values is needed"),
        ("command: a {{ lr }}\nmatrix: {lr: 3}\n", [], "line 2: matrix.lr: 3 stands here"),
        ("command: a\nmatrix: {lr: [1]}\n", [], "line 2: matrix.lr: nothing uses this parameter"),
        ("command: a {{ lr }}\nmatrix: {lr: [1]}\narray: 3\n", [], "either an array or a matrix"),
        ("command: a {{ lr }}\nmatrix: {lr: [1], exclude: [{lr: 2}]}\n", [], "no combination has"),
        ("command: a {{ lr }}\nmatrix: {lr: [1], exclude: [{lq: 2}]}\n", [], 'the matrix has no "lq"'),
        (
            "command: a {{ lr }}\nmatrix:\n  lr: [1]\n  include:\n    - {lr: 2}\n    - lr: 3\n      lrr: 4\n",
            [],
            'line 7: matrix.include: the matrix has no "lrr"; did you mean "lr"?',
        ),
        ("command: a {{ lr }}\nmatrix:\n  lr: [1]\n  exclude:\n    - {lr: 2}\n", [], "line 5: matrix.exclude: no"),
        ("command: a {{ lr }}\nmatrix:\n  lr: [1]\n  include:\n    - 7\n", [], "line 5: matrix.include: 7 is not"),
        ("command: a {{ lr }}\nmatrix:\n  seed: [1]\n  lr:\n    - 1\n    - x\n", [], "line 4: matrix.lr: 'x' is not"),
        ("command: a\nparameters:\n  lr: 1\n", [], "line 3: parameters.lr: nothing uses this parameter"),
        ("roles:\n  ps:\n    instances: 1\n", [], "line 2: roles.ps: it has no command"),
        (
            "command: a {{ lr }}\nparameters: {lr: 1}\nsmoke:\n  gpus: 1\n  parameters:\n    lrr: 2\n",
            [],
            'line 6: smoke.parameters: there is no parameter "lrr"; did you mean "lr"?',
        ),
    ],
)  # fmt: skip
def test_parameters_are_checked(
    tmp_path: Path, text: str, sets: list[tuple[str, str]], words: str
) -> None:
    assert words in refused(tmp_path, text, *sets)


def test_a_value_stays_one_word_and_is_not_filled_in_again(tmp_path: Path) -> None:
    text = (
        "command: echo {{ a }}-{{b}}\nparameters: {a: 'x; rm -rf /', b: '{{ a }} $HOME'}\nname: n\n"
    )
    assert prepared(tmp_path, text).spec["command"] == ["echo", "x; rm -rf /-{{ a }} $HOME"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [("0.1", "0.1"), ("1e-4", "0.0001"), ("3", "3"), ("true", "true"), ("'007'", "007"), ("2.0", "2.0")],
)  # fmt: skip
def test_values_are_written_as_a_person_would(tmp_path: Path, value: str, shown: str) -> None:
    assert prepared(tmp_path, f"command: a {{{{ p }}}}\nparameters: {{p: {value}}}\n").spec[
        "command"
    ] == ["a", shown]


def test_a_matrix_is_every_combination_without_the_excluded_and_with_the_included(
    tmp_path: Path,
) -> None:
    text = """\
command: a --lr {{ lr }} --seed {{ seed }}
matrix:
  lr: [0.1, 0.01]
  seed: [1, 2]
  exclude: [{lr: 0.01, seed: 2}]
  include: [{lr: 1.0, seed: 9}]
env: {SEED: "{{ seed }}"}
"""
    found = prepared(tmp_path, text)
    assert [e.spec["parameters"] for e in found.elements] == [
        {"lr": 0.1, "seed": 1}, {"lr": 0.1, "seed": 2}, {"lr": 0.01, "seed": 1}, {"lr": 1.0, "seed": 9},
    ]  # fmt: skip
    assert [e.spec["command"][-1] for e in found.elements] == ["1", "2", "1", "9"]
    assert [(e.index, e.env) for e in found.elements][-1] == (3, {"SEED": "9"})
    fixed = prepared(
        tmp_path, text.replace("  exclude: [{lr: 0.01, seed: 2}]\n", ""), ("seed", "5")
    )
    assert [e.spec["parameters"]["seed"] for e in fixed.elements] == [5, 5, 9]


def test_what_is_set_makes_no_exclusion_of_a_matrix_wrong(tmp_path: Path) -> None:
    text = """
command: a {{ lr }} {{ seed }}
matrix:
  lr: [1, 2]
  seed: [1, 2]
  exclude: [{lr: 1, seed: 2}]
  include: [{lr: 9, seed: 9}]
"""
    commands = [
        element.spec["command"] for element in prepared(tmp_path, text, ("lr", "3")).elements
    ]
    assert commands == [["a", "3", "1"], ["a", "3", "2"], ["a", "9", "9"]]
    commands = [
        element.spec["command"] for element in prepared(tmp_path, text, ("lr", "1")).elements
    ]
    assert commands == [["a", "1", "1"], ["a", "9", "9"]]


def test_a_smoke_run_of_a_matrix_is_one_job(tmp_path: Path) -> None:
    text = "command: a {{ lr }} {{ index }}\nmatrix: {lr: [1, 2]}\nsmoke: {arguments: [--fast]}\n"
    found = prepared(tmp_path, text, smoke=True)
    assert (found.elements, found.spec["command"]) == ([], ["a", "1", "0", "--fast"])


@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        (3, [0, 1, 2]), ("3", [0, 1, 2]), ("0-3", [0, 1, 2, 3]), ("0-9:4", [0, 4, 8]), ("1,4,7-8", [1, 4, 7, 8]),
        ([5, 2], [5, 2]), ("7-7", [7]),
    ],
)  # fmt: skip
def test_an_array_is_numbers(asked: Any, numbers: list[int]) -> None:
    assert sweep.indices(asked, "--array") == numbers


@pytest.mark.parametrize(
    "asked", ["0", "-3", "9-1", "a", "1,1", "0-99999", "1-2-3", "0-9%2", "", "0-9:0"]
)
def test_what_is_no_array_is_refused(asked: str) -> None:
    with pytest.raises(UsageError, match="--array"):
        sweep.indices(asked, "--array")


def test_too_large_a_matrix_is_refused_before_it_is_made(tmp_path: Path) -> None:
    axes = ", ".join(f"p{n}: [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]" for n in range(12))
    spots = " ".join(f"{{{{ p{n} }}}}" for n in range(12))
    assert "that makes 1,000,000,000,000 jobs" in refused(
        tmp_path, f"command: a {spots}\nmatrix: {{{axes}}}\n"
    )


# -- the schema and secrets


def test_the_schema_for_editors_knows_every_key_and_no_other() -> None:
    schema = json_schema()
    assert list(schema["properties"]) == [key.name for key in JOB.keys]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["retry"]["properties"]["max"]["minimum"] == 0
    assert all(value["description"] for value in schema["properties"].values())


@pytest.mark.cap(52)
def test_a_secret_is_taken_from_the_environment_the_private_file_or_a_keyring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "keyring"
    program.write_text('#!/bin/sh\n[ "$1 $2 $3" = "get headway RING" ] && echo from-the-ring\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = named_secrets.find(["A", "B", "RING"], {"A": "env"}, {"A": "file", "B": "file"})
    assert found == {"A": "env", "B": "file", "RING": "from-the-ring"}


@pytest.mark.cap(52)
def test_the_keyring_package_of_this_python_is_asked_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
def get_password(service, name):
    if name == "LOCKED":
        raise RuntimeError("it is locked")
    return {("headway", "RING"): "from-the-package"}.get((service, name))
"""
    (tmp_path / "keyring.py").write_text(text)
    program = tmp_path / "keyring"
    program.write_text("#!/bin/sh\necho from-the-command\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "keyring", raising=False)
    assert named_secrets.find(["RING"], {}, {}) == {"RING": "from-the-package"}
    with pytest.raises(UsageError, match="the secret MISSING was found nowhere"):
        named_secrets.find(["MISSING"], {}, {})
    with pytest.raises(UsageError, match="did not give the secret LOCKED: it is locked"):
        named_secrets.find(["LOCKED"], {}, {})
    monkeypatch.delitem(sys.modules, "keyring")


@pytest.mark.cap(52)
def test_a_secret_that_is_nowhere_names_where_it_was_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError) as error:
        named_secrets.find(["WANDB_API_KEY"], {}, {})
    assert error.value.message == "the secret WANDB_API_KEY was found nowhere"
    assert all(word in error.value.hint for word in ("environment", "private.yaml", "keyring"))
