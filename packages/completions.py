#!/usr/bin/env python3
"""Writes the completions of bash, zsh and fish, from docs/cli.md and docs/methods.md.

usage: packages/completions.py FOLDER      writes palimpsest.bash, _palimpsest, palimpsest.fish

Completed: commands, flags, and the values of --method with its keys, --policy, --mechanism, --cache-type and files.
"""
import pathlib
import sys

import reference

METHOD_FLAGS = ('--method', '--draft-method')
TYPES = ('f32', 'f16', 'bf16', 'q8_0')
MECHANISMS = ('in-place', 'shift', 'gather', 'block', 'append', 'merge')
CHOICES = {'--cache-type': TYPES, '--cache-type-k': TYPES, '-ctk': TYPES, '--cache-type-v': TYPES, '-ctv': TYPES,
           '--mechanism': MECHANISMS, '--positions': ('original', 'cache'),
           '--policy': tuple(row[0] for row in reference.table('Policies'))}


def flag_names(command: reference.Command) -> list[str]:
    return [name for row in command.flags() for name in row.names]


def quoted(text: str) -> str:  # in single quotes of a shell
    return text.replace("'", "'\\''")


def bash(commands: list[reference.Command]) -> str:
    cases = '\n'.join(f"    '{' '.join(each.words)}') words='{' '.join(sub(each, commands) + flag_names(each))}' ;;"
                      for each in commands)
    choices = '\n'.join(f"    {flag}) COMPREPLY=($(compgen -W '{' '.join(values)}' -- \"$cur\")); return ;;"
                        for flag, values in CHOICES.items())
    names = ' '.join(name for name, _ in reference.methods())
    keys = ' '.join(f'{key}=' for key, _, _ in reference.method_keys())
    subs = ' '.join(sorted({word for each in commands for word in each.words}))
    return f'''# bash completion for palimpsest: made by packages/completions.py
_palimpsest() {{
  local cur prev words='' command='' word line
  line=${{COMP_LINE:0:COMP_POINT}}
  cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case " {subs} " in *" $word "*) command="${{command:+$command }}$word" ;; *) break ;; esac
  done
  # NAME:key=value is one word for the program, but not for bash, which splits at : and =.
  local method=${{line##* }}
  case ${{line% *}} in
    *' --method' | *' --draft-method')
      case $method in
        *:*) COMPREPLY=($(compgen -W '{keys}' -- "${{method##*[:,]}}")); compopt -o nospace ;;
        *) COMPREPLY=($(compgen -W '{names}' -- "$method")) ;;
      esac
      return ;;
  esac
  case $prev in
{choices}
    -m | --model | -f | --file | --save | --restore | -md | --draft-model | --grammar-file) COMPREPLY=($(compgen -f -- "$cur")); compopt -o filenames; return ;;
  esac
  case $command in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  [ -n "${{COMPREPLY[*]}}" ] || {{ COMPREPLY=($(compgen -f -- "$cur")); compopt -o filenames; }}
}}
complete -F _palimpsest palimpsest
'''


def sub(command: reference.Command, commands: list[reference.Command]) -> list[str]:
    return [each.words[-1] for each in commands if each.words and each.words[:-1] == command.words]


def zsh(commands: list[reference.Command]) -> str:
    def plain(text: str) -> str:
        return quoted(text).replace('[', '\\[').replace(']', '\\]').replace(':', '\\:')

    def argument(row: reference.Row) -> str:
        if not row.value:
            return ''
        flags = set(row.names)
        if flags & set(METHOD_FLAGS):
            return ':method:_palimpsest_method'
        for flag in flags & set(CHOICES):
            return f":value:({' '.join(CHOICES[flag])})"
        return ':file:_files' if 'FILE' in row.value or 'DIR' in row.value else f':{plain(row.value)}: '

    def specs(command: reference.Command) -> str:
        out = []
        for row in command.flags():
            for name in row.names:
                out.append(f"      '*{name}[{plain(row.text)}]{argument(row)}'")
        return ' \\\n'.join(out)

    methods = '\n'.join(f"    '{name}:{quoted(text)}'" for name, text in reference.methods())
    keys = ' '.join(f"'{key}'" for key, _, _ in reference.method_keys())
    cases = '\n'.join(f"    '{' '.join(each.words)}') _arguments -s \\\n{specs(each)} \\\n      '*:file:_files' ;;"
                      for each in commands if not sub(each, commands))
    groups = '\n'.join(
        f"    '{' '.join(each.words)}') " +
        f"compadd -- {' '.join(sub(each, commands))} {' '.join(flag_names(each))} ;;"
        for each in commands if sub(each, commands))
    nested = ' | '.join(each.words[0] for each in commands if len(each.words) == 1 and sub(each, commands))
    return f'''#compdef palimpsest
# made by packages/completions.py
_palimpsest_method() {{
  local -a names=(
{methods}
  )
  if compset -P '*[:,]'; then compadd -S = -- {keys}; else _describe method names; fi
}}
_palimpsest() {{
  local command='' depth=1
  if (( CURRENT > 2 )); then command=$words[2]; depth=2; fi
  case $command in
    {nested}) if (( CURRENT > 3 )); then command="$command $words[3]"; depth=3; fi ;;
  esac
  words=("palimpsest" "${{(@)words[depth+1,-1]}}"); (( CURRENT -= depth - 1 ))
  case $command in
{groups}
{cases}
    *) _files ;;
  esac
}}
_palimpsest "$@"
'''


def fish(commands: list[reference.Command]) -> str:
    out = ['# made by packages/completions.py', 'complete -c palimpsest -f']
    for command in commands:
        words = command.words
        children = sub(command, commands)
        inside = ' and '.join(f'__fish_seen_subcommand_from {word}' for word in words).replace(' and ', '; and ')
        here = inside or '__fish_use_subcommand'
        if words and children:
            here = f'{inside}; and not __fish_seen_subcommand_from {" ".join(children)}'
        for child in commands:
            if child.words and child.words[:-1] == words:
                out.append(f"complete -c palimpsest -n '{here}' -a {child.words[-1]} -d '{quoted(child.description)}'")
        for row in command.flags():
            names = ' '.join(('-l ' + name[2:]) if name.startswith('--') else
                             ('-s ' + name[1:]) if len(name) == 2 else ('-o ' + name[1:]) for name in row.names)
            values = next((CHOICES[name] for name in row.names if name in CHOICES), None)
            if set(row.names) & set(METHOD_FLAGS):
                values = [name for name, _ in reference.methods()]
            argument = f" -x -a '{' '.join(values)}'" if values else ' -r -F' if 'FILE' in row.value else \
                ' -x' if row.value else ''
            out.append(f"complete -c palimpsest -n '{here}' {names}{argument} -d '{quoted(row.text)}'")
    return '\n'.join(out) + '\n'


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    commands = reference.commands()
    (folder / 'palimpsest.bash').write_text(bash(commands))
    (folder / '_palimpsest').write_text(zsh(commands))
    (folder / 'palimpsest.fish').write_text(fish(commands))


main()
