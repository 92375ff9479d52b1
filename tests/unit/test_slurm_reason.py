"""Why a job waits on Slurm (engines/slurm/why/reason.py)."""

import pytest

from headway.engines.slurm.why.reason import explain

# Every word that Slurm 20.02 to 26.05 can print, and those of its page "Job Reason Codes".
DOCUMENTED = """
AccountNotAllowed AccountingPolicy AssocGrpBB AssocGrpBBMinutes AssocGrpBBRunMinutes AssocGrpBilling
AssocGrpBillingMinutes AssocGrpBillingRunMinutes AssocGrpCPUMinutesLimit AssocGrpCPURunMinutesLimit AssocGrpCpuLimit
AssocGrpEnergy AssocGrpEnergyMinutes AssocGrpEnergyRunMinutes AssocGrpGRES AssocGrpGRESMinutes AssocGrpGRESRunMinutes
AssocGrpJobsLimit AssocGrpLicense AssocGrpLicenseMinutes AssocGrpLicenseRunMinutes AssocGrpMemLimit AssocGrpMemMinutes
AssocGrpMemRunMinutes AssocGrpNodeLimit AssocGrpNodeMinutes AssocGrpNodeRunMinutes AssocGrpSubmitJobsLimit
AssocGrpUnknown AssocGrpUnknownMinutes AssocGrpUnknownRunMinutes AssocGrpWallLimit AssocMaxBBMinutesPerJob
AssocMaxBBPerJob AssocMaxBBPerNode AssocMaxBillingMinutesPerJob AssocMaxBillingPerJob AssocMaxBillingPerNode
AssocMaxCpuMinutesPerJobLimit AssocMaxCpuPerJobLimit AssocMaxCpuPerNode AssocMaxEnergyMinutesPerJob
AssocMaxEnergyPerJob AssocMaxEnergyPerNode AssocMaxGRESMinutesPerJob AssocMaxGRESPerJob AssocMaxGRESPerNode
AssocMaxJobsLimit AssocMaxLicenseMinutesPerJob AssocMaxLicensePerJob AssocMaxMemMinutesPerJob AssocMaxMemPerJob
AssocMaxMemPerNode AssocMaxNodeMinutesPerJob AssocMaxNodePerJobLimit AssocMaxSubmitJobLimit
AssocMaxUnknownMinutesPerJob AssocMaxUnknownPerJob AssocMaxUnknownPerNode AssocMaxWallDurationPerJobLimit
AssociationJobLimit AssociationResourceLimit AssociationTimeLimit BadConstraints BeginTime BlockFreeAction
BlockMaxError BurstBufferOperation BurstBufferResources BurstBufferStageIn Cleaning Constraints DeadLine Dependency
DependencyNeverSatisfied FedJobLock FrontEndDown InactiveLimit InvaildReason InvalidAccount InvalidQOS InvalidReason
JobArrayTaskLimit JobHeldAdmin JobHeldUser JobHoldMaxRequeue JobLaunchFailure Licenses MaxBBPerAccount
MaxBBRunMinsPerAccount MaxBBRunMinsPerUser MaxBillingPerAccount MaxBillingRunMinsPerAccount MaxBillingRunMinsPerUser
MaxCpuPerAccount MaxCpuRunMinsPerAccount MaxCpuRunMinsPerUser MaxEnergyPerAccount MaxEnergyRunMinsPerAccount
MaxEnergyRunMinsPerUser MaxGRESPerAccount MaxGRESRunMinsPerAccount MaxGRESRunMinsPerUser MaxJobsPerAccount
MaxLicensePerAccount MaxLicenseRunMinsPerAccount MaxLicenseRunMinsPerUser MaxMemPerLimit MaxMemoryPerAccount
MaxMemoryRunMinsPerAccount MaxMemoryRunMinsPerUser MaxNodePerAccount MaxNodeRunMinsPerAccount MaxNodeRunMinsPerUser
MaxPoweredUpNodes MaxSubmitJobsPerAccount MaxUnknownPerAccount MaxUnknownRunMinsPerAccount MaxUnknownRunMinsPerUser
MpiPortsBusy NodeDown NonZeroExitCode None NvidiaImexChannels OutOfMemory PartitionConfig PartitionDown
PartitionInactive PartitionNodeLimit PartitionTimeLimit PowerNotAvail PowerReserved Priority Prolog QOSGrpBB
QOSGrpBBMinutes QOSGrpBBRunMinutes QOSGrpBilling QOSGrpBillingMinutes QOSGrpBillingRunMinutes QOSGrpCPUMinutesLimit
QOSGrpCPURunMinutesLimit QOSGrpCpuLimit QOSGrpEnergy QOSGrpEnergyMinutes QOSGrpEnergyRunMinutes QOSGrpGRES
QOSGrpGRESMinutes QOSGrpGRESRunMinutes QOSGrpJobsLimit QOSGrpLicense QOSGrpLicenseMinutes QOSGrpLicenseRunMinutes
QOSGrpMemLimit QOSGrpMemoryMinutes QOSGrpMemoryRunMinutes QOSGrpNodeLimit QOSGrpNodeMinutes QOSGrpNodeRunMinutes
QOSGrpSubmitJobsLimit QOSGrpUnknown QOSGrpUnknownMinutes QOSGrpUnknownRunMinutes QOSGrpWallLimit QOSJobLimit
QOSMaxBBMinutesPerJob QOSMaxBBPerJob QOSMaxBBPerNode QOSMaxBBPerUser QOSMaxBillingMinutesPerJob QOSMaxBillingPerJob
QOSMaxBillingPerNode QOSMaxBillingPerUser QOSMaxCpuMinutesPerJobLimit QOSMaxCpuPerJobLimit QOSMaxCpuPerNode
QOSMaxCpuPerUserLimit QOSMaxEnergyMinutesPerJob QOSMaxEnergyPerJob QOSMaxEnergyPerNode QOSMaxEnergyPerUser
QOSMaxGRESMinutesPerJob QOSMaxGRESPerJob QOSMaxGRESPerNode QOSMaxGRESPerUser QOSMaxJobsPerUserLimit
QOSMaxLicenseMinutesPerJob QOSMaxLicensePerJob QOSMaxLicensePerUser QOSMaxMemoryMinutesPerJob QOSMaxMemoryPerJob
QOSMaxMemoryPerNode QOSMaxMemoryPerUser QOSMaxNodeMinutesPerJob QOSMaxNodePerJobLimit QOSMaxNodePerUserLimit
QOSMaxSubmitJobPerUserLimit QOSMaxUnknownMinutesPerJob QOSMaxUnknownPerJob QOSMaxUnknownPerNode QOSMaxUnknownPerUser
QOSMaxWallDurationPerJobLimit QOSMinBB QOSMinBilling QOSMinCpuNotSatisfied QOSMinEnergy QOSMinGRES QOSMinLicense
QOSMinMemory QOSMinNode QOSMinUnknown QOSNotAllowed QOSResourceLimit QOSTimeLimit QOSUsageThreshold RaisedSignal
ReqNodeNotAvail Reservation ReservationDeleted ReservationInvalid Resources SchedDefer SystemFailure TimeLimit
""".split()


@pytest.mark.parametrize("word", DOCUMENTED)
def test_every_documented_word_is_said_in_words(word: str) -> None:
    reason = explain(word)
    assert reason.word == word
    assert not reason.text.startswith("Slurm says"), word


@pytest.mark.parametrize("word", sorted({*DOCUMENTED} - {"Resources", "Priority"}))
def test_every_documented_word_says_what_to_do(word: str) -> None:
    """Of the two others, the lines below tell who is ahead, what is free and what would start
    sooner.
    """
    assert explain(word).hint


def test_a_limit_names_whose_it_is_and_what_it_is_about() -> None:
    assert explain("QOSMaxGRESPerUser").text == (
        "the most that is allowed is reached in its QoS: GPUs or other GRES for each user"
    )
    assert "minutes of CPUs" in explain("AssocGrpCPUMinutesLimit").text
    assert (
        explain("QOSMaxWallDurationPerJobLimit").never
        and not explain("QOSMaxJobsPerUserLimit").never
    )


def test_what_stands_behind_the_word_is_kept() -> None:
    assert "UnavailableNodes:node2" in explain("ReqNodeNotAvail, UnavailableNodes:node2").text


def test_a_word_that_nobody_knows_is_shown_and_not_guessed() -> None:
    reason = explain("QuantumFluctuation")
    assert (reason.text, reason.never) == ("Slurm says: QuantumFluctuation", False)
