"""Why a job waits on Slurm (engines/slurm/reason.py)."""

import pytest

from headway.engines.slurm.reason import explain

DOCUMENTED = """
AccountNotAllowed AccountingPolicy AssocGrpBB AssocGrpBBMinutes AssocGrpBilling AssocGrpCPUMinutesLimit
AssocGrpCPURunMinutesLimit AssocGrpCpuLimit AssocGrpEnergy AssocGrpGRES AssocGrpGRESMinutes AssocGrpGRESRunMinutes
AssocGrpJobsLimit AssocGrpLicense AssocGrpMemLimit AssocGrpMemMinutes AssocGrpMemRunMinutes AssocGrpNodeLimit
AssocGrpNodeMinutes AssocGrpSubmitJobsLimit AssocGrpUnknown AssocGrpWallLimit AssocMaxBBPerJob AssocMaxCpuPerNode
AssocMaxCpuMinutesPerJobLimit AssocMaxCpuPerJobLimit AssocMaxGRESPerJob AssocMaxGRESPerNode AssocMaxJobsLimit
AssocMaxMemPerJob AssocMaxNodePerJobLimit AssocMaxSubmitJobLimit AssocMaxWallDurationPerJobLimit AssociationJobLimit
AssociationResourceLimit AssociationTimeLimit BadConstraints BeginTime BurstBufferOperation BurstBufferResources
BurstBufferStageIn Cleaning DeadLine Dependency DependencyNeverSatisfied FedJobLock FrontEndDown InactiveLimit
InvalidAccount InvalidQOS JobArrayTaskLimit JobHeldAdmin JobHeldUser JobHoldMaxRequeue JobLaunchFailure Licenses
MaxBBPerAccount MaxCpuPerAccount MaxGRESPerAccount MaxJobsPerAccount MaxMemPerLimit MaxMemoryPerAccount
MaxNodePerAccount MaxSubmitJobsPerAccount NodeDown NonZeroExitCode None OutOfMemory PartitionDown PartitionInactive
PartitionNodeLimit PartitionTimeLimit Priority Prolog QOSGrpBilling QOSGrpCPUMinutesLimit QOSGrpCpuLimit QOSGrpGRES
QOSGrpGRESMinutes QOSGrpJobsLimit QOSGrpMemLimit QOSGrpNodeLimit QOSGrpSubmitJobsLimit QOSGrpWallLimit QOSJobLimit
QOSMaxCpuMinutesPerJobLimit QOSMaxCpuPerJobLimit QOSMaxCpuPerNode QOSMaxCpuPerUserLimit QOSMaxGRESPerJob
QOSMaxGRESPerNode QOSMaxGRESPerUser QOSMaxJobsPerUserLimit QOSMaxMemoryPerJob QOSMaxMemoryPerNode QOSMaxMemoryPerUser
QOSMaxNodePerJobLimit QOSMaxNodePerUserLimit QOSMaxSubmitJobPerUserLimit QOSMaxWallDurationPerJobLimit
QOSMinBB QOSMinCpuNotSatisfied QOSMinGRES QOSMinMemory QOSMinNode QOSNotAllowed QOSResourceLimit QOSTimeLimit
QOSUsageThreshold ReqNodeNotAvail Reservation ReservationDeleted Resources SchedDefer SystemFailure TimeLimit
""".split()


@pytest.mark.parametrize("word", DOCUMENTED)
def test_every_documented_word_is_said_in_words(word: str) -> None:
    reason = explain(word)
    assert reason.word == word
    assert not reason.text.startswith("Slurm says"), word


def test_a_limit_names_whose_it_is_and_what_it_is_about() -> None:
    assert explain("QOSMaxGRESPerUser").text == (
        "the most that is allowed is reached in its QoS: GPUs or other GRES for each user"
    )
    assert "minutes of CPUs" in explain("AssocGrpCPUMinutesLimit").text
    assert explain("QOSMaxWallDurationPerJobLimit").never and not explain("QOSMaxJobsPerUserLimit").never


def test_what_stands_behind_the_word_is_kept() -> None:
    assert "UnavailableNodes:node2" in explain("ReqNodeNotAvail, UnavailableNodes:node2").text


def test_a_word_that_nobody_knows_is_shown_and_not_guessed() -> None:
    reason = explain("QuantumFluctuation")
    assert (reason.text, reason.never) == ("Slurm says: QuantumFluctuation", False)
