"""Public-domain prose from an archive of plain-text novels: cleaned, converted to ASCII, one text per book."""
import re
import tarfile
import unicodedata

FOLD = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2014": "--", "\u2013": "-", "\u2026": "...", "\ufeff": ""})


def clean(raw):
    text = raw.decode("utf-8", "replace").translate(FOLD).replace("\r\n", "\n")
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().replace("_", "")
    start, end = re.search(r"\*\*\* ?START[^\n]*\n", text), re.search(r"\*\*\* ?END", text)
    text = text[start.end() if start else 0: end.start() if end else len(text)]
    paragraphs = (" ".join(p.split()) for p in re.split(r"\n\s*\n", text))
    return "\n".join(p for p in paragraphs if p)


def books(archive):
    with tarfile.open(archive) as tar:
        members = sorted((m for m in tar.getmembers() if m.isfile() and m.name.endswith(".txt")), key=lambda m: m.name)
        for m in members:
            yield m.name, clean(tar.extractfile(m).read())
