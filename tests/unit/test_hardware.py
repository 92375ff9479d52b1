"""The machine of a job, from the kernel's files."""

from pathlib import Path

from headway.agent.observe.hardware import hardware


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_cards_and_driver_are_read_from_the_kernel(tmp_path: Path) -> None:
    write(tmp_path, "proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD  EPYC 7763\n")
    write(tmp_path, "proc/meminfo", "MemTotal:       1024 kB\nMemFree: 1 kB\n")
    write(
        tmp_path, "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\nGCC version: 12\n",
    )  # fmt: skip
    for card in ("0000:01:00.0", "0000:02:00.0"):
        write(
            tmp_path, f"proc/driver/nvidia/gpus/{card}/information",
            "Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ:   \t\t 77\n",
        )  # fmt: skip
    found = hardware(str(tmp_path))
    assert found.pop("cores") > 0
    assert found == {
        "cpu": "AMD EPYC 7763", "ram_bytes": 1024 * 1024, "gpu": "2 × NVIDIA A100-SXM4-80GB",
        "driver": "NVIDIA 550.54.15",
    }  # fmt: skip


def test_the_open_driver_is_told_as_well(tmp_path: Path) -> None:
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build\n"
    write(tmp_path, "proc/driver/nvidia/version", text)
    assert hardware(str(tmp_path))["driver"] == "NVIDIA 575.57.08"


def test_a_machine_without_these_files_tells_what_it_can(tmp_path: Path) -> None:
    assert list(hardware(str(tmp_path))) == ["cores"]
