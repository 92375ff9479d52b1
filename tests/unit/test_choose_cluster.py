"""`-c auto`, and the address of a job's page in another system."""

import pytest

from headway.model.errors import UsageError
from headway.settings import clusters
from headway.views.cli.choose_cluster import emptiest


def row(name: str, *, gpus: int = 0, fits: bool = True, waiting: int = 0) -> dict[str, object]:
    total = {"gpus": gpus, "cpus": 8}
    return {
        "name": name, "error": None, "refusal": None, "waiting": waiting, "fits_now": fits, "total": total,
        "free": dict(total),
    }  # fmt: skip


def test_a_job_that_asks_for_gpus_goes_where_they_are_free() -> None:
    here, lab = row("here"), row("lab", gpus=4)
    assert emptiest([here, lab], on_gpus=True) is lab
    assert emptiest([here, lab]) is here
    full = row("lab", gpus=4, fits=False)
    assert emptiest([here, full], on_gpus=True) is here


def test_a_cluster_may_name_a_page_of_its_jobs_elsewhere() -> None:
    url = "https://grafana.lab/d/x?job={engine_id}"
    assert clusters.definition({"engine": "slurm", "url": url}, "lab")["url"] == url
    assert "url" not in clusters.definition({"engine": "slurm"}, "lab")  # stays as it was stored
    with pytest.raises(UsageError, match="is not an address"):
        clusters.definition({"engine": "local", "url": "javascript:x"}, "here")
