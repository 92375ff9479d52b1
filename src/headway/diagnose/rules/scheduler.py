"""Schedulers and container engines: preempted, lost, timed out, cancelled, not placed, no image."""

from headway.diagnose.rule import CONSEQUENCE, FACT, PLAIN, ROOT, SUMMARY, rule

RULES = (
    rule(
        "walltime",
        r"DUE TO TIME ?LIMIT|TERM_RUNLIMIT|walltime \S+ exceeded limit|job killed: walltime"
        r"|exceeded (?:its |the )?(?:wall ?time|time limit)"
        r"|active longer than specified deadline|\bDeadlineExceeded\b|CPU time limit exceeded"
        r"|exceed\w* (?:hard |soft )?wallclock"
        r"|reached (?:the )?(?:wall ?time|time) limit|\bState[=: ]+TIMEOUT\b|^\S+\|TIMEOUT\|"
        r"|JobState=TIMEOUT|reaching LSF run time limit"
        r"|job exceeded (?:the )?(?:maximum )?(?:execution|running) time|timeout: sending signal"
        r"|killed .*h_rt|TIME LIMIT \*\*\*",
        "time limit",
        "runlimit",
        "walltime",
        "wall time",
        "deadline",
        "wallclock",
        "timeout",
        "run time limit",
        "h_rt",
        "execution time",
        "running time",
        confidence=0.96,
        role=FACT,
        unless=r"(?i)gRPC|DEADLINE_EXCEEDED|rpc error|collective|NCCL|context deadline|will be"
        r"|approaching|remaining",
    ),
    rule(
        "preempted",
        r"DUE TO PREEMPTION|\bPREEMPTED\b|JobState=PREEMPTED"
        r"|[Ss]pot (?:instance )?(?:interruption|termination|preempt\w+) (?:notice|warning|event)"
        r"|(?:was|been|is being|being) preempted|Preempted by|preemption notice"
        r"|(?i:reason)\W+Preempt\w+|\bEvicted\b|Pod was evicted"
        r"|The node (?:had condition|was low on resource: (?!memory|ephemeral))|instance-action"
        r"|spot reclaim|TERMINATE_ON_HOST_MAINTENANCE"
        r"|[Ee]viction.*(?:marked for deletion|initiated)"
        r"|instance (?:is being |will be |was )?(?:reclaimed|preempted)"
        r"|Stopping container .*preempt|to make (?:room|way) for .*priority|Preempting ",
        "preempt",
        "spot",
        "evict",
        "the node ",
        "instance",
        "terminate_on_host",
        "higher priority",
        confidence=0.95,
        role=FACT,
        unless=r"(?i)preemption is not helpful|no preemption victims|preemption: \d|preemptible="
        r"|preempt_?type|preemptmode|cache|"
        r"not preempt|support\w* preempt|ephemeral-storage|enable\w* preempt|vllm|sequence group"
        r"|recompute|swap",
    ),
    rule(
        "node_lost",
        r"DUE TO NODE FAILURE|Node failure on|\bNODE_FAIL\b|\bNodeLost\b|NodeNotReady"
        r"|node\.kubernetes\.io/(?:unreachable|not-ready)"
        r"|lost communication with node|NodeDiedError|[Nn]ode \S+ (?:is|was"
        r"|has been)(?: marked)? (?:dead|down|unreachable|not responding|lost)"
        r"|node .*(?:missed too many heartbeats|stopped posting node status|crashed)|(?:Machine"
        r"|Node) (?:Check|crash)\w*.*(?:reboot|down)"
        r"|error: Nodes? \S+ (?:not responding|are still not ready)|TERM_(?:HOST|ZOMBIE)"
        r"|unexpectedly rebooted|Node unexpectedly rebooted"
        r"|owner died|(?:raylet|worker) .*died.*node|launch failed: .*[Cc]ommunication"
        r"|Communication connection failure|step lost node"
        r"|node .* has been marked dead because",
        "node",
        "owner died",
        "unreachable",
        "rebooted",
        "communication",
        "term_host",
        "machine",
        "raylet",
        confidence=0.94,
        role=FACT,
        unless=r"(?i)nodes are available|didn't tolerate|untolerated taint|tolerat",
    ),
    rule(
        "node_lost",
        r"(?:its|the|whose) node (?:has |was )?(?:died|terminated|lost|removed)"
        r"|node was terminated|node \S+ died"
        r"|Node Id: \w+.*(?:dead|died)",
        "node",
        confidence=0.93,
        role=FACT,
    ),
    # Said without a reason: by a person, or because a rank of the step failed before.
    rule(
        "cancelled",
        r"\*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT|CANCELLED by \d+|\bCANCELLED\b (?:AT|by)"
        r"|State[=: ]+CANCELLED"
        r"|TERM_OWNER|aborted by (?:the )?user|operation was cancell?ed"
        r"|[Jj]ob (?:was )?cancell?ed(?: by| at|\.|$)|run was cancell?ed"
        r"|scancel\b.*job|deleted by user|[Ss]topped by (?:the )?user|job \S+ deleted|qdel"
        r"|Received (?:cancellation|stop) request",
        "cancel",
        "term_owner",
        "aborted by",
        "by user",
        "by the user",
        "deleted",
        "qdel",
        confidence=0.85,
        role=SUMMARY,
        unless=r"DUE TO|CancelledError|asyncio|futures",
    ),
    rule(
        "cancelled",
        r"KeyboardInterrupt|^\^C|Received SIGINT|Signals\.SIGINT|keyboard interrupt"
        r"|Detected KeyboardInterrupt|Interrupted by user"
        r"|exitcode\W+-2\b|(?:by|on|got|received|with) signal:? 2\b",
        "keyboardinterrupt",
        "^c",
        "sigint",
        "keyboard interrupt",
        "interrupted by user",
        "-2",
        "signal 2",
        confidence=0.88,
        role=ROOT,
        unless=r"attempting graceful shutdown.*\bnot\b",
    ),
    rule(
        "cancelled",
        r"Job step aborted: Waiting up to|srun: (?:forcing|Force) [Tt]erminat|srun: Terminating",
        "job step aborted",
        "terminat",
        confidence=0.5,
        role=CONSEQUENCE,
    ),
    rule(
        "image_pull",
        r"(?:pyxis|enroot)\S*:.*(?:registry|manifests?|import|pull|[Uu]nauthorized|URL https?:"
        r"|image)"
        r"|pyxis: container start failed",
        "pyxis",
        "enroot",
        confidence=0.95,
        role=ROOT,
        unless=r"importing docker image|imported docker image",
    ),
    rule(
        "image_pull",
        r"ImagePullBackOff|ErrImagePull|[Ff]ailed to pull image|manifest (?:unknown"
        r"|for \S+ not found)|pull access denied|toomanyrequests"
        r"|InvalidImageName|failed to import docker image|pyxis: (?:failed|couldn't"
        r"|child).*(?:import|image|enroot)|repository does not exist or may require"
        r"|(?:FATAL|ERROR).*(?:making image|pulling image|[Ff]ailed to pull|docker image)"
        r"|reading manifest .*(?:unknown|denied|unauthorized)"
        r"|could not open image \S+|failed to (?:resolve reference|pull and unpack image)"
        r"|Error response from daemon: .*(?:manifest|pull|no such image)"
        r"|enroot-\w+.*(?:error|failed)|[Uu]nable to pull|No such image|ImageInspectError"
        r"|RegistryUnavailable|image \S+ not found",
        "image",
        "manifest",
        "pull",
        "toomanyrequests",
        "pyxis",
        "enroot",
        "registry",
        "no such image",
        confidence=0.93,
        role=ROOT,
        unless=r"(?i)identify image|image file|pil\.|Unable to find image .* locally|imagenet"
        r"|truncated|jpe?g|png",
    ),
    rule(
        "unschedulable",
        r"\bInsufficient (?:\w+\.com/\w+|cpu|memory)\b",
        "insufficient",
        confidence=0.95,
        where=PLAIN,
    ),
    rule(
        "unschedulable",
        r"\bFailedScheduling\b|\d+/\d+ nodes are available|\bUnschedulable\b"
        r"|Requested node configuration is not available|ReqNodeNotAvail"
        r"|\b(?:AssocGrp|AssocMax|QOSMax|QOSGrp|MaxTRES)\w*(?:Limit|PerUser|PerJob|PerAccount)"
        r"|exceeded quota: |didn't match .*node (?:affinity|selector)"
        r"|Batch job submission failed|violates accounting/QOS policy|Requested (?:time limit"
        r"|partition|node).*(?:invalid|not available|exceeds)"
        r"|(?:placement group|resource request).*(?:cannot be scheduled|infeasible|timed out)"
        r"|More processors requested than permitted"
        r"|gang (?:is )?unschedulable|PartitionConfig|not enough resources .*to schedule"
        r"|Invalid (?:generic resource|account or account/partition|partition name|qos) "
        r"|No available node types can fulfill",
        "scheduling",
        "nodes are available",
        "unschedulable",
        "configuration is not available",
        "reqnodenotavail",
        "assoc",
        "qos",
        "quota",
        "didn't match",
        "submission failed",
        "requested",
        "schedule",
        "infeasible",
        "placement group",
        "insufficient",
        "gang",
        "partitionconfig",
        "partition name",
        "resource",
        confidence=0.93,
        role=ROOT,
        where=PLAIN,
        unless=r"(?i)insufficient_quota|disk quota|openai",
    ),
    rule(
        "unschedulable",
        r"\bPD\b.*\((?:Partition\w+|QOS\w+|Assoc\w+|ReqNodeNotAvail\S*|BadConstraints|Resources"
        r"|Priority"
        r"|MaxGRES\w+|JobHeld\w+)[^)]*\)|pod group is not ready|in gang unschedulable",
        " pd ",
        "pod group",
        "gang",
        confidence=0.85,
        where=PLAIN,
    ),
)
