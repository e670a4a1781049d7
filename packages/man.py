#!/usr/bin/env python3
"""Writes the manual pages of all commands, from docs/cli.md and docs/methods.md.

usage: packages/man.py FOLDER      writes palimpsest.1, palimpsest-run.1, ...
"""
import pathlib
import sys

import reference


def quoted(text: str) -> str:
    """Text for roff: backslashes, dashes of flags, and a dot or quote at a line's beginning."""
    text = text.replace('\\', '\\e').replace('-', '\\-')
    return '\n'.join('\\&' + line if line[:1] in (".", "'") else line for line in text.split('\n'))


def rows(rows: list[reference.Row]) -> list[str]:
    out = []
    for row in rows:
        names = ', '.join(f'\\fB{quoted(name)}\\fR' for name in row.names)
        value = f' \\fI{quoted(row.value)}\\fR' if row.value else ''
        out += ['.TP', names + value, quoted(row.text)]
    return out


def page(command: reference.Command, children: list[reference.Command]) -> str:
    name = command.name.replace(' ', '-')
    out = [f'.TH {quoted(name.upper())} 1 "" "palimpsest {reference.version()}" "User Commands"',
           '.SH NAME', f'{quoted(name)} \\- {quoted(command.description.rstrip("."))}',
           '.SH SYNOPSIS', f'\\fB{quoted(command.usage)}\\fR']
    for title, members in command.groups.items():
        heading = {'Commands': 'COMMANDS', 'Arguments': 'ARGUMENTS'}.get(title)
        if heading:
            out += [f'.SH {heading}']
        else:
            if '.SH OPTIONS' not in out:
                out += ['.SH OPTIONS']
            out += [f'.SS {quoted(title)}']
        out += rows(members)
    if command.words in (['run'], ['serve'], ['chat']):
        out += ['.SH METHODS', quoted('--method takes one of these names, and options: NAME:key=value,key=value.')]
        for method, text in reference.methods():
            out += ['.TP', f'\\fB{quoted(method)}\\fR', quoted(text)]
        out += ['.SS Keys of a method']
        for key, value, text in reference.method_keys():
            out += ['.TP', f'\\fB{quoted(key)}\\fR=\\fI{quoted(value)}\\fR', quoted(text)]
    for paragraph in command.footer:
        title, _, rest = paragraph.partition('\n')
        if title == 'Examples:':
            out += ['.SH EXAMPLES', '.nf', quoted(rest), '.fi']
        elif title.startswith('Exit codes:'):
            out += ['.SH EXIT STATUS', quoted(paragraph.removeprefix('Exit codes: '))]
        else:
            out += ['.PP' if '.SH NOTES' in out else '.SH NOTES', '.nf', quoted(paragraph), '.fi']
    if not command.words:
        out += ['.SH FILES', '.TP', '\\fI/usr/share/palimpsest/models\\fR', 'The default model.',
                '.TP', '\\fI/etc/palimpsest/serve.conf\\fR', 'Options of the service palimpsest.service.']
    others = [each.name.replace(' ', '-') for each in children] or ['palimpsest']
    out += ['.SH SEE ALSO', ',\n'.join(f'\\fB{quoted(each)}\\fR(1)' for each in others)]
    return '\n'.join(out) + '\n'


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    commands = reference.commands()
    for command in commands:
        children = [each for each in commands if each.words[:-1] == command.words and each.words]
        (folder / f'{command.name.replace(" ", "-")}.1').write_text(page(command, children))


main()
