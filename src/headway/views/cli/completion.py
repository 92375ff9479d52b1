"""`hw completion bash|zsh|fish`: a script for the shell. Verbs and options are written into it; ids
are asked for.

`hw completion ids` and its like are what the scripts call: fast, silent, and never starting a
server.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from headway.model.errors import HeadwayError, UsageError
from headway.model.json_types import JsonObject
from headway.views.cli.commands import COMMANDS
from headway.views.cli.dispatch import Call, one_word
from headway.views.cli.options import BY_KEY, EVERYWHERE, OPTIONS, STATES, STREAMS, Command

_IDS_MAX: Final = 50  # of more, nobody chooses from a list
_NAMES_MAX: Final = 500

_BASH: Final = """# bash completion for hw: eval "$(hw completion bash)"
_hw() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" verb="" value="" more="" word
  for word in "${{COMP_WORDS[@]:1:$((COMP_CWORD-1))}}"; do
    if [ -n "$value" ]; then value=""; continue; fi
    case "$word" in
      {valued}) value=1 ;;
      -*) ;;
      *) if [ -z "$verb" ]; then verb="$word"; else more=1; fi ;;
    esac
  done
  COMPREPLY=()
  if [ -n "$value" ]; then
    case "$prev" in
      --state) COMPREPLY=($(compgen -W "{states}" -- "$cur")) ;;
      --stream) COMPREPLY=($(compgen -W "{streams}" -- "$cur")) ;;
      --after) COMPREPLY=($(compgen -W "$(hw completion ids 2>/dev/null)" -- "$cur")) ;;
      -e|--experiment) COMPREPLY=($(compgen -W "$(hw completion experiments 2>/dev/null)" -- "$cur")) ;;
      -m|--metric) COMPREPLY=($(compgen -W "$(hw completion metrics 2>/dev/null)" -- "$cur")) ;;
      -c|--cluster) COMPREPLY=($(compgen -W "$(hw completion clusters 2>/dev/null)" -- "$cur")) ;;
      --tag) COMPREPLY=($(compgen -W "$(hw completion tags 2>/dev/null)" -- "$cur")) ;;
      *) return ;;
    esac
    if [ ${{#COMPREPLY[@]}} -eq 0 ]; then compopt +o default 2>/dev/null; fi
    return 0
  fi
  case "$verb" in
    "") COMPREPLY=($(compgen -W "{verbs}" -- "$cur")) ;;
{bash_cases}
  esac
}}
complete -o nosort -o default -F _hw hw 2>/dev/null || complete -o default -F _hw hw
"""
_ZSH: Final = """# zsh completion for hw: eval "$(hw completion zsh)"
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -u; }
autoload -Uz bashcompinit && bashcompinit
"""
_FISH_HEAD: Final = "# fish completion for hw: hw completion fish | source\ncomplete -c hw -f\n"


def command(call: Call) -> int:
    shell = one_word(call, "shell: bash, zsh or fish")
    if shell in _LISTS:
        return _list(call, _LISTS[shell])
    scripts = {"bash": bash, "zsh": lambda: _ZSH + bash(), "fish": fish}
    if shell not in scripts:
        raise UsageError(f'no completion for "{shell[:40]}"', "there is one for bash, zsh and fish")
    script = scripts[shell]()
    if call.as_json:
        call.terminal.put_json({"shell": shell, "script": script})
    else:
        call.terminal.out.write(script)
    return 0


def _list(call: Call, names_of: Callable[[Call], list[str]]) -> int:
    try:
        names = names_of(call)
    except (HeadwayError, OSError):
        return 0  # a shell that completes must not be disturbed by words
    if call.as_json:
        call.terminal.put_json(names)
        return 0
    for name in names:
        call.terminal.put(call.terminal.out.safe(name))
    return 0


def _jobs(call: Call, limit: int, **more: str) -> list[JsonObject]:
    query = [("limit", limit), ("brief", "true"), *more.items()]
    found: list[JsonObject] = call.source(start=False).get("/api/jobs", query)
    return found


def _ids(call: Call) -> list[str]:
    """The newest first; an array is one id."""
    return [str(job["id"]) for job in _jobs(call, _IDS_MAX, fold="true")]


def _experiments(call: Call) -> list[str]:
    jobs = _jobs(call, _NAMES_MAX)
    return list(dict.fromkeys(str(job["experiment"]) for job in jobs if job.get("experiment")))


def _metrics(call: Call) -> list[str]:
    return list(
        dict.fromkeys(name for job in _jobs(call, _IDS_MAX) for name in job.get("metrics") or {})
    )


def _tags(call: Call) -> list[str]:
    return list(
        dict.fromkeys(str(tag) for job in _jobs(call, _NAMES_MAX) for tag in job.get("tags") or [])
    )


def _clusters(_: Call) -> list[str]:
    from headway.settings.layers import load

    return ["here", "auto", *(load(Path.cwd()).get("clusters") or {})]


def _settings(_: Call) -> list[str]:
    from headway.settings.schema import SETTINGS

    return list(SETTINGS)


_LISTS: Final[dict[str, Callable[[Call], list[str]]]] = {
    "ids": _ids,
    "experiments": _experiments,
    "metrics": _metrics,
    "tags": _tags,
    "clusters": _clusters,
    "settings": _settings,
}


def _option_names(command: Command) -> list[str]:
    return [name for key in (*command.options, *EVERYWHERE) for name in BY_KEY[key].names]


def takes_ids(command: Command) -> bool:
    """Its usage begins with an id, or with several."""
    return command.usage.split()[2:3] in (["ID"], ["ID…"], ["[ID]"], ["[ID…]"])


def bash() -> str:
    cases = []
    for name, command in COMMANDS.items():
        words = " ".join([*_option_names(command), *command.words])
        # behind its first word a command's own words: files, by `-o default`
        if command.takes_command:
            reply = '[ -n "$more" ] && return\n'
            reply += f'      COMPREPLY=($(compgen -W "{words}" -- "$cur"))\n'
            reply += '      [[ "$cur" == -* ]] && return\n'
            reply += '      compopt -o filenames 2>/dev/null\n      COMPREPLY=($(compgen -c -f -- "$cur"))'
        elif takes_ids(command):
            reply = (
                f'COMPREPLY=($(compgen -W "{words} $(hw completion ids 2>/dev/null)" -- "$cur"))'
            )
        elif name == "config":
            reply = f'COMPREPLY=($(compgen -W "{words} set $(hw completion settings)" -- "$cur"))'
        else:
            reply = f'COMPREPLY=($(compgen -W "{words}" -- "$cur"))'
        cases.append(f"    {name}) {reply} ;;")
    valued = "|".join(name for option in OPTIONS if option.value for name in option.names)
    return _BASH.format(
        verbs=" ".join(COMMANDS), valued=valued, states=" ".join(STATES), streams=" ".join(STREAMS),
        bash_cases="\n".join(cases),
    )  # fmt: skip


def fish() -> str:
    lines = [_FISH_HEAD]
    verbs = " ".join(COMMANDS)
    for name, command in COMMANDS.items():
        summary = _quoted(command.summary)
        lines.append(
            f"complete -c hw -n 'not __fish_seen_subcommand_from {verbs}' -a {name} -d '{summary}'\n"
        )
        seen = f"complete -c hw -n '__fish_seen_subcommand_from {name}'"
        if command.words:
            lines.append(f"{seen} -a '{' '.join(command.words)}'\n")
        if takes_ids(command):
            lines.append(f"{seen} -a '(hw completion ids 2>/dev/null)'\n")
        if command.takes_command:
            lines.append(f"{seen} -F -a '(__fish_complete_command)'\n")  # its words, and files
        for key in (*command.options, *EVERYWHERE):
            option = BY_KEY[key]
            flags = "".join(
                f" -l {n[2:]}" if n.startswith("--") else f" -s {n[1:]}" for n in option.names
            )
            lines.append(
                f"{seen}{flags}{' -r' if option.value else ''} -d '{_quoted(command.meaning(key))}'\n"
            )
    return "".join(lines)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
