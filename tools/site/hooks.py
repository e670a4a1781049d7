"""Hooks of MkDocs: the files outside docs/ that pages link become a part of the site, and pages that the navigation does not
name are added to it."""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)]*)?\))")
SECTIONS = {"results": "Results", "decisions": "Decisions"}


def _outside(page, target):
    """The path in the repository of a link that leads out of docs/, or None. `page`: of the repository."""
    if "://" in target or target.startswith("mailto:"):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    return None if path.startswith("docs/") or path == "docs" or not (ROOT / path).exists() else path


def _place(path):
    """Where a file of the repository is in the site. Sources are shown as text; folders have no page."""
    if (ROOT / path).is_dir():
        return None
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.txt"


def on_config(config):
    docs = ROOT / "docs"
    for folder, title in SECTIONS.items():
        pages = sorted(p.relative_to(docs).as_posix() for p in (docs / folder).glob("*.md"))
        named = str(config.nav)
        config.nav.append({title: [p for p in pages if f"'{p}'" not in named]})
    config.nav.append({"Repository": [{"Contributing": "repository/CONTRIBUTING.md"}, {"The default model": "repository/models/README.md"}, {"Research": "repository/research/README.md"}]})
    config.nav.append({"C++ reference": "reference/html/files.html"})
    return config


def on_files(files, config):
    wanted = {"CONTRIBUTING.md", "models/README.md", "research/README.md"}
    for page in files.documentation_pages():
        text = (ROOT / "docs" / page.src_uri).read_text()
        wanted.update(filter(None, (_outside(f"docs/{page.src_uri}", m[2]) for m in LINK.finditer(text))))
    unread = {path for path in wanted if path.endswith(".md")}
    while unread:  # pages that these pages link
        page = unread.pop()
        linked = set(filter(None, (_outside(page, m[2]) for m in LINK.finditer((ROOT / page).read_text()))))
        unread |= {path for path in linked - wanted if path.endswith(".md")}
        wanted |= linked
    for path in sorted(wanted):
        if _place(path):
            files.append(File.generated(config, _place(path), content=(ROOT / path).read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    at = page.file.src_uri
    inside = at.removeprefix("repository/") if at.startswith("repository/") else f"docs/{at}"

    def link(match):
        target = match[2]
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(inside), target))
        if path.startswith("docs/") and (ROOT / path).is_dir():  # a folder of pages: its first one
            pages = sorted((ROOT / path).glob("*.md"))
            path = f"{path}/{pages[0].name}"
        to = path.removeprefix("docs/") if path.startswith("docs/") else _place(path) if (ROOT / path).exists() else target
        if to is None or not files.get_file_from_path(to):
            return match[0] if (ROOT / path).is_file() else f"{match[1]}#{match[3]}" if (ROOT / path).is_dir() else match[0]
        return f"{match[1]}{posixpath.relpath(to, posixpath.dirname(at) or '.')}{match[3]}"

    return LINK.sub(link, markdown)
