"""`clusters:` in settings files: checked by each engine's table, with the line of what is wrong
(capability 51).
"""

from pathlib import Path

import pytest

from headway.model.errors import UsageError
from headway.model.job import JobSpec
from headway.server.control import submit_check
from headway.settings import clusters, layers, userfile


def written(folder: Path, text: str) -> layers.Settings:
    (folder / "headway.yaml").write_text(text)
    return layers.load(folder)


def test_a_cluster_is_written_out_with_every_default(tmp_path: Path) -> None:
    found = written(tmp_path, "clusters:\n  box: {engine: docker, image: 'a:1', shm: 2GiB}\n").get(
        "clusters"
    )
    assert found["box"]["image"] == "a:1" and found["box"]["shm"] == 2 * 1024**3
    assert found["box"]["command"] == ["docker"] and found["box"]["user"] == "submitter"
    options = set(clusters.TABLES["docker"].options) - {"url"}  # stored only where it is given
    assert set(found["box"]) == {"engine", *options}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "clusters:\n  box:\n    engine: dokcer\n",
            "line 2: box: there is no engine 'dokcer'; did you mean \"docker\"?",
        ),
        (
            "clusters:\n  box:\n    engine: docker\n    imge: x\n",
            'line 4: the engine docker has no option "imge"; did',
        ),
        ("clusters:\n  box: {image: x}\n", "line 2: box: a cluster is a mapping with `engine`"),
        ("clusters: [box]\n", "line 1: clusters: is a mapping of names"),
        ("clusters:\n  auto: {engine: local}\n", 'line 2: "auto" means the emptiest'),
        ("clusters:\n  box:\n    engine: docker\n    mounts: ['a:b']\n", "line 4: mounts: "),
        (
            "clusters:\n  box:\n    engine: docker\n    pass_env: ['A=secret']\n",
            "line 4: pass_env: names of variables",
        ),
        ("clusters:\n  here: {engine: local, image: x}\n", "has no option"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        written(tmp_path, text)
    assert words in str(error.value), str(error.value)


def test_a_later_file_adds_clusters_and_replaces_those_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config/headway").mkdir(parents=True)
    user = "clusters: {a: {engine: docker, image: old}, b: {engine: local}}\n"
    (tmp_path / "config/headway/config.yaml").write_text(user)
    found = written(tmp_path, "clusters: {a: {engine: podman}}\n").get("clusters")
    assert (
        found["a"]["engine"] == "podman"
        and found["a"]["image"] is None
        and found["b"] == {"engine": "local"}
    )


def test_a_name_without_a_definition_names_the_nearest() -> None:
    assert clusters.resolve("here", {}) == {}
    with pytest.raises(UsageError, match='did you mean "box"'):
        clusters.resolve("bxo", {"box": {"engine": "docker"}})


def test_two_definitions_of_one_name_are_two_places() -> None:
    def place(**definition: object) -> str:
        return JobSpec(["true"], "/", "x", cluster="box", definition=dict(definition)).place

    assert place() == "box"
    assert place(engine="docker", image="a") != place(engine="docker", image="b")
    assert place(engine="docker", image="a") == place(image="a", engine="docker")


def test_the_default_is_remembered_and_the_rest_of_the_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = userfile.set_value("default_cluster", "box")
    path.write_text(f"# mine\nport: 0  # any\n{path.read_text()}")
    assert userfile.set_value("default_cluster", "lab") == path
    assert path.read_text() == '# mine\nport: 0  # any\ndefault_cluster: "lab"\n'
    assert layers.load(None).get("default_cluster") == "lab"
    assert userfile.set_value("grace_s", "20s") == path and layers.load(None).get("grace_s") == 20.0


def test_a_value_that_is_not_valid_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = userfile.set_value("port", "80")
    for name, value in (("port", "many"), ("prot", "1"), ("clusters", "{}")):
        with pytest.raises(UsageError):
            userfile.set_value(name, value)
    assert path.read_text() == "port: 80\n"


def test_options_of_a_job_are_checked_like_those_of_its_cluster() -> None:
    told = clusters.job_options(
        "slurm", {"partition": "gpu", "extra": "--exclusive", "qos": None}, "lab"
    )
    assert told == {"partition": "gpu", "extra": ["--exclusive"], "qos": None}
    with pytest.raises(UsageError, match='no option "partiton"; did you mean "partition"'):
        clusters.job_options("slurm", {"partiton": "gpu"}, "lab")
    for given in ({"host": "evil"}, {"folder": "/x"}, {"account": 5}):
        with pytest.raises(UsageError):
            clusters.job_options("slurm", given, "lab")
    with pytest.raises(UsageError, match="takes no `options`"):
        clusters.job_options("docker", {"partition": "gpu"}, "box")


def test_a_job_that_moves_to_another_engine_leaves_the_options_of_the_old_one() -> None:
    old = JobSpec(["true"], "/", "a", definition={"engine": "slurm"}, options={"partition": "gpu"})
    assert submit_check.options_again(old, {"definition": {}}) == {"options": {}}
    assert (
        submit_check.options_again(old, {"definition": {"engine": "slurm"}})
        == submit_check.options_again(old, {})
        == {}
    )
