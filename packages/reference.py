"""The command's reference as data, read from docs/cli.md and docs/methods.md.

Both are generated from the program, and tests check that they are current: so packages of another CPU's program need
not run it.
"""
import dataclasses
import pathlib
import re

DOCS = pathlib.Path(__file__).resolve().parent.parent / 'docs'
TEXT_COLUMN = 30  # where help texts begin (apps/palimpsest/help.cpp)


@dataclasses.dataclass
class Row:
    """A line of a group: `names` and `value` of a flag, or the name of a command or an argument."""
    names: list[str]
    value: str
    text: str


@dataclasses.dataclass
class Command:
    name: str  # 'palimpsest eval needle'
    description: str
    usage: str
    groups: dict[str, list[Row]]  # title -> rows, in order; 'Commands', 'Arguments', then groups of flags
    footer: list[str]  # paragraphs: notes and examples, unwrapped lines

    @property
    def words(self) -> list[str]:
        return self.name.split()[1:]

    def flags(self) -> list[Row]:
        return [row for title, rows in self.groups.items() if title not in ('Commands', 'Arguments') for row in rows]


def row_of(left: str, text: str) -> Row:
    names, value = [], ''
    for word in left.split():
        word = word.rstrip(',')
        if word.startswith('-'):
            names.append(word)
        elif not names and not value:
            names.append(word)
        else:
            value = f'{value} {word}'.strip()
    return Row(names, value, text)


def rows_of(lines: list[str]) -> list[Row]:
    rows = []
    for line in lines:
        if line.startswith(' ' * TEXT_COLUMN):
            rows[-1].text = f'{rows[-1].text} {line.strip()}'.strip()
        else:
            parts = re.split(r' {2,}', line.strip(), maxsplit=1)
            rows.append(row_of(parts[0], parts[1] if len(parts) > 1 else ''))
    return rows


def command_of(name: str, text: str) -> Command:
    blocks = [block.split('\n') for block in text.strip('\n').split('\n\n')]
    groups, footer = {}, []
    for block in blocks[2:]:
        is_group = not footer and len(block) > 1 and block[0][:1].isalpha() and re.match(r'  \S| {6}--', block[1])
        if is_group and 'Help' not in groups:
            groups[block[0]] = rows_of(block[1:])
        else:
            footer.append('\n'.join(block))
    return Command(name, blocks[0][0], blocks[1][0].removeprefix('Usage: '), groups, footer)


def commands() -> list[Command]:
    page = (DOCS / 'cli.md').read_text()
    found = re.findall(r'^## (palimpsest[^\n]*)\n\n```text\n(.*?)\n```$', page, re.MULTILINE | re.DOTALL)
    if not found:
        raise SystemExit('packages: docs/cli.md has no commands: its form has changed, adapt packages/reference.py')
    return [command_of(name, text) for name, text in found]


def table(title: str) -> list[list[str]]:
    """The rows of the table under a heading of docs/methods.md, without Markdown's quoting."""
    page = (DOCS / 'methods.md').read_text()
    lines = page.split(f'\n## {title}\n', 1)[1].split('\n## ', 1)[0].split('\n')
    rows = [re.split(r'(?<!\\)\|', line.strip())[1:-1] for line in lines if line.startswith('| `')]
    return [[cell.strip().strip('`').replace('\\|', '|') for cell in row] for row in rows]


def methods() -> list[tuple[str, str]]:
    """(name, description) of each preset."""
    return [(row[0], row[1]) for row in table('Presets')]


def method_keys() -> list[tuple[str, str, str]]:
    """(key, value, meaning) of each option of a method."""
    return [(row[0], row[1], row[2]) for row in table('Keys')]


def version() -> str:
    lists = (DOCS.parent / 'CMakeLists.txt').read_text()
    return re.search(r'project\(palimpsest VERSION ([0-9.]+)', lists).group(1)
