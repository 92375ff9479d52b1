"""The verbs of `hw`: names, options and help. The work of each is in the file of the same name.

Read by `dispatch`, `help` and `completion`; kept apart from the work, so that `hw --help` imports
none of it.
"""

from typing import Final

from headway.settings import job_fields
from headway.views.cli.options import Command

RUN, LOOK, CHANGE, HOUSE = "Run", "Look", "Change", "House"
GROUPS: Final = (RUN, LOOK, CHANGE, HOUSE)
_JOB: Final = (
    *(key for key, _ in job_fields.options()),
    "env", "tensorboard_dir", "monitor", "after", "answer_as", "autolog", "telegraf",
)  # fmt: skip
_FILE: Final = ("sets", "smoke", "array", "dry_run")
_SELECT: Final = (
    "monitor",
    "state",
    "cluster",
    "experiment",
    "since_s",
    "older_than_s",
    "match",
    "where",
)
_CHOSEN: Final = {"cluster": "jobs of this cluster", "experiment": "jobs of this experiment"}

_TABLE: Final = (
    Command(
        "run", RUN, "run a command here, show its output, exit as it does", "hw run [options] COMMAND… | JOB.yaml",
        (*_JOB, *_FILE, "snapshot", "tensorboard", "plain"), takes_command=True,
        details=(
            "The command is passed on untouched: from its first word on, everything belongs to it.\n"
            "In a terminal: a live view with the keys in its last line; q leaves it running, Ctrl-C asks.\n"
            "With --plain: the program's own lines and nothing else, as without hw.\n"
            "Elsewhere, one process: its stdout and stderr as they are; several: each line has its rank in front,\n"
            "and Ctrl-C interrupts the job and waits, a second one terminates it. Closing the terminal leaves it.\n"
            "Exits as the job does: its exit code, or 128+N for signal N; 126 or 127 if it cannot be started.\n"
            "125 means that hw itself failed.\n"
            "With --json the job's output goes to stderr, and the job object to stdout at the end."
        ),
        examples=(
            ("hw run python train.py --lr 0.1", "one process"),
            ("hw run -n 4 -e digits python train.py", "four, in the experiment digits"),
            ("hw run -- ./-odd-name --json", "`--` where a command starts with a dash"),
        ),
    ),
    Command(
        "submit", RUN, "put a command in the queue and return", "hw submit [options] COMMAND… | JOB.yaml | ssh",
        (*_JOB, *_FILE, "snapshot", "tensorboard", "wait"), takes_command=True,
        details=(
            "Prints the job's id and how to follow, abort and resubmit it. With --wait: like hw run.\n"
            "A sole word that ends in .yaml and exists is a job file; options stand above what it says.\n"
            "Without any word: the section `job` of the project's headway.yaml.\n"
            "The sole word `ssh` holds a node for a shell: hw ssh ID enters it, hw release ID frees it."
        ),
        examples=(
            ("hw -c lab -n 4 submit --max-duration 2h ssh", "four GPUs and a shell, for two hours"),
            ("hw submit --set lr=0.01 job.yaml", "a job file, with another parameter"),
            ("hw submit --dry-run job.yaml", "what the engine would get"),
            ("hw submit --array 100 python train.py --seed '{{ index }}'", "a hundred jobs as one"),
            ("hw -n 4 submit python train.py", "options before or after the verb"),
            ("hw submit --max-duration 3.5h --tag baseline python train.py", ""),
        ),
    ),
    Command(
        "init", RUN, "take a snapshot of the code ahead of time, and say what is in it", "hw init", ("cluster",),
        details=(
            "What git tracks or does not ignore, with your changes; elsewhere what .gitignore does not name.\n"
            ".hwignore leaves out more. Secrets, large files and links that leave the tree are left out, and named.\n"
            "Only content that is new is stored. hw submit --snapshot does the same by itself, and so do clusters on\n"
            "other machines. One snapshot serves every cluster; -c only says how to go on."
        ),
        examples=(("hw init", "in the folder of your code"), ("hw submit --snapshot python train.py", "pin it")),
    ),
    Command(
        "simulate", RUN, "try a job in a container here, before it goes to a cluster", "hw simulate [options] JOB.yaml",
        (*_JOB, "sets", "smoke", "role"), takes_command=True,
        details=(
            "The same job file, in a container of Docker or Podman on this machine: -c NAME chooses the cluster.\n"
            "GPUs, memory and time are left out, and variables of a scheduler are empty; both are said.\n"
            "Without a container engine or an image: on this machine, in a clean environment.\n"
            "All tasks of roles and nodes run together, with one process each, or -n N; --role NAME runs one role.\n"
            "Exits as the job does."
        ),
        examples=(("hw simulate job.yaml", ""), ("hw simulate --role server --smoke job.yaml", "one role, small")),
    ),
    Command(
        "query", LOOK, "all about one job: state, processes, exception, metrics, last lines", "hw q [ID…]",
        ("assets", "tail", "monitor"), alias="q",
        details=(
            "A job is named by its id or any unique ending of it (digits-7f3c2, 7f3c2, c2), by its name (of several the\n"
            "newest), or by last; last^ is the one before. Without any: the last job.\n"
            "On a terminal the page is about one screen: --tail N shows more of the log; a pipe gets 100 lines of it."
        ),
        examples=(("hw q 7f3c2", ""), ("hw q 7f3c2 --json", "for scripts"), ("hw q 7f3c2 --assets", "fetch the logs")),
    ),
    Command(
        "ls", LOOK, "the jobs, newest first", "hw ls [options]", (*_SELECT, "tags", "array", "sort", "columns", "limit"),
        says={
            **_CHOSEN, "array": "the jobs of the array with this id", "tags": "jobs with this tag; may be repeated",
            "sort": "by this column, metric or config key; with - the largest first",
        },
        details=(
            "What is equal for all jobs is said once, above the table. An array of jobs is one line; --array ID lists\n"
            "its jobs. `differs` is what sets jobs of one name apart: config, parameters, arguments.\n"
            "More columns on request: command, cpu, memory, gpu, gpu_memory, speed, and any metric or config key.\n"
            "With --json: every job.\n"
            "--where compares config keys, metrics (their last values), state, tag, name, age and others; see\n"
            "docs/guides/compare.md."
        ),
        examples=(
            ("hw ls --state running,waiting", ""),
            ("hw ls -e digits --since 7d --match 'lr=0.1'", ""),
            ("hw ls --array 4nv0j --sort -val/acc", "the best first"),
            ("hw ls --columns id,lr,loss,memory,speed", ""),
        ),
    ),
    Command(
        "logs", LOOK, "what a job wrote", "hw logs [ID] [options]",
        ("rank", "task", "stream", "level", "attempt", "tail", "bytes", "follow", "grep", "html", "monitor"),
        details=(
            "All ranks, merged by time, with the rank in front of each line.\n"
            "When one stream is selected and stdout is not a terminal: the raw bytes, as they were written.\n"
            "In a terminal, control characters are shown as marks.\n"
            "The id of an array: its jobs one after the other, or with -f as they write; --tail counts for each.\n"
            "--stream log: what went through Python's logging, also what the program did not print."
        ),
        examples=(
            ("hw logs -f 7f3c2", "follow it live; also an array"),
            ("hw logs 7f3c2 --rank 2 --stream stderr --tail 50", ""),
            ("hw logs 7f3c2 --rank 0 --stream stdout > out.txt", "the bytes as they were written"),
            ("hw logs 7f3c2 --grep 'loss|nan'", "searched by the server"),
            ("hw logs 7f3c2 --stream log --level WARNING", "records of logging"),
        ),
    ),
    Command(
        "watch", LOOK, "a live view of one job, or of all open ones", "hw watch [ID…]", ("monitor",),
        details=(
            "One id: state, progress, metrics, usage and the log of all ranks, until the job ends or you press q.\n"
            "None, several, or an array: one line per job, like top; enter opens one.\n"
            "Leaving has no effect on jobs. Without a terminal: plain lines, or the list once.\n"
            "With --json: the jobs once, as hw ls or hw q tell them."
        ),
        examples=(("hw watch 7f3c2", "one job"), ("hw watch", "all that have not ended")),
    ),
    Command(
        "metrics", LOOK, "what a job logged", "hw metrics [ID…] [options]",
        ("metrics", "rank", "points", "joined", "apart", "csv", "monitor"),
        details=(
            "The table joins the attempts of a job: steps that were done again replace the lost ones. --json has every\n"
            "attempt by itself, unless --joined is given."
        ),
        examples=(("hw metrics 7f3c2", "a table"), ("hw metrics 7f3c2 -m loss --points 500 --json", "for a chart")),
    ),
    Command(
        "compare", LOOK, "many jobs side by side: what differs, and what came of it",
        "hw compare ID… | -e EXPERIMENT | SELECTION [options]",
        (*_SELECT, "metrics", "sort", "group", "final", "min", "max", "limit", "importance", "csv", "md", "html"),
        says={**_CHOSEN, "metrics": "these metrics; may be repeated", "limit": "the first N rows"},
        details=(
            "Config keys that differ are columns, those that are equal are said once. ↑ and ↓ stand where the highest\n"
            "or lowest value of each job is shown (its name says which is better; --min and --max say otherwise), and *\n"
            "is before the best of all; other metrics show their last value. Best first, unless --sort says otherwise.\n"
            "--group lr: mean ± standard deviation over the jobs of each lr; --group '!seed': over seeds alone."
        ),
        examples=(
            ("hw compare -e digits", "all jobs of an experiment"),
            ("hw compare -e digits --where 'lr<0.1' -m val/acc", ""),
            ("hw compare -e digits --group '!seed' -m val/acc", "mean ± spread over seeds"),
            ("hw compare -e digits --importance -m val/acc", "which config keys mattered"),
            ("hw compare 7f3c2 a0317 --csv > table.csv", ""),
        ),
    ),
    Command(
        "diff", LOOK, "what differs between jobs, and what most likely explains their outcomes", "hw diff ID ID… [options]",
        ("metrics", "min", "max", "code", "tool", "monitor"), says={"metrics": "the metric that is the outcome"},
        details=(
            "Outcome first, then differences by how likely they explain it: config keys by what they explain among the\n"
            "jobs of the same experiment, then code, data, hardware, packages, arguments, environment, node.\n"
            "--code: the code they ran, uncommitted changes included, as one diff in your pager; --tool meld shows both."
        ),
        examples=(
            ("hw diff 7f3c2 a0317", ""), ("hw diff 7f3c2 a0317 -m val/acc", "by this outcome"),
            ("hw diff 7f3c2 a0317 --code", "the code"), ("hw diff 7f3c2 a0317 --tool meld", ""),
        ),
    ),
    Command(
        "plot", LOOK, "metrics as curves, in the terminal or as a file",
        "hw plot ID… | -e EXPERIMENT | SELECTION [-m METRIC]…",
        (*_SELECT, "metrics", "x", "log", "smooth", "group", "rank", "all_ranks", "apart", "follow", "output"),
        says={
            **_CHOSEN, "metrics": "these metrics; may be repeated", "output": "FILE.png, FILE.svg or FILE.html",
            "group": "mean and spread over the jobs of each value of these keys; !seed: over seeds",
            "follow": "draw again every second, until the jobs have ended",
        },
        details=(
            "Of each column of pixels the lowest and the highest point are drawn: a spike of one sample is always seen.\n"
            "--smooth draws the mean over the raw line. The attempts of a job are one line, in which steps that were done\n"
            "again replace the lost ones; --apart shows each. Without -x: the axis that define_metric gave, else the step."
        ),
        examples=(
            ("hw plot 7f3c2 -m loss", ""), ("hw plot -f 7f3c2 -m loss --smooth 0.9", "live"),
            ("hw plot -e digits -m val/acc --group '!seed'", "bands over seeds"),
            ("hw plot 7f3c2 a0317 -m loss -x time --log y -o loss.svg", "as a file"),
        ),
    ),
    Command(
        "sql", LOOK, "questions in SQL over everything that is recorded", 'hw sql [SELECTION] "SELECT …"',
        (*_SELECT, "csv", "md"), says=_CHOSEN,
        details=(
            "Tables: jobs, attempts, config (job key value number), metrics (a row a point: job attempt rank name step\n"
            "time value redone), usage, events, logs, findings. A selection makes them smaller, and the query faster.\n"
            "DuckDB answers, in a process of its own: it only reads, sees no files, and ends after half a minute."
        ),
        examples=(
            ("hw sql \"select state, count(*) from jobs group by state\"", ""),
            ("hw sql -e digits \"select job, max(value) from metrics where name = 'val/acc' group by job\"", ""),
            ("hw sql \"describe metrics\" --json", "for scripts"),
        ),
    ),
    Command(
        "export", LOOK, "tables as Parquet files, for pandas, polars, DuckDB", "hw export [ID… | SELECTION] [-o FOLDER]",
        (*_SELECT, "output", "tables", "force"),
        says={**_CHOSEN, "output": "the folder to write into; default: ./export"},
        details="One file for each table of hw sql: jobs.parquet, metrics.parquet and so on.",
        examples=(
            ("hw export -e digits -o digits", ""), ("hw export 7f3c2 --table metrics", "one table"),
        ),
    ),
    Command(
        "tensorboard", LOOK, "TensorBoard over jobs, live, also over jobs that wrote no event files",
        "hw tensorboard ID… | -e EXPERIMENT | SELECTION",
        (*_SELECT, "status", "run_ids", "port", "linger_s"), says=_CHOSEN,
        details=(
            "The real TensorBoard, on this machine alone; its curves have about 2,000 points, extremes kept.\n"
            "It ends with Ctrl-C. hw run --tensorboard and hw submit --tensorboard start one for the new job."
        ),
        examples=(
            ("hw tensorboard -e digits", ""), ("hw tensorboard -e digits --status running,succeeded,failed", ""),
            ("hw tensorboard --run_ids 7f3c2,a0317", "as the ids of other systems are given"),
        ),
    ),
    Command(
        "reproduce", RUN, "run a job again from its own code, and say whether the same came out",
        "hw reproduce ID [--tolerance X] [-o FOLDER]", ("metrics", "tolerance", "output"),
        says={
            "metrics": "compare these metrics only; may be repeated",
            "output": "the folder for its code; default: ./<id>-again",
        },
        details=(
            "The code comes from the job's snapshot, or from its commit with its uncommitted changes; what lies beside it\n"
            "in no commit is linked. Then packages, environment, hardware and data are compared with the record, and\n"
            "every metric step by step. Exits 0 where it was reproduced, 1 where not."
        ),
        examples=(("hw reproduce 7f3c2", ""), ("hw reproduce 7f3c2 --tolerance 0 -m loss", "to the last bit")),
    ),
    Command(
        "mcp", HOUSE, "jobs as tools for AI assistants (Model Context Protocol, on stdin and stdout)", "hw mcp [--operate]",
        ("operate", "monitor"),
        details=(
            "Tools: jobs, job, why, logs, metrics, compare, importance, diff; with --operate also abort and resubmit.\n"
            "An assistant starts it: its settings name the command `hw` with the argument `mcp`."
        ),
        examples=(("hw mcp", "read-only"), ("hw mcp --operate", "may stop jobs and run them again")),
    ),
    Command(
        "best", LOOK, "the best job of an experiment by a metric", "hw best -m METRIC [ID… | -e EXPERIMENT | SELECTION]",
        (*_SELECT, "metrics", "final", "min", "max"),
        says={**_CHOSEN, "metrics": "the metric that decides", "final": "by last values instead of best ones"},
        details=(
            "Names of losses and errors want the least, those of accuracies and the like the most; it says which.\n"
            "--min or --max where the name does not tell, or tells wrong. With --json: the job, with `metric`."
        ),
        examples=(
            ("hw best -e digits -m val/acc", ""), ("hw best -e digits -m latency --min", ""),
            ("hw best -e digits -m val/acc --where 'state=succeeded' --json", "for scripts"),
        ),
    ),
    Command(
        "usage", LOOK, "what a job used of CPU, memory, disks and GPUs", "hw usage [ID] [options]",
        ("rank", "csv", "html", "monitor"),
        details=(
            "A line for each node, rank and GPU, with its course over the job's life. 100 % of CPU is one core.\n"
            "The page of --html shows each process, the checkpoints and the process tree; it needs no network.\n"
            "--csv: gpu,metric,value with means and maxima of GPUs, nodes (CPU) and ranks. --json: the samples."
        ),
        examples=(
            ("hw usage 7f3c2", "a table"),
            ("hw usage 7f3c2 --html usage.html", "a page for a browser"),
            ("hw usage 7f3c2 --csv > usage.csv", ""),
        ),
    ),
    Command(
        "page", LOOK, "see the jobs in a browser", "hw page [ID] | hw page export ID… [-o FILE]",
        ("role", "output"), says={"role": "read, operate (default) or admin"},
        details=(
            "Prints a link that logs a browser in once, and opens it where there is a browser. With an ID: that job.\n"
            "The login lasts a week. --role read: a page that can look, but not act.\n"
            "export writes one job with its charts and the end of its log, or a comparison of several, as one HTML\n"
            "file that needs no server."
        ),
        examples=(
            ("hw page", "all jobs"), ("hw page 7f3c2", "one job"),
            ("hw page export 7f3c2 -o run.html", "a file to send to a colleague"),
            ("hw page export 7f3c2 e2fc7 ab12f", "a comparison as a file"),
        ),
    ),
    Command(
        "timings", LOOK, "how long the named parts of a program took", "hw timings [ID] [options]",
        ("rank", "csv", "monitor"),
        details="What hw.timed measured: for each name and process the count, the mean and its deviation.",
        examples=(("hw timings 7f3c2", "a table"), ("hw timings 7f3c2 --json", "for scripts")),
    ),
    Command(
        "why", LOOK, "why a job waits, or what its attempts ended of", "hw why [ID] | --logs FILE…",
        ("logs", "exit_code", "signal", "ledger", "experiment", "monitor"),
        details=(
            "A job that runs: whether it hangs and who waits for whom, or what makes it slow; since when it is silent.\n"
            "--ledger: where its time went, or that of an experiment, and the request that would have been enough.\n"
            "A waiting job: the reason in words, who is ahead, what is free, and what would start sooner.\n"
            "One that has ended: the cause of each attempt, with evidence and the next step.\n"
            "With --logs: the cause in log files, folders or - (stdin) of a job that Headway did not run."
        ),
        examples=(
            ("hw why 7f3c2", ""),
            ("hw why 7f3c2 --ledger", "waiting, start-up, hung, lost to retries, …"),
            ("hw why --logs slurm-1234.out", "of any job; no server is asked"),
            ("hw why --logs rank*.err --exit-code 137", "several ranks together"),
            ("hw why 7f3c2 --json", "for scripts"),
        ),
    ),
    Command(
        "stacks", LOOK, "where every rank of a running job stands now", "hw stacks [ID]",
        ("rank", "native", "watch", "last", "monitor"),
        details=(
            "All ranks are asked at once. Equal stacks are shown once, those that stand elsewhere first: the\n"
            "majority waits, and the odd one is where to look. No process is stopped or traced for it, and nothing has\n"
            "to be installed: Python writes its own stacks, even when a thread is stuck in C.\n"
            "--native adds the frames of C code, where py-spy is installed and the kernel lets us.\n"
            "A rank that does not answer is told with what the kernel says of it: stopped, or waiting for a disk."
        ),
        examples=(
            ("hw stacks 7f3c2", "who waits for whom"),
            ("hw stacks 7f3c2 --rank 3", "all threads and helper processes of one rank"),
            ("hw stacks 7f3c2 --last", "what was kept, of a job that has ended, too"),
        ),
    ),
    Command(
        "code", LOOK, "the code that a job ran from, as files", "hw code ID [FOLDER]", ("force",),
        details="For jobs that ran from a snapshot. FOLDER is made; default: ./<id>. Existing files are left alone.",
        examples=(("hw code 7f3c2", "into a new folder"), ("hw code 7f3c2 ../old", "")),
    ),
    Command(
        "abort", CHANGE, "stop jobs: SIGTERM, and SIGKILL after a grace time", "hw abort ID… | SELECTION",
        (*_SELECT, "yes", "dry_run"), says=_CHOSEN,
        details="Jobs chosen by a selection are listed, and you are asked first; --yes for scripts.",
        examples=(("hw abort 7f3c2 a0317", ""), ("hw abort -e digits --state waiting", "asks first")),
    ),
    Command(
        "resubmit", CHANGE, "run jobs again, with changes if you like",
        "hw resubmit ID… [options] [-- COMMAND…] | SELECTION",
        (*_JOB, *(name for name in _SELECT if name not in _JOB), "snapshot", "failed", "yes", "dry_run"),
        details=(
            "The new job is submitted first; only then is the old one stopped, if it still runs.\n"
            "The new one names its parent. It runs in the old folder, or from the old snapshot, or (--snapshot) from\n"
            "a new one; with your environment of now, and the variables that were set for the old job.\n"
            "Without ids, -e and -c choose jobs, as --state and --match do; you are asked first, --yes for scripts."
        ),
        examples=(
            ("hw resubmit 7f3c2 -n 8", ""),
            ("hw resubmit 7f3c2 -- python train.py --lr 0.01", "another command"),
            ("hw resubmit 7f3c2 -c lab --snapshot", "elsewhere, with the code of now"),
            ("hw resubmit -e digits --state failed", "all of them; asks first"),
        ),
    ),
    Command(
        "release", CHANGE, "free jobs that --hold keeps after they failed, or nodes of hw submit ssh",
        "hw release ID… | SELECTION", (*_SELECT, "yes", "dry_run"), says=_CHOSEN,
        details="A failed job ends as it failed: its exit code stays.",
        examples=(("hw release 7f3c2", ""),),
    ),
    Command(
        "shell", LOOK, "a shell beside a job: its folder, its environment", "hw shell [ID] [--rank N]", ("rank",),
        details=(
            "For a job that runs, or that --hold keeps after it failed. Leaving the shell changes nothing.\n"
            "With --json: the command that opens it."
        ),
        examples=(("hw shell 7f3c2", ""), ("hw shell 7f3c2 --rank 3", "as rank 3 sees it")),
    ),
    Command(
        "ssh", LOOK, "a shell on a job's node, by the engine's own way", "hw ssh [ID] [--task NAME] [--print]",
        ("task", "rank", "print_only"),
        details=(
            "Slurm: srun --overlap, over ssh where the cluster has a host; containers: exec; here: like hw shell.\n"
            "Prints the command and runs it in this terminal. To hold a node for that: hw submit ssh."
        ),
        examples=(
            ("hw ssh 7f3c2", "the first task"), ("hw ssh 7f3c2 --task worker-1", ""),
            ("hw ssh 7f3c2 --print", "for another terminal or an editor"),
        ),
    ),
    Command(
        "bundle", LOOK, "all about a job in one file, for somebody who helps", "hw bundle [ID] [-o FILE]", ("output",),
        details=(
            "Logs (the last of each), causes, events, config, environment, versions and the end of the server's log.\n"
            "Secrets are masked; look into it before you send it: tar -tzf FILE."
        ),
        examples=(("hw bundle 7f3c2", "writes 7f3c2.tar.gz here"),),
    ),
    Command(
        "delete", CHANGE, "forget ended jobs", "hw delete ID… | SELECTION", (*_SELECT, "yes", "dry_run"),
        says=_CHOSEN,
        details="Jobs chosen by a selection are listed, and you are asked first; --yes for scripts.",
        examples=(("hw delete 7f3c2", ""), ("hw delete --state failed --older-than 30d", "asks first")),
    ),
    Command(
        "tag", CHANGE, "give a job tags", "hw tag ID TAG… [--remove]", ("remove", "monitor"),
        details="Tags are shown by hw ls and hw q, and chosen by --tag and --where. Several ids: a1,b2.",
        examples=(("hw tag 7f3c2 baseline paper", ""), ("hw tag --remove 7f3c2 paper", "")),
    ),
    Command(
        "star", CHANGE, "mark jobs worth coming back to", "hw star ID… [--remove]", ("remove", "monitor"),
        examples=(("hw star 7f3c2", ""), ("hw ls --where star=true", "those only")),
    ),
    Command(
        "bug", CHANGE, "mark jobs whose results are not to be trusted", "hw bug ID… [--remove]",
        ("remove", "monitor"),
        examples=(("hw bug 7f3c2", ""), ("hw ls --where bug=false", "all others")),
    ),
    Command(
        "describe", CHANGE, "say in words what a job is about", "hw describe ID TEXT… [--remove]",
        ("remove", "monitor"),
        examples=(("hw describe 7f3c2 first run with warm-up", ""), ("hw describe --remove 7f3c2", "")),
    ),
    Command(
        "rename", CHANGE, "another name for a job; its id stays", "hw rename ID NAME", ("monitor",),
        examples=(("hw rename 7f3c2 warmup", "then: hw q warmup"),),
    ),
    Command(
        "storage", HOUSE, "files in S3, Azure Blob or a folder",
        "hw storage ls|rm|url PLACE, upload FILE… PLACE, download PLACE [FOLDER]",
        ("account", "expires_s", "yes", "dry_run"), words=("ls", "upload", "download", "rm", "url"),
        details=(
            "A place is az://container/path, s3://bucket/path, or a path. Accounts stand in the settings.\n"
            "A transfer that was cut off goes on when it is repeated. rm of several objects asks first."
        ),
        examples=(
            ("hw storage ls s3://bucket/data", ""),
            ("hw storage upload data az://work/data/", "a folder; again, and only what is new goes"),
            ("hw storage download az://work/out ./out", ""),
        ),
    ),
    Command(
        "server", HOUSE, "the server of this home; it starts by itself when needed", "hw server start|stop|status|logs",
        ("tail", "follow"), words=("start", "stop", "status", "logs"),
        says={"tail": "the last lines of its log only", "follow": "go on as it writes more"},
        details="Jobs do not notice when the server stops: what they write waits, and is there when it starts again.",
        examples=(("hw server status", ""), ("hw server logs -f", "its own log")),
    ),
    Command(
        "monitor", HOUSE, "one server for the jobs of several machines",
        "hw monitor --address :PORT | join HOST:PORT | leave HOST:PORT | status | stop",
        ("address", "hosts", "foreground", "new_certificate", "pin"), words=("join", "leave", "status", "stop"),
        details=(
            "hw monitor --address :10200   listen there, with TLS; prints the addresses, the pin and what to type\n"
            "hw monitor join HOST:PORT     on another machine: check the pin, ask for a token, keep both\n"
            "hw monitor leave HOST:PORT    forget them\n"
            "hw monitor status             where this home listens, and which monitors it sends jobs to\n"
            "hw monitor stop               listen no more\n"
            "A token is read from the terminal, from stdin or from HEADWAY_TOKEN, never from the command line."
        ),
        examples=(
            ("hw monitor --address :10200", "serve other machines"),
            ("hw token create --role ingest --name node7", "a token for one of them"),
            ("hw monitor join head:10200", "there, once"),
            ("hw --monitor head:10200 run python train.py", "runs where you type it, is shown at both"),
            ("hw --monitor head:10200 ls", "look from anywhere; needs a token of role read"),
        ),
    ),
    Command(
        "trust", HOUSE, "project files of other owners that are obeyed", "hw trust [PATH | remove PATH]", (),
        details=(
            "A headway.yaml says where jobs run and what they are given. One that belongs to somebody else, or that\n"
            "others can write, is not read, unless you say here that you trust it; as git's safe.directory.\n"
            "Your own files and root's need no trust. A folder stands for the headway.yaml in it."
        ),
        examples=(("hw trust", "what is trusted"), ("hw trust /data/team/headway.yaml", "")),
    ),
    Command(
        "import", CHANGE, "bring in runs that W&B, MLflow or TensorBoard kept, or a CSV", "hw import [options] PATH…",
        ("from_tracker", "experiment", "tags"),
        says={
            "experiment": "the experiment of all of them; default: the project or experiment that they had",
            "tags": "a tag for all of them; may be repeated",
        },
        details=(
            "W&B: offline folders (wandb/offline-run-…) and .wandb files. MLflow: mlruns/ and SQLite databases.\n"
            "TensorBoard: folders with event files, scalars only. CSV: columns step and time, the others are metrics.\n"
            "Says what was skipped. Done again, it adds what is new and doubles nothing. No pickle is ever loaded."
        ),
        examples=(
            ("hw import wandb/", "all offline runs below it"),
            ("hw import mlruns/ -e old", "into the experiment old"),
            ("hw import runs/2024", "a TensorBoard log folder"),
        ),
    ),
    Command(
        "sync", CHANGE, "bring in what jobs recorded where no server was reached", "hw sync FOLDER…", (),
        details=(
            "A script that is started by plain python records into HEADWAY_HOME/spool, with or without a server. This\n"
            "sends such folders to the server here, also from another machine. May be done twice, and in pieces."
        ),
        examples=(("hw sync /mnt/usb/spool", "all jobs in it"),),
    ),
    Command(
        "artifacts", LOOK, "files of jobs by name and version: list, get, put, remove",
        "hw artifacts [ls [NAME|ID]] | get NAME[:VERSION] | put PATH | rm NAME:VERSION…",
        ("output", "name", "type", "tags"), words=("ls", "get", "put", "rm"),
        says={
            "output": "the folder to write to; default NAME-VERSION",
            "name": "what to call it; default: the name of the file or folder",
            "tags": "an alias of this version beside latest, such as best; may be repeated",
        },
        details=(
            "In Python: hw.artifact(path, name=…). The same content is kept once; each change under a name is a\n"
            "version: v0, v1, …, and latest. Lists say which jobs made and used each of them."
        ),
        examples=(
            ("hw artifacts ls 7f3c2", "what this job made and used"),
            ("hw artifacts get model:best -o models", ""),
            ("hw artifacts put data/train.csv --name train --type data", ""),
            ("hw artifacts rm model:v0", "then hw gc frees the space"),
        ),
    ),
    Command(
        "media", LOOK, "images, audio, tables and texts that a job logged", "hw media ID [-m NAME] [-o FOLDER]",
        ("metrics", "output"),
        says={"output": "write them as files into this folder", "metrics": "only those of this name; may be repeated"},
        details="In Python: hw.log({'samples': hw.Image(array)}, step=i).",
        examples=(("hw media 7f3c2 -o media", "as files, with a list of them in media.json"),),
    ),
    Command(
        "token", HOUSE, "tokens for other machines and people",
        "hw token create --name NAME [--role ROLE] | ls | revoke ID",
        ("name", "role"), words=("create", "ls", "revoke"),
        says={"name": "whose it is: a machine or a person", "role": "ingest (default), read, operate or admin"},
        details=(
            "ingest: a machine sends its own jobs; all its tokens have its name. read: look at all jobs.\n"
            "operate: also stop them. admin: everything. A token is shown once; only its hash is kept."
        ),
        examples=(("hw token create --name node7", "role ingest"), ("hw token revoke 3f0c9a1b2c3d4e5f", "at once")),
    ),
    Command(
        "clusters", HOUSE, "the clusters: reachable, free, queued; set the default", "hw clusters [use|check NAME]",
        ("verbose",), words=("use", "check"),
        details=(
            "Clusters stand under `clusters:` in headway.yaml; `here`, this machine, is always there.\n"
            "use: jobs go there unless -c says otherwise. check: a tiny job there, end to end."
        ),
        examples=(
            ("hw clusters -v", "each node"), ("hw clusters use box", "remember the default"),
            ("hw clusters check box", "submit, run, read back"), ("hw -c auto submit python train.py", "the emptiest"),
        ),
    ),
    Command(
        "config", HOUSE, "every setting, its value and where it came from",
        "hw config [NAME | set NAME VALUE | unset NAME]",
        ("job_schema",),
        details="Built-in < user file < project headway.yaml < private file < environment < command line.",
        examples=(
            ("hw config", ""),
            ("hw config max_running", "one value, for scripts"),
            ("hw config set default_cluster box", "for every project"),
            ("hw config --job-schema > job.schema.json", "for editors"),
        ),
    ),
    Command(
        "notify", HOUSE, "who is told when a job ends, fails, stalls or starts", "hw notify [test]", words=("test",),
        details=(
            "Shows the ways that are set (a command, a web address, the desktop) and what was told last.\n"
            "test: reads the settings anew, sends a notification by each way, and says what happened."
        ),
        examples=(("hw notify", ""), ("hw notify test", "exit code 1 when one of them fails")),
    ),
    Command(
        "doctor", HOUSE, "check this machine and home, and say what to type", "hw doctor [--secrets | --acknowledge]",
        ("secrets", "acknowledge"),
        details=(
            "Looks at Python, clock, home, modes, space, inodes, quota, settings, database, server, spools and agents.\n"
            "--secrets: the variables of this shell, by name, with whether a job's output would be masked by them.\n"
            "--acknowledge: of damage that every command tells of until somebody has seen it."
        ),
        examples=(("hw doctor", ""), ("hw doctor --secrets", "what would be masked")),
    ),
    Command(
        "gc", HOUSE, "remove deleted jobs, and old ones if asked", "hw gc [--older-than TIME]",
        ("older_than_s", "dry_run", "yes"),
        says={"older_than_s": "also ended jobs that were submitted before this time, such as 90d"},
        details=(
            "Also code snapshots and fetched folders that no job needs any more, here and in the folders of the\n"
            "clusters that are configured."
        ),
        examples=(("hw gc --older-than 90d --dry-run", "what it would free"),),
    ),
    Command(
        "completion", HOUSE, "completion for your shell", "hw completion bash|zsh|fish", words=("bash", "zsh", "fish"),
        examples=(('eval "$(hw completion bash)"', "in ~/.bashrc"), ("hw completion fish | source", "in config.fish")),
    ),
)  # fmt: skip

COMMANDS: Final[dict[str, Command]] = {
    name: command for command in _TABLE for name in (command.name, command.alias) if name
}
