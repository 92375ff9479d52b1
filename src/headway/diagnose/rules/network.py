"""Networks: the fabric between nodes, finding each other, and services elsewhere."""

from headway.diagnose.rule import CONSEQUENCE, EXCEPTION, FACT, PLAIN, ROOT, rule

RULES = (
    rule(
        "fabric_network",
        r"NET/IB\W.*(?:completion|error|failed|down|async)|ibv_\w+.*(?:fail|error)"
        r"|[Tt]ransport retry count(?:er)? exceeded|NET/Socket : message truncated"
        r"|IBV_WC_\w+ERR|Got completion (?:from peer \S+ )?with (?:error|status)|port error"
        r"|mlx5\w*.*(?:[Ll]ink [Dd]own|error)"
        r"|NET/OFI.*(?:error|fail)|UCX  ?ERROR.*(?:timeout|unreachable|rc_|Endpoint)"
        r"|link (?:is )?(?:down|flap)|NIC .*(?:down|fail)"
        r"|local QP operation err|ibv_poll_cq|RDMA.*(?:fail|error)|cxi.*(?:error|retry).*fatal"
        r"|local work queue catastrophic",
        "net/ib",
        "ibv_",
        "retry counter",
        "completion",
        "port error",
        "mlx5",
        "net/ofi",
        "ucx",
        "link",
        "nic ",
        "qp operation",
        "rdma",
        "cxi",
        "retry count",
        "message truncated",
        "work queue",
        confidence=0.92,
        role=ROOT,
        unless=r"(?i)NET/IB : (?:Using|No device|Made)|NCCL INFO|unlink|\blinked\b|warning:"
        r"|Device or resource busy",
    ),
    rule(
        "fabric_network",
        r"(?:socketStartConnect|Call to connect|Connect to|NET/Socket).*(?:No route to host"
        r"|unreachable|timed out|Software caused|refused)"
        r"|\[Errno (?:113|101)\]|No route to host|Network is unreachable"
        r"|NCCL WARN Bootstrap : no socket interface"
        r"|unable to find.*(?:network )?interface|No socket interface found|no interface .*found"
        r"|ENETUNREACH|EHOSTUNREACH",
        "no route",
        "unreachable",
        "connect",
        "errno 113]",
        "errno 101]",
        "interface",
        "ehost",
        "enet",
        confidence=0.86,
        role=ROOT,
        unless=r"(?i)https?:|requests\.|urllib|HTTPS?ConnectionPool|ssh: |NODE_FAIL"
        r"|nodes are available|taint"
        r"|command line interface|NCCL INFO",
    ),
    rule(
        "fabric_network",
        r"ncclSystemError|unhandled system error|NCCL WARN Call to \w+ .*failed"
        r"|NCCL error.*(?:internal|system) error"
        r"|ncclInternalError|ncclUnhandledCudaError|unhandled cuda error",
        "nccl",
        confidence=0.6,
        role=CONSEQUENCE,
    ),
    rule(
        "rendezvous",
        r"Address already in use|\bEADDRINUSE\b|\[Errno 98\]"
        r"|server socket has failed to (?:listen|bind)"
        r"|RendezvousTimeoutError|RendezvousConnectionError|RendezvousClosedError"
        r"|Rendezvous\w*Error"
        r"|Timed out after \d+ seconds waiting for clients|client socket has timed out after"
        r"|client socket has failed to connect"
        r"|Timed out initializing process group|[Gg]loo connectFullMesh failed"
        r"|store based barrier.*(?:timed? ?out|exceeded)"
        r"|cannot be retrieved \(gai error|failed to connect to \S+ ?:?\d+.*(?:tcp|store"
        r"|TCPStore)|TCPStore.*(?:refused|timed out|timeout)"
        r"|connection to the C10d store has failed|connect\(\) (?:timed out|failed)"
        r"|DistStoreError|DistNetworkError"
        r"|(?:coordination|coordinator) (?:service|address).*(?:fail|timed|unavail|not)"
        r"|Failed to connect to (?:coordinator|GCS|master)"
        r"|Barrier timed out|init_process_group.*timed? ?out",
        "address already in use",
        "eaddrinuse",
        "errno 98]",
        "server socket",
        "rendezvous",
        "waiting for clients",
        "client socket",
        "timed out initializing",
        "connectfullmesh",
        "store",
        "gai error",
        "connect",
        "coordinat",
        "barrier timed",
        "init_process_group",
        confidence=0.9,
        role=ROOT,
        unless=r"(?i)https?://(?!.*(?:errno 98|already in use))|recvValue|sendBytes|broken ?pipe"
        r"|wait timeout|has shutdown|INFO"
        r"|reset by peer|closed by|huggingface|HTTPS?ConnectionPool|monitoredBarrier|got 0 bytes"
        r"|should dump|failed to shutdown",
    ),
    rule(
        "rendezvous",
        r"Unable to (?:find|resolve) (?:address|hostname)|ifa != nullptr"
        r"|makeDeviceFor(?:Interface|Hostname)"
        r"|[Cc]annot resolve (?:the )?(?:master|host)",
        "unable to",
        "ifa != nullptr",
        "makedevicefor",
        "cannot resolve",
        confidence=0.83,
        fuzzy=True,
        where=EXCEPTION,
    ),
    rule(
        "rendezvous",
        r"retrieving ncclUniqueId .*got error: (?:Socket Timeout|.*timeout)",
        "nccluniqueid",
        confidence=0.83,
        where=EXCEPTION,
        fuzzy=True,
    ),
    rule(
        "rendezvous",
        r"ConnectionRefusedError|\[Errno 111\]|Connection refused",
        "refused",
        "errno 111]",
        confidence=0.7,
        role=ROOT,
        unless=r"(?i)https?:|HTTPS?Connection|urllib|requests\.|wandb|huggingface|redis|sql"
        r"|mongo|ssh: ",
    ),
    # Services elsewhere.
    rule(
        "permission_or_credentials",
        r"\b40[13] Client Error|HTTP(?: Error|/\S+)? 40[13]\b|GatedRepoError|Access to (?:model"
        r"|dataset) \S+ is restricted"
        r"|[Ii]nvalid (?:user token|credentials|api[- ]key|username or password)"
        r"|Unable to locate credentials|NoCredentialsError"
        r"|ExpiredToken|InvalidAccessKeyId|SignatureDoesNotMatch|\bAccessDenied\b"
        r"|AccessDeniedException|[Aa]uthentication (?:failed|required)"
        r"|AuthenticationError|api_key not configured|No API key configured|[Uu]nauthorized"
        r"|status[_ ]code:? ?40[13]\b"
        r"|You (?:must be|need to be) (?:authenticated|logged in)|token (?:has |is )?(?:expired"
        r"|invalid)|Permission denied \(publickey"
        r"|PERMISSION_DENIED|PermissionDenied|RefreshError|DefaultCredentialsError|\(Forbidden\)"
        r"|403 Forbidden|gated repo"
        r"|AuthorizationFailure|permission denied on resource|could not read Username"
        r"|do(?:es)? not have permission|\(40[13]\) when calling|permission denied while trying to connect",
        "client error",
        "http",
        "gated",
        "restricted",
        "invalid",
        "credentials",
        "expired",
        "signature",
        "accessdenied",
        "authenti",
        "api_key",
        "api key",
        "unauthorized",
        "status",
        "logged in",
        "token",
        "permission",
        "refresherror",
        "forbidden",
        "authorization",
        "could not read username",
        "when calling",
        confidence=0.92,
        role=ROOT,
        unless=r"(?i)you (?:are|might be) sending unauthenticated|to (?:access|use) private"
        r"|set a HF_TOKEN|rate limit"
        r"|tokenizer|pull access denied|exceeded quota|invalid (?:load|syntax|literal|choice)"
        r"|FutureWarning|UserWarning|image",
    ),
    rule(
        "permission_or_credentials",
        r"\.(?:Forbidden|Unauthorized)\b|\b40[13] (?:GET|POST|PUT|HEAD|PATCH)\b"
        r"|does not have \S+ access"
        r"|insufficient (?:permissions?|privileges|scope)",
        "forbidden",
        "unauthorized",
        "401",
        "403",
        "does not have",
        "insufficient",
        confidence=0.91,
        where=EXCEPTION,
    ),
    rule(
        "permission_or_credentials",
        r"PermissionError|\[Errno (?:13|1)\]|Permission denied|Operation not permitted"
        r"|\bEACCES\b|\bEPERM\b|Access is denied",
        "permission",
        "not permitted",
        "eacces",
        "eperm",
        "access is denied",
        confidence=0.9,
        role=ROOT,
        unless=r"(?i)pull access|execve\(\)|exec: |exec format|set_mempolicy|mbind|sched_"
        r"|bad interpreter|nvidia-smi|warning|perf_event|^(?:\S*/)?(?:ba|da|z|k)?sh: ",
    ),
    rule(
        "remote_service",
        r"Max retries exceeded with url|NewConnectionError|\b(?:429|500|502|503|504) (?:Client "
        r"|Server )?Error|Too Many Requests|Bad Gateway"
        r"|Service (?:Temporarily )?Unavailable|Gateway Time-?out|HTTP(?: Error|/\S+)? (?:429"
        r"|5\d\d)\b|RemoteDisconnected|ReadTimeoutError"
        r"|EndpointConnectionError|ConnectTimeoutError|\bSlowDown\b"
        r"|couldn't connect to '?https?:|couldn't reach|Couldn't reach"
        r"|LocalEntryNotFoundError|OfflineModeIsEnabled|wandb\.(?:sdk\.lib\.)?(?:errors"
        r"|service)\S*(?:CommError|\.Error|Timeout)|CommError"
        r"|Run initialization has timed out|RateLimitError"
        r"|API request to \S+ failed|<urlopen error|URLError|SSLError|SSLCertVerificationError"
        r"|ProxyError|ServiceRequestError"
        r"|ServiceUnavailable|status[_ ]code:? ?(?:429|5\d\d)\b|requests\.exceptions\.(?:Connect"
        r"|Read|Timeout|Chunked|SSL|Proxy)\w*"
        r"|aiohttp\.client_exceptions|httpx\.(?:Connect|Read|Timeout|Remote)\w*|IncompleteRead"
        r"|HfHubHTTPError"
        r"|HTTPSConnectionPool.*(?:timed out|Read timed out)"
        r"|Temporary failure in name resolution|Name or service not known"
        r"|[Rr]equest rate (?:is )?(?:too large|limit)|We couldn't connect to|urllib3\.exceptions",
        "retries exceeded",
        "connection",
        " error",
        "too many requests",
        "bad gateway",
        "unavailable",
        "gateway",
        "http",
        "remotedisconnected",
        "timeout",
        "slowdown",
        "couldn't",
        "entrynotfound",
        "offline",
        "commerror",
        "timed out",
        "ratelimit",
        "api request",
        "urlopen",
        "urlerror",
        "ssl",
        "proxy",
        "servicerequest",
        "status",
        "incompleteread",
        "name resolution",
        "name or service",
        "request rate",
        confidence=0.9,
        role=ROOT,
        unless=r"(?i)\bretrying\b|will retry|attempt \d+ of|gai error|ssh: |40[134] Client"
        r"|TCPStore|rendezvous|MASTER_ADDR|WARNING|wandb: |pull image|c10d"
        r"|socket\.cpp|manifest|registry|ImagePull",
    ),
    rule(
        "remote_service",
        r"WARNING: Retrying \(Retry\(total=0\b.*connection broken by",
        "retry(total=0",
        confidence=0.85,
        role=FACT,
    ),
    rule(
        "remote_service",
        r"^curl: \((?:5|6|7|28|35|52|56)\) |unable to access 'https?://[^']*': (?:Failed|Could|Connection|Operation)"
        r"|StatusCode\.UNAVAILABLE|failed to connect to all addresses"
        r"|unable to resolve host address",
        "curl: (",
        "unable to access",
        "statuscode.unavailable",
        "all addresses",
        "unable to resolve",
        confidence=0.86,
        role=ROOT,
    ),
    # Trackers say so and mostly go on.
    rule(
        "remote_service",
        r"wandb: ERROR (?:Error (?:while|communicating)|Network|Run initialization)"
        r"|Network error \(\w+\)",
        "wandb: error",
        "network error",
        confidence=0.45,
        role=ROOT,
        where=PLAIN,
    ),
    rule(
        "remote_service",
        r"socket\.gaierror|ConnectionResetError|ConnectionAbortedError"
        r"|TimeoutError: (?:\[Errno 110\]|timed out|The read operation)"
        r"|\[Errno 104\]|\[Errno 110\]|Connection timed out",
        "gaierror",
        "connection",
        "timeouterror",
        "errno 104]",
        "errno 110]",
        confidence=0.66,
        role=ROOT,
        where=EXCEPTION,
    ),
)
