"""Every limit of Headway, in one place, so that a person can look one up and a test can read it.

Names end in their unit. What is here bounds a buffer, a queue, a name, a wait or a loop somewhere;
`docs/reference/limits.md` is generated from this file.
"""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# -- names
JOB_NAME_CHARS_MAX = 64
METRIC_NAME_BYTES_MAX = 256
TAG_CHARS_MAX = 128
DESCRIPTION_CHARS_MAX = 4096  # of `hw describe`
TAGS_MAX = 64
SERIES_TAGS_MAX = 8  # of one metric series
SERIES_TAG_CHARS_MAX = 64  # of a tag's name, and of its value
STREAM_NAME_CHARS_MAX = 96

# -- records (client and spool)
FRAME_BYTES_MAX = 1 * MIB  # payload of one frame
RECORD_VALUES_MAX = 4096  # values of one log() call
METRIC_NAMES_MAX = 100_000  # different metric names of one process; further ones are refused
SCHEMAS_MAX = 4096  # tuples of names in one segment; then a new segment starts
SEGMENT_BYTES_MAX = 16 * MIB  # a metric segment rolls here
STEP_ABS_MAX = 2**62
CONFIG_BYTES_MAX = 512 * KIB  # of the JSON form
CONFIG_DEPTH_MAX = 32
CONFIG_ITEMS_MAX = 20_000
CONFIG_STRING_CHARS_MAX = 16 * KIB
TRACEBACK_CHARS_MAX = 64 * KIB
MESSAGE_CHARS_MAX = 16 * KIB
NOTES_MAX = 100  # distinct warnings of one process
UNSAID_FACTS_MAX = 100  # facts of one process that wait for a disk that has room again
# of threads and destructors of one process; the one that ends the program always counts
EXCEPTIONS_MAX = 50
LOG_DEPTH_MAX = 8  # of nested dictionaries in one log() call
# changes of the config that are written at once; then one per second at most
ARGUMENT_CONFIG_ITEMS_MAX = 500  # of a command line, taken for a config
CONFIG_WRITES_MAX = 100
CONFIG_TIME_MAX_S = 0.5  # for converting a config
CONFIG_KEY_CHARS_MAX = 256
ARGV_TOLD_CHARS_MAX = 64 * KIB  # of a process's command line, as it tells it
SOURCE_CHARS_MAX = 1000  # of the source line that is kept with an exception
SEGMENTS_RETIRED_MAX = 32  # rolled segments whose descriptors a thread may still be using
# one tracker in a process's file of positions; its message takes what is left
PROGRESS_SLOT_BYTES = 256
PROGRESS_SLOTS_MAX = 1024  # trackers of one process at the same time; further ones are not shown
PROGRESS_INTERVAL_S = 0.2  # at least this long between two told positions of one tracker
# of one record of `logging`; a longer one is cut in the middle, and says so
LOG_TEXT_CHARS_MAX = 16 * KIB
LOG_WIDTH_CHARS = 100  # tables and other drawings of rich in a record
LOG_DRAW_S_MAX = 1.0  # for drawing what is in one record; then plain words, or what has been drawn
LOG_TABLE_ROWS_MAX = 200  # of a table in a record
LOG_TABLE_COLUMNS_MAX = 32
LOG_CELL_CHARS_MAX = 200
LOG_ITEMS_MAX = 1000  # of a list or dictionary in a record
TIMING_INTERVAL_S = 1.0  # at least this long between two told states of one named timing
TIMING_NAMES_MAX = 256  # of one process
CHECKPOINTS_PROCESS_MAX = 10_000  # of one process; further ones are counted
MEDIA_BYTES_MAX = 64 * MIB  # of one image, table, … that is logged; artifacts may have any size
MEDIA_PIECE_BYTES = 512 * KIB  # of one fact; larger media are cut into so many
MEDIA_TABLE_ROWS_MAX = 10_000  # of a logged table; the number of all rows is kept with it
MEDIA_TEXT_CHARS_MAX = 16 * KIB  # of a caption, and of one cell of a table
ARTIFACT_COPY_BYTES_MAX = (
    4 * MIB
)  # a larger file is linked into the spool, not copied by the training process
ARTIFACT_FILES_MAX = 100_000  # of one artifact
ARTIFACT_FACT_FILES = 2_000  # of an artifact in one fact
ARTIFACT_NAME_CHARS_MAX = 128
ARTIFACT_GRACE_S = 600.0  # for how long a file may wait for its version before `hw gc`
DATA_HASH_BYTES_MAX = 64 * MIB  # a larger file is noted by its size and time
DATA_ENTRIES_MAX = 200_000  # of a folder of data that are looked at
DATA_S_MAX = 2.0  # for looking at it
SYNC_INTERVAL_S = 1.0  # the shipper syncs record streams this often

# -- agent
EXIT_RESERVE_BYTES = 256 * KIB  # allocated before the command starts, so that its exit always fits
PTY_COLUMNS = 80  # of a terminal that a program is given (`--pty`)
PTY_ROWS = 24
PTY_DRAIN_S = 2.0  # how long the end of a task waits for what its terminals still hold
SPOOL_BYTES_MAX = 20 * GIB  # per task; setting spool_bytes_max
BATCH_BYTES_MAX = 8 * MIB  # one post of the shipper
PART_BYTES_MAX = 4 * MIB  # one stream's share of a batch
PARTS_MAX = 512  # streams in one batch
STREAMS_MAX = 4096  # streams of one task
TAIL_INTERVAL_ACTIVE_S = 0.04
TAIL_INTERVAL_IDLE_S = 0.1
TAIL_INTERVAL_ARMED_S = 0.5  # while the kernel will tell of the next write
SEND_TIMEOUT_S = 30.0
POLL_WAIT_S = 10.0  # long poll for commands, which is also the heartbeat
BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 15.0
FLUSH_AT_END_S = 60.0  # an agent whose command has ended tries this long, then leaves the spool
SHIPPER_RESTART_FIRST_S = 0.2
SHIPPER_RESTART_MAX_S = 30.0
GRACE_S = 15.0  # between SIGTERM and SIGKILL; setting grace_s
PROCESSES_MAX = 1024  # ranks of one task, and of one job
WARM_IDLE_S = 60.0  # a warm launcher that is not asked for anything so long leaves
TASKS_MAX = 256  # of one job
# between SIGTERM and SIGKILL for children that outlive their rank; less if grace_s is
LEFTOVER_GRACE_S = 2.0
LEFTOVER_GIVE_UP_S = 10.0  # a process that survives SIGKILL so long hangs in the kernel
AGENT_LOG_BYTES_MAX = 1 * MIB  # of one process of the agent; then it is silent
# an agent in a shared folder shows so often that it lives, and looks whether its task was claimed
CLAIM_LOOK_S = 5.0
# a claim that an agent of another machine leaves alone for so long takes its task over
CLAIM_S = 15.0
# acknowledged output is given back to the disk in pieces of at least this size
FREE_STEP_BYTES = 64 * MIB
DROP_STEP_BYTES_MAX = 64 * MIB  # dropped at once when the spool is full
# output that may be the start of a known secret shape waits this long for the rest
SHAPE_WAIT_S = 2.0
PROVENANCE_S = 30.0  # collecting it; then it is given up
# a better way to the server that failed is tried again after this, then less often
WAY_AGAIN_FIRST_S = 5.0
WAY_AGAIN_MAX_S = 30.0
WAY_AGAIN_NEVER_MAX_S = 300.0  # one that has never worked: a firewall may keep each try waiting
CONNECT_S = 5.0  # a network address that does not answer for so long is given up for a while
SILENCE_S = 10.0  # a connection on which nothing comes through for so long is broken
TRAY_POLL_WAIT_S = 20.0  # long poll for commands where requests are files
# beyond the time that the server may wait; then the request is taken back and sent again
TRAY_ANSWER_S = 60.0
TRAY_SMALL_BYTES = 256 * KIB  # a smaller batch waits, so that more comes together in one file
TRAY_SEND_MAX_S = 5.0  # but not longer than this
TRAY_ANSWER_LOOK_FIRST_S = 0.1  # an agent looks for an answer after this, then less often
TRAY_ANSWER_LOOK_MAX_S = 2.0
SECRET_BYTES_MIN = 8  # shorter values are not masked: they would mask ordinary text

# -- usage (in the agent)
MONITORING_INTERVAL_S = 1.0  # between two samples of usage; setting monitoring_interval_s
USAGE_INTERVAL_S_MIN = 0.1  # a smaller monitoring interval is taken as this
USAGE_PROCESSES_MAX = 4096  # processes of one task that are watched
USAGE_LINES_MAX = 512  # of them told one by one in a sample; the ranks' sums hold all
USAGE_LINES_FOLDED_MAX = 128  # and in a sample of 10 s or a minute
USAGE_FILES_MAX = 256  # files of /proc that are kept open; more are opened each time
USAGE_PSS_RSS_BYTES_MAX = 16 * GIB  # of a larger process PSS is not read: it would take too long
GPU_TIMEOUT_S = 5.0  # a driver that does not answer for so long is given up for a while
GPU_TIMEOUT_FIRST_S = 15.0  # waking a driver that sleeps takes seconds
GPU_PAUSE_FIRST_S = 10.0  # then it is asked again, after twice as long each time
GPU_PAUSE_MAX_S = 600.0
GPU_ANSWER_BYTES_MAX = 1 * MIB
GPU_CARDS_MAX = 64
SINK_INTERVAL_S = 1.0  # between two looks at what is to be sent to a time-series database
SINK_BATCH_POINTS = 20_000  # of one request
SINK_BEHIND_POINTS_MAX = 1_000_000  # of one series that wait for it; older ones are passed over
SINK_BACKOFF_MAX_S = 60.0  # between two tries while it is away
PROMETHEUS_SERIES_MAX = 100_000  # in one answer of /metrics
LINE_BYTES_PER_LOOK = (
    4 * MIB
)  # of line protocol that the agent takes before it goes on with the rest
LINE_JOBS_MAX = 1_000  # jobs that line protocol over HTTP is being written to
EVENT_FILES_MAX = 256  # TensorBoard event files of one task that are read
EVENT_READ_BYTES = 4 * MIB  # of one event file at once; a larger record is passed over
EVENT_WALK_ENTRIES_MAX = 50_000  # of the working folder, when the task has ended
TENSORBOARD_BYTES_MAX = 256 * MIB  # of one event file with usage
GPU_HOLDERS_MAX = 256  # processes on one card

# -- wire and server
REQUEST_BYTES_MAX = 8 * MIB  # a JSON request of a logged-in caller (an environment may be large)
REQUEST_BYTES_ANONYMOUS_MAX = 64 * KIB
INGEST_BYTES_MAX = 16 * MIB
JSON_DEPTH_MAX = 64
HEADER_TIMEOUT_S = 10.0
BODY_TIMEOUT_S = 30.0
CONNECTIONS_TCP_MAX = 256
CONNECTIONS_UNIX_MAX = 2048
CONNECTIONS_AGENTS_MAX = 4096  # of agents on other machines, which have two each
HEADERS_MAX = 64
HEAD_BYTES_MAX = 64 * KIB  # request line and headers together
WRITE_TIMEOUT_S = 30.0  # a reader that takes nothing for this long is dropped
# an answer goes out in pieces, so that only a standing reader counts as one
WRITE_PIECE_BYTES = 256 * KIB
KEEP_ALIVE_TCP_S = 15.0  # a connection without a request
KEEP_ALIVE_UNIX_S = 120.0
QUERY_FIELDS_MAX = 64
READ_THREADS = 6  # short queries at the same time
# output, searches and metrics, apart, so that they do not keep the short ones waiting
SLOW_READ_THREADS = 4
READS_WAITING_MAX = 256  # further ones are answered 503
TOKENS_CACHED_MAX = 4096
TOKEN_CACHE_S = 5.0
WRONG_TOKENS_MAX = 20  # on loopback, per WRONG_TOKENS_S; then 429
WRONG_TOKENS_S = 60.0
LOGIN_CODES_MAX = 16
LOGIN_CODE_S = 300.0
SESSIONS_MAX = 64  # browsers logged in; the oldest is logged out
SESSION_S = 7 * 86_400.0
RUNTIME_KEPT_S = 7 * 86_400.0  # sockets of servers that are gone stay so long
SHUTDOWN_S = 5.0  # between SIGTERM and the server's end
SERVER_LOG_BYTES_MAX = 4 * MIB  # server.log, and as much again in server.log.1
INGEST_QUEUE_BYTES_MAX = 256 * MIB  # waiting for the writer; beyond it the server answers 503
FOLLOW_WAIT_S = 20.0
FOLLOW_BYTES_MAX = 4 * MIB
FOLLOW_HOLD_S = 0.2  # an unfinished line waits this long for its end
FOLLOW_METRICS_S = 0.25  # last values are told at most this often
FOLLOW_TAIL_LINES_MAX = 100_000
FOLLOW_EVENTS_MAX = 1_000  # in one answer
FOLLOW_RECORDS_MAX = 1_000  # likewise
WATCH_JOBS_MAX = 1_000  # open jobs in one answer of /api/watch
LINE_COUNT_FILES_MAX = 500  # long logs whose counts of lines are kept on disk
LINE_INDEX_STREAMS_MAX = 2_048  # streams whose lines are counted in memory, for the page
PAGE_LINES_MAX = 2_000  # of a log in one answer to the page
LIVE_CHANGES_MAX = 10_000  # jobs of which the server remembers that they changed lately
LIVE_INTERVAL_S = 0.1  # at least this long between two answers of /api/live to the same page
PAGE_ROWS_MAX = 200  # of the page's table in one answer
PAGE_GROUP_JOBS_MAX = 20_000  # that one answer with groups looks at: the newest
PAGE_GROUPS_MAX = 500  # in one such answer
PAGE_LAYOUTS_MAX = 500  # of a kind that a server keeps
PAGE_LAYOUT_BYTES_MAX = 65_536  # of one of them
PAGE_JOBS_MAX = 1_000  # whose metrics one chart shows
PAGE_NAMES_MAX = 200  # metrics in one answer with charts
PAGE_PIXELS_MAX = 4_000  # of a chart's width
PAGE_SERIES_MAX = 20_000  # lines in one answer with charts
PAGE_QUERY_CHARS_MAX = 2_000  # of the words in the page's search
PAGE_FILE_BYTES_MAX = 4 * MIB  # of one file of the page
# at least this long between two answers of one /api/watch to the same viewer
WATCH_INTERVAL_S = 0.5
LOG_READ_BYTES_MAX = 64 * MIB  # read for one answer; a view asks again from where it ended
LOG_RAW_BYTES_MAX = 16 * MIB  # of one stream in one answer
LOG_LINES_FOUND_MAX = 10_000  # lines that a search finds
# of output in one answer with lines, which take several times their bytes
LOG_LINES_BYTES_MAX = 8 * MIB
METRIC_POINTS_MAX = 50_000_000  # one answer
JOBS_LISTED_MAX = 10_000
READ_TIMEOUT_S = 30.0  # one query
SERVER_START_TIMEOUT_S = 20.0

# -- store
LOG_BYTES_MAX = 10 * GIB  # per stream; setting log_bytes_max
LOG_DIRECT_BYTES = 256 * KIB  # a chunk this large goes straight to its file
COMMIT_PARTS_MAX = 512  # parts in one group commit
COMMIT_BYTES_MAX = 64 * MIB
# between two commits of little data, so that many small posts share one; facts never wait
LINGER_S = 0.05
# a writer that has much to do rests this many times the CPU time of its last commit,
LINGER_REST = 4.0
LINGER_MAX_S = 0.2  # but not longer than this
LINGER_BYTES = 256 * KIB  # more than this does not wait either
HEARD_INTERVAL_S = 1.0  # a task's sign of life is written down at most this often
COMPACT_ROWS = 65_536  # points of one compacted block
ZOOM_FACTOR = 32  # points that become one min and one max on the next zoom level
BLOCKS_MERGE = 256  # small blocks of one schema that are merged into one
WRITE_QUEUE_MAX = 10_000  # control writes waiting for the writer
CHECKPOINT_BYTES = 16 * MIB  # of the write-ahead log; then it is moved into the database
CHECKPOINT_COMMITS = 1_000
WAL_BYTES_MAX = 1 * GIB  # beyond it (a long read holds it) data is refused until it shrinks
READERS_MAX = 16  # queries at once
EVENTS_MAX = 100_000  # of one job from its programs; further ones are only counted
# a larger database is not checked whole at every start, only with its snapshot
CHECK_BYTES_MAX = 256 * MIB
SNAPSHOT_INTERVAL_S = 86_400.0  # of a large database
SNAPSHOT_SMALL_INTERVAL_S = 3_600.0
SNAPSHOT_SMALL_BYTES = 64 * MIB
GREP_TIMEOUT_S = 10.0
GREP_PATTERN_CHARS_MAX = 1_000
MATCH_TIMEOUT_S = 5.0  # of a person's regular expression over all rows of a list
MATCH_TEXT_CHARS_MAX = 10_000  # of one row; a pattern may take long on a text without end
LOOP_LAG_TOLD_S = 1.0  # the event loop stood still for so long: logged, and told by hw doctor
LOOP_LAG_WINDOW_S = 60.0  # what hw server status calls recent
JOURNAL_PAUSE_S = 0.5  # changes of the catalog are written down together; so much may be missing
JOURNAL_BYTES_MAX = 64 * MIB  # then only the last line of each job is kept
CLOCK_STEP_S = 2.0  # the wall clock moved against the steady one by more: it was set
CLOCK_STEPS_KEPT = 10
STREAM_BYTES_MAX = 1 << 43  # 8 TiB; what says that it is longer is refused
DAMAGE_NOTICES_MAX = 20  # told until they are acknowledged; the newest are kept
ROW_REPAIR_PAUSE_S = 60.0  # after a look at all rows that found no damage
MATCH_BATCH = 4_096  # texts per question to the process that runs the pattern
LINE_BYTES_MAX = 64 * KIB  # of one line in a view; the stored bytes are whole
# of one process, whose place another tracker has taken since: the last ones are kept
TRACKERS_ENDED_MAX = 8
# progress trackers of one task; beyond it finished ones are forgotten, oldest first
TRACKERS_MAX = 8_192
TRACKERS_SHOWN_MAX = 1_000  # in one answer
RECORD_BYTES_MAX = 64 * KIB  # of the text of one log record, and of the rest of it
# log records of one job; beyond it the oldest go, and a gap says how many
RECORDS_JOB_MAX = 1_000_000
RECORDS_JOB_BYTES_MAX = 1 * GIB  # likewise
RECORDS_MAX = 5_000  # log records in one answer
USAGE_FULL_S = 3_600.0  # every sample of usage is kept this long, then those of 10 s
USAGE_MEDIUM_S = 86_400.0  # and those of 10 s this long, then those of a minute, which stay
USAGE_SAMPLES_MAX = 5_000  # in one answer
USAGE_BYTES_MAX = 64 * MIB  # of samples in one answer
# ended jobs of which a server keeps what a list shows of them, about 1 KiB each
JOBS_KEPT_MAX = 20_000
NODES_LISTED_MAX = 256  # of one job, in a row of a list
CURVE_POINTS_MAX = 1_000  # of usage in one answer that is asked for as a curve
CURVE_SAMPLES_MAX = 4_096  # read for such a curve
CURVE_TASKS_MAX = 64  # likewise, of one attempt
USAGE_LINES_MAX = 64  # ranks, nodes or cards in one chart of usage
CHECKPOINTS_MAX = 10_000  # of one job; further ones are events
TIMINGS_MAX = 10_000  # named timings of one task; further ones are events
METRIC_DEFINITIONS_MAX = 10_000  # of one job: own x-axes and goals, by name or pattern
SUMMARY_VALUES_MAX = 100_000  # that one job's programs give as their outcome
ARTIFACT_PIECE_BYTES = 8 * MIB  # of one file in one request
ARTIFACTS_LISTED_MAX = 10_000  # in one answer
MEDIA_LISTED_MAX = 10_000  # in one answer
MEDIA_JOB_BYTES_MAX = 4 * GIB  # of all images, tables, … of one job; further ones are counted
RETENTION_DAYS = 0  # setting retention_days; 0 keeps everything
PROVENANCE_DIFF_BYTES_MAX = 1 * MIB
GIT_FILES_MAX = 4_000  # tracked files that are looked at in place of asking git
PACKAGES_MAX = 5_000

# -- monitor
# of one home, waiting for a monitor; beyond it agents wait, and keep theirs in the spool
OUTBOX_BYTES_MAX = 20 * GIB
OUTBOX_LOOK_S = 0.1  # at least this long between two looks at what is to be sent to a monitor
# at their TLS handshake, an eighth of them from one address; further ones are closed
CONNECTIONS_ENTERING_MAX = 256
GUEST_JOBS_MAX = 10_000  # jobs of one other machine in one question for commands

# -- programs of schedulers and container engines
ENGINE_OUTPUT_BYTES_MAX = 64 * MIB  # that one call may print; the queue of a large cluster has 10
HOSTS_MAX = 100_000  # that a list such as node[1-20] may name

# -- trays
TRAY_LOOK_FIRST_S = 0.25  # between two looks of the server at a tray in which something has changed
TRAY_LOOK_MAX_S = 3.0  # and at one in which nothing does
# requests of one task that are answered at the same time; further ones wait
TRAY_TASK_FILES_MAX = 8
TRAY_READ_MAX = 4  # requests with data of one tray that are in memory at the same time
TRAY_HALF_S = 15.0  # a request that cannot be read for so long is not one that is only seen in part
TRAY_SWEEP_S = 600.0  # what nobody has taken away in this time is removed
TRAY_KNOWN_MAX = 10_000  # names that were answered, should a stale cache show them again

# -- relay on a login node
RELAY_HEAD_BYTES_MAX = 16 * MIB  # of one message, without its body
RELAY_BODY_BYTES_MAX = 64 * MIB
RELAY_BANNER_BYTES_MAX = 1 * MIB  # that a login shell may print before the relay speaks
RELAY_PIECE_BYTES = 1 * MIB  # code and outputs travel in pieces
RELAY_OUTPUT_BYTES_MAX = 32 * MIB  # that one command may print there
RELAY_ERROR_BYTES_MAX = 64 * KIB
RELAY_CALLS_MAX = 16  # questions that a relay works on at the same time
RELAY_CONNECT_S = 15.0  # for ssh to reach the login node
RELAY_READY_S = 60.0  # for the relay to be there; a first time has the program to carry
RELAY_WAIT_S = 10.0  # that a question waits for a connection which is being made
RELAY_ALIVE_S = 15  # between two signs of life of ssh; three that stay away end the connection
RELAY_SILENT_S = 60.0  # a relay that answers nothing for so long is given up
RELAY_IDLE_S = 600.0  # a relay that is not asked for anything so long leaves
RELAY_AGAIN_FIRST_S = 1.0  # a lost connection is made again after this, then less often
RELAY_AGAIN_MAX_S = 30.0
RELAY_AGAIN_WAIT_S = 2.0  # that the question waits for it; the others do not
OUTPUT_FILES_MAX = 10_000  # of one job that come back over ssh
OUTPUT_ROOM_BYTES = (
    1 * GIB
)  # that stay free here; outputs for which there is no more stay on the cluster, and are named

# -- jobs
ROLES_MAX = 32  # of one job
ROLE_NAME_CHARS_MAX = 24  # part of a task's name, and so of a folder's
SILENT_AFTER_S = 30.0  # an agent not heard of for this long is unknown
# an agent of another machine counts as dead after so long without a sign of life
SALVAGE_SILENT_S = 60.0
SALVAGE_ENDED_S = 15.0  # and after so long where the scheduler has seen all of it end
# the folder of a task that was taken over stays so long after the last byte: more may come
TAKEN_KEEP_S = 300.0
RETRIES_UNCOUNTED_MAX = 100  # of one cause that is not counted
RETRIES_MAX = 1_000  # that a job may ask for, counted or in all
AFTER_MAX = 1_000  # jobs that one job may wait for
MEMORY_WATCH_S = 0.5  # between two looks at the memory of a task that may have only so much
HOLD_S_MAX = 7 * 86_400.0  # the longest time that a failed task is kept; setting hold_max_s
# how long `hw submit ssh` holds a node unless --max-duration says otherwise
RESERVE_S = 4 * 3_600.0
RESERVE_MARGIN_S = 30.0
ARGV_BYTES_MAX = 1 * MIB
ENV_BYTES_MAX = 4 * MIB
ENV_KEPT_BYTES_MAX = 4096  # of one variable that was set for a job and is kept for its resubmission
DURATION_S_MAX = 366 * 86_400.0
CONTAINER_ASK_S = 5.0  # a question how containers are, which is asked again and again
CONTAINER_CALL_S = 15.0  # one call of docker or podman; a longer one counts as not answered
ARRAY_JOBS_MAX = 10_000  # of one array or sweep
PARAMETERS_MAX = 256  # of one job file
ROLES_MAX = 64  # of one job
NODES_MAX = 1_024  # of one job
FOLDERS_MAX = 64  # of one job
RETRIES_MAX = 1_000  # that a job file may ask for
# jobs that wait, of one home; those beyond it are looked at when others have started
JOBS_OPEN_MAX = 1_000_000
QUEUE_WINDOW_WIDE = 2_000  # of a cluster with a queue of its own, which gets all of them at once
STARTS_PORTION_MAX = 64  # starts that an engine gets with one call, where it takes many
STARTS_PORTIONS_MAX = 2  # such calls of one cluster at the same time
SBATCH_AT_ONCE = 3  # processes of sbatch of one cluster at the same time
SBATCH_RUN_MAX = 8  # batch jobs that follow each other without an answer in between
# waiting jobs of a cluster that one look at the queue considers first; more when none can start
QUEUE_WINDOW = 16

# -- code
# one file of a snapshot; a larger one is left out and named, unless code.allow has it
CODE_FILE_BYTES_MAX = 100 * MIB
CODE_FILES_MAX = 500_000  # of one snapshot
CODE_BYTES_MAX = 4 * GIB  # of one snapshot
CODE_WALKED_MAX = 2_000_000  # files that are looked at where there is no git
CODE_PATTERNS_MAX = 1_000  # of include, exclude or allow in the setting code
CODE_IGNORE_BYTES_MAX = 1 * MIB  # one .gitignore or .hwignore
CODE_GIT_S = 60.0  # one question to git
CODE_LOCK_S = 60.0  # waiting for others who use the code store
CODE_PACKS_MAX = 48  # files of the code store; more are made one
CODE_KEEP_S = 86_400.0  # a snapshot that no job needs stays this long after its last use

# -- notifications
NOTICE_BYTES_MAX = 64 * KIB  # of what is sent about one job
NOTICE_TEXT_CHARS_MAX = 500  # of one text in it
NOTICE_TIMEOUT_S = 15.0  # one try of a command or a webhook
NOTICE_TRIES_MAX = 6
NOTICE_BACKOFF_FIRST_S = 2.0  # before the second try; four times as long before each further one
NOTICE_BACKOFF_MAX_S = 600.0
NOTICE_THREADS = 4  # sent at the same time
NOTICE_RESULT_CHARS_MAX = 300  # of what a try said
NOTICES_WAITING_MAX = 10_000  # waiting to be sent; further ones are not sent, and say so
NOTICES_KEPT_MAX = 10_000  # the newest that are kept once they are sent
NOTIFY_STALL_S = 1_800.0  # setting notify.stall_s
NOTIFY_WAITED_S = 60.0  # setting notify.waited_s

# -- storage
STORAGE_THREADS = 8  # files of one transfer at the same time
STORAGE_CHUNK_BYTES = 8 * MIB  # a larger file is sent in parts
STORAGE_LISTED_MAX = 1_000_000  # objects of one transfer
STORAGE_RETRY_S = 60.0  # a request that fails is repeated for this long at most
FOLDER_QUIET_S = 5.0  # a file of a job's folder that was written within this time is sent later
FOLDER_TRIES = 6  # to send what is left at a job's end, without that anything got through
FOLDER_PAUSE_MAX_S = 30.0  # between two of them; the first pause is 1 s, and it doubles
FOLDER_STARTS_MAX = 5  # of the process that carries a task's folders, should it die
FOLDER_MOUNT_S = 30.0  # a mount tool must have mounted by then
FOLDER_MISSING_SHOWN = 5  # names of files that could not be sent, in a message
# a scheduler's time limit leaves so much for sending, where a job has folders to send
FOLDER_END_S = 1_800.0
# data that no open job has and nobody asked for within this time, `hw gc` removes
FOLDER_CACHE_S = 7 * 86_400.0
STORAGE_LOOK_S = 5.0  # a submission looks for this long whether a folder's source is there
STORAGE_URL_S = 3_600.0  # an address made by `hw storage url` works this long

# -- choosing and comparing jobs
FILTER_CHARS_MAX = 2_000  # of a condition of --where
FILTER_TERMS_MAX = 64  # comparisons in it
FILTER_DEPTH_MAX = 32  # brackets and `not` in each other
CONFIG_KEYS_MAX = 2_000  # of one job's config, flattened, in tables; further ones are counted
COMPARE_JOBS_MAX = 10_000  # in one table
IMPORTANCE_KEYS_MAX = 50  # config keys whose importance is told, the most important ones
IMPORTANCE_DRAWS = 300  # samples for the uncertainty of each
DIFF_JOBS_MAX = 16  # in one `hw diff`
DIFF_SIBLINGS_MAX = 1_000  # jobs of the experiment that say what a config key does
CODE_DIFF_BYTES_MAX = 16 * MIB  # of one code diff; the rest is cut off, and it says so
SQL_CHARS_MAX = 100_000  # of one query
SQL_TIMEOUT_S = 30.0  # a query ends here
SQL_MEMORY_BYTES_MAX = 2 * GIB  # that DuckDB may take for one
SQL_ROWS_MAX = 100_000  # of one answer; further ones are cut off, and it says so
SQL_CELL_CHARS_MAX = 65_536  # of one value in it
SQL_POINTS_MAX = 50_000_000  # of the table `metrics` in one query
SQL_USAGE_ROWS_MAX = 20_000_000  # of the table `usage`
SQL_LOG_BYTES_MAX = 512 * MIB  # of the table `logs`
EXPORT_POINTS_MAX = 1_000_000_000  # of one Parquet file
EXPORT_TIMEOUT_S = 1_800.0  # one table of `hw export`
MCP_LINE_BYTES_MAX = 4 * MIB  # of one message to `hw mcp`
MCP_TEXT_CHARS_MAX = 200_000  # of one answer of a tool
COMPARE_METRICS_MAX = 50  # in one table, unless they are named; the others are counted

# -- settings files
SETTINGS_BYTES_MAX = 256 * KIB  # one file
SETTINGS_DEPTH_MAX = 16
SETTINGS_ALIASES_MAX = 100
SETTINGS_VALUES_MAX = 10_000  # once aliases are followed: an alias bomb ends here
CLUSTERS_MAX = 100  # named in the settings, or asked about at once
CLUSTER_WORDS_MAX = 64  # in one list of a cluster's options

# -- views
DISPLAY_LINE_CHARS_MAX = 4096  # a longer line is cut when shown; its bytes are all stored
DISPLAY_CELL_CHARS_MAX = 60  # one cell of a table
DISPLAY_METRICS_MAX = 8  # metrics in a summary or a list; `hw metrics` shows all
# last lines of rank 0 in `hw q`; on a terminal, as many of them as one screen has room for
QUERY_TAIL_LINES = 100
QUERY_TAIL_LINES_MIN = 8  # of these on a terminal, however much else there is to say
VIEW_TIMEOUT_S = 60.0  # one request of a view, beyond the time that it asks the server to wait
VIEW_SLOW_S = 5.0  # a command that has waited this long for the server's answer says so
VIEW_ANSWER_BYTES_MAX = 4 * GIB  # one answer to a view; every point of a long job may be in it
VIEW_RETRY_MAX_S = 5.0  # longest pause between two tries to find a lost server
CONSOLE_LINES_MAX = 20_000  # lines that a live view keeps to scroll back; `hw logs` has all
CONSOLE_BURST_LINES_MAX = 4_000  # of one answer; what comes faster is counted, and `hw logs` has it
CONSOLE_PART_LINES = 1_000  # of a longer answer at a time: keys are answered in between
CONSOLE_FOLD_ENTRIES_MAX = 256  # how far back a line may join the same text of other ranks
CONSOLE_FRAME_S = 0.02  # at least this long between two redraws
CONSOLE_ASK_S = 0.01  # and between two questions to the server
# a server without news answers after this time; one that does not is said to be lost
CONSOLE_WAIT_S = 5.0
CONSOLE_LATE_S = 3.0  # a busy server may be this late with it
# whole curves are asked for again so soon after the opening and after an outage,
CONSOLE_CURVES_FIRST_S = 2.0
CONSOLE_CURVES_S = 60.0  # then less and less often, down to this
CONSOLE_JOBS_S = 1.0  # how often the list of all jobs is asked for
CONSOLE_ENDED_MAX = 500  # newest jobs whose ended ones the list shows when asked to
CONSOLE_END_LINES = 200  # last lines of the log that stay on the terminal at the end
BUNDLE_LOG_BYTES_MAX = 4 * MIB  # the end of one stream in `hw bundle`
BUNDLE_BYTES_MAX = 64 * MIB  # of all streams in it
BUNDLE_SERVER_LOG_BYTES_MAX = 256 * KIB  # of the server's log in it
DOCTOR_CHECK_S = 10.0  # the database check of `hw doctor` ends here

# -- stacks and hangs
STACKS_TIMEOUT_S = 0.8  # a process that has not written its stacks by then does not answer
STACKS_NATIVE_S = 4.0  # py-spy, beyond that
STACKS_WAIT_S = 3.0  # the server waits so long for the agents, and longer where files carry answers
STACKS_PROCESSES_MAX = 1_024  # of one task
STACK_SOURCES_MAX = 256  # lines of source that go with the stacks of one task
STACKS_KEPT_MAX = 32  # collections of one task that the server keeps
SLOW_LOOK_S = 30.0  # setting slow.look_s: between two looks at whether jobs that run are slow
SLOW_USAGE_S = 180.0  # of usage that slowness is told from
SLOW_USAGE_EARLIER_S = 3600.0  # and of the past that it is measured against
SLOW_POINTS = 512  # of a metric, for how fast a job steps
SLOW_SIBLINGS_MAX = 8  # like jobs before it that a job is measured against
SLOW_SIBLINGS_BACK = 20_000  # jobs among which those are looked for
SLOW_LOOKS = 100  # at where the ranks stand, to find one that the others wait for
SLOW_LOOK_PAUSE_S = 0.25  # between two of them
SLOW_RANKS_AGAIN_S = 600.0  # until the ranks of a job are looked at again
FORECAST_AFTER_S = 10.0  # a job that has waited for less needs no forecast
FORECAST_LOOK_S = 15.0  # between two looks at which jobs wait without one
FORECASTS_LOOK_MAX = 8  # made in one look
FORECASTS_KEPT_MAX = 2_000  # in one home
FORECASTS_LEARN_MIN = 5  # so many must have been put to the test before they correct later ones
HANG_AFTER_S = 30.0  # setting hang.after_s: a job that is silent for less is never called hung
HANG_INTERVALS = 10.0  # and never before so many times its usual interval have passed
HANG_PAUSES = 1.2  # nor so many times the longest pause after which it has gone on by itself
HANG_START_FACTOR = 2.0  # before it has made two steps or lines, the silence must be so much longer
HANG_DEVICE_FACTOR = 4.0  # and of a rank that waits for its GPU
HANG_SPIN_FACTOR = 10.0  # and of one that computes at one place while all others wait for it
HANG_SAMPLES = 3  # stacks that must be the same
HANG_SAMPLE_S = 1.0  # between two of them
HANG_CPU_SHARE_MAX = 0.05  # of a core: a loop that polls uses less
HANG_IO_BPS_MAX = 8 * KIB  # read and written: less is a loop that polls
HANG_FAULTS_MAX = 20.0  # pages read from disk in a second
HANG_LOOK_S = 1.0  # between two looks at who is silent
HANG_AGAIN_MAX_S = 60.0  # a silent job that moves is looked at again after this at most
HANG_GAPS_KEPT = 128  # pauses of one job that its usual interval is made of
HEALTH_KEPT_MAX = 64  # findings of one job while it ran
HANG_RESTARTS_MAX = 3  # of one job, by --on-hang restart

# -- diagnosis
ELASTIC_ERROR_CHARS_MAX = 20_000  # of a message, and of a stack, in torch elastic's error file
USUAL_STREAMS_MAX = 8  # of the last good attempt, read for lines that are usual
USUAL_STREAM_BYTES_MAX = 256 * 1024  # of each
SEEN_ATTEMPTS_MAX = 2_000  # of the newest, looked at for the same fingerprint
SEEN_JOBS_MAX = 3  # that are named
DIAGNOSIS_WAIT_S = 2.0  # the end of a failed attempt waits so long for what its logs say
DIAGNOSIS_BYTES_MAX = 64 * MIB  # read of all logs of one attempt
DIAGNOSIS_STREAM_BYTES_MIN = 64 * KIB  # of one stream, however many there are
DIAGNOSIS_STREAMS_MAX = 512  # the ranks that ended first are read
DIAGNOSIS_CHUNK_BYTES = 4 * MIB
