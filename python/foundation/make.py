"""Builds the dependencies of the wheel in the cache folder, once, and prints the folder: ggml and libllama (shared, with
CPU variants chosen at run time), llama.cpp's chat library, Highway, fmt, spdlog, nlohmann/json, httplib, CLI11.

    python3 python/foundation/make.py

A wheel must run with old C libraries, so nothing of the forky root is used: the sources are those inside the source
packages of sources.list, and the compiler is the machine's. 10 to 20 minutes on two cores; a run that was interrupted
continues. The folder's name contains a checksum of this folder, of tools/setup/llama-common and of the compiler's version.
"""
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
COMMON = HERE.parents[1] / "tools" / "setup" / "llama-common"

# pip asks a package's build backend for its name before it keeps the download. numpy's backend would first search for
# a Fortran compiler and a BLAS; this one, in its place, only answers.
STAND_IN = '''
import pathlib, re
def get_requires_for_build_wheel(settings=None): return []
def prepare_metadata_for_build_wheel(folder, settings=None):
    text = pathlib.Path("pyproject.toml").read_text()
    name, version = (re.search(f'^{key} = "(.*)"', text, re.M).group(1) for key in ("name", "version"))
    info = pathlib.Path(folder) / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return info.name
'''


def say(text):
    print(f"palimpsest: {text}", file=sys.stderr, flush=True)


def run(*words, **options):
    subprocess.run(list(map(str, words)), check=True, stdout=sys.stderr, **options)


def sources():
    lines = (line.split("#")[0].split() for line in (HERE / "sources.list").read_text().splitlines())
    return [line for line in lines if line]


def download(name, version, checksum, to):
    """The source package, verified by pip."""
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(scratch)
        (work / "requirements").write_text(f"{name}=={version} --hash=sha256:{checksum}\n")
        environment, options = dict(os.environ), []
        if name == "numpy":
            (work / "mesonpy.py").write_text(STAND_IN)
            environment["PYTHONPATH"] = scratch
            options = ["--no-build-isolation"]
        run(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--ignore-requires-python", "--no-binary", name, *options, "--dest", work, "--requirement",
            work / "requirements", env=environment)
        shutil.move(work / f"{name}-{version}.tar.gz", to)


def unpack(archive, folder, to):
    """The part of the package below `folder`."""
    with tarfile.open(archive) as package:
        root = package.getnames()[0].split("/")[0]
        for member in package.getmembers():
            inside = member.name.removeprefix(f"{root}/{folder}/")
            if inside == member.name or not (member.isfile() or member.isdir()):
                continue
            member.name = inside
            package.extract(member, to)


def build(source, folder, prefix, *options):
    launcher = shutil.which("ccache")
    cache = [f"-DCMAKE_{language}_COMPILER_LAUNCHER={launcher}" for language in ("C", "CXX")] if launcher else []
    run("cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_INSTALL_LIBDIR=lib",
        "-DCMAKE_POSITION_INDEPENDENT_CODE=ON", f"-DCMAKE_INSTALL_PREFIX={prefix}", f"-DCMAKE_PREFIX_PATH={prefix}",
        *cache, *options)
    run("cmake", "--build", folder)
    run("cmake", "--install", folder)


def off(*names):
    return [f"-D{name}=OFF" for name in names]


def make(part, prefix):
    for name, version, checksum, folder in sources():
        archive, unpacked = part / f"{name}.tar.gz", part / name
        if not archive.exists():
            say(f"downloading the sources of {name} {version} from PyPI")
            download(name, version, checksum, archive)
        if not unpacked.exists():
            shutil.rmtree(part / "unpacking", ignore_errors=True)
            unpack(archive, folder, part / "unpacking")
            (part / "unpacking").rename(unpacked)
    build(HERE, part / "build-small", prefix, f"-DSOURCES={part}")
    build(part / "numpy", part / "build-highway", prefix,
          *off("HWY_ENABLE_TESTS", "HWY_ENABLE_EXAMPLES", "HWY_ENABLE_CONTRIB", "BUILD_SHARED_LIBS"))
    say("building ggml and libllama (10 to 20 minutes on two cores)")
    build(part / "xllamacpp", part / "build-llama", prefix, "-DBUILD_SHARED_LIBS=ON", "-DGGML_BACKEND_DL=ON",
          "-DGGML_CPU_ALL_VARIANTS=ON", "-DCMAKE_INSTALL_RPATH=$ORIGIN",
          *off("GGML_NATIVE", "GGML_CCACHE", "LLAMA_BUILD_COMMON", "LLAMA_BUILD_TOOLS", "LLAMA_BUILD_EXAMPLES",
               "LLAMA_BUILD_TESTS", "LLAMA_BUILD_SERVER", "LLAMA_BUILD_APP"))
    build(COMMON, part / "build-common", prefix, f"-DLLAMA_SOURCE={part / 'xllamacpp'}")


def main():
    compiler = subprocess.run([os.environ.get("CXX", "c++"), "--version"], check=True, capture_output=True).stdout
    recipe = hashlib.sha256(compiler.split(b" ", 1)[1])  # without the program's name, which CMake spells otherwise
    for path in sorted([*HERE.glob("*"), *COMMON.glob("*")]):
        if path.is_file():
            recipe.update(path.read_bytes())
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "palimpsest"
    cache.mkdir(parents=True, exist_ok=True)
    prefix = cache / f"foundation-{recipe.hexdigest()[:10]}"
    part = prefix.with_suffix(".part")
    with open(prefix.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (prefix / "done").exists():
            say(f"building the wheel's dependencies in {prefix} (once)")
            part.mkdir(exist_ok=True)
            make(part, prefix)
            (prefix / "done").touch()
            shutil.rmtree(part)
    print(prefix)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"palimpsest: {error.cmd[0]} failed ({error.returncode}); see its output above")
