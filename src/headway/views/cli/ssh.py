"""`hw ssh ID [--task NAME] [--print]`: the engine's own way to a shell on a job's node, printed and
run.

Slurm: `srun --overlap`, over ssh from a laptop; containers: `exec`; on this machine: a shell in the
job's folder.
"""

import os

from headway.views.cli import references, shell
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt


def command(call: Call) -> int:
    source = call.source()
    ref = references.one(call, source)
    job, argv = shell.way_in(source, ref, call.get("rank"), call.get("task"))
    if call.as_json:
        call.terminal.put_json({"argv": argv})
        return 0
    if call.get("print_only"):
        call.terminal.put(call.terminal.out.safe(fmt.shell_words(argv)))
        return 0
    call.terminal.say(f"hw: {call.terminal.err.safe(fmt.shell_words(argv))}")
    if job.get("reserved"):
        call.terminal.say(
            f"hw: leaving the shell keeps the node; to free it: hw release {fmt.suffix(job['id'])}"
        )
    source.close()
    os.execvp(argv[0], argv)  # noqa: S606  (the engine's own command, in place of this one)
    return 0
