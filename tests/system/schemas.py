#!/usr/bin/env python3
"""Random texts of schemas' grammars, validated by Python's jsonschema: none may be wrong.

  make schemas-check SCHEMAS_ARGS="--suite DIR --bench DIR --tools FILE"

--suite: a checkout of https://github.com/json-schema-org/JSON-Schema-Test-Suite (draft 2020-12 is used)
--bench: a checkout of https://github.com/guidance-ai/jsonschemabench (a fixed draw of --schemas of its schemas)
--tools: a file of tests/system/schema_tools.py: tools of MCP servers
What is not given is skipped. --random N schemas are generated, and a tenth as many by hypothesis-jsonschema. Each schema is
refused by name, or enforced: --answers texts of its grammar validate, and a prefix of one can be completed to such a text.
--server N: so many requests to a server with the default model at temperature 2. Exit code 1: a text was wrong.
"""
import argparse
import collections
import json
import pathlib
import queue
import random
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent.parent / "tools" / "setup"))
import environment  # noqa: E402
import schema_judge  # noqa: E402
import schema_random  # noqa: E402
import schema_server  # noqa: E402
import schema_sources  # noqa: E402
from schema_judge import Judge, Undecided  # noqa: E402

REPO = HERE.parent.parent


class Samples:
    """The program schema_samples. A line without an answer within `seconds`, or a crash, is its answer."""

    def __init__(self, program, *flags, seconds=60):
        self.words, self.seconds, self.process = [str(program), *map(str, flags)], seconds, None

    def start(self):
        self.process = subprocess.Popen(self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, args=(self.process.stdout, self.lines), daemon=True).start()

    @staticmethod
    def read(pipe, lines):
        for line in pipe:
            lines.put(line)
        lines.put(None)

    def ask(self, schema, **fields):
        """`schema`: JSON text."""
        if self.process is None:
            self.start()
        rest = json.dumps({"id": 0, **fields})[1:]
        line, slow = None, False
        try:
            self.process.stdin.write('{"schema": ' + schema + ", " + rest + "\n")
            self.process.stdin.flush()
            line = self.lines.get(timeout=self.seconds)
        except queue.Empty:
            slow = True
        except BrokenPipeError:
            pass
        if line is not None:
            return json.loads(line)
        self.end()
        return {"crash": f"no answer in {self.seconds} s" if slow else "the program ended"}

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def keyword_of(message):
    """"PATH: reason": the path's last name is the keyword; without one, the reason."""
    path, _, reason = message.partition(": ")
    return path.rpartition(".")[2] or reason[:60]


class Tally:
    def __init__(self):
        self.kinds, self.refused, self.dropped = collections.Counter(), collections.Counter(), collections.Counter()
        self.answers = self.undecided = self.cut = self.repeated = self.valid = self.valid_taken = 0
        self.compile_ms, self.wrong, self.lines = [], [], []

    def report(self, name, strict):
        total = sum(self.kinds.values())
        times = sorted(self.compile_ms) or [0.0]
        out = {"part": name, "strict": strict, "schemas": total, **self.kinds,
               "enforced %": round(100 * self.kinds["enforced"] / max(1, total), 1), "answers": self.answers,
               "undecided": self.undecided, "not finished": self.cut, "names repeated": self.repeated,
               "valid instances allowed": f"{self.valid_taken} of {self.valid}",
               "compile ms": {"p50": round(times[len(times) // 2], 2), "p99": round(times[len(times) * 99 // 100], 2),
                              "max": round(times[-1], 1)},
               "refused by": dict(self.refused.most_common(40)), "dropped": dict(self.dropped.most_common(40))}
        print(json.dumps(out, ensure_ascii=False), flush=True)
        return out


def completion_fault(case, sample, samples, strict, judge, seed):
    """A text that is cut off anywhere is the beginning of a valid one: None, or why not."""
    rng = random.Random(seed)
    texts = [text for text in sample.get("answers", []) if len(text) > 1]
    if not texts:
        return None
    text = rng.choice(texts)
    prefix = text[:rng.randrange(1, len(text))]
    found = samples.ask(case.schema, strict=strict, prefix=prefix, seed=seed)
    if found.get("cut"):
        return None  # too long to be completed by chance
    if not found.get("answers"):
        return f"cut off, and cannot be completed: {json.dumps(found)[:300]}", prefix
    try:
        fault = judge.fault(found["answers"][0])
    except Undecided:
        return None
    return fault and (f"completed from {prefix!r}: {fault}", found["answers"][0])


def judge_case(case, sample, resources, tally, lenient, completed):
    """One case into the tally. Lenient: what the schema says may be dropped, but the text is JSON."""
    record = {"id": case.id, **{key: sample[key] for key in ("compile_ms", "rules_ms", "grammar_bytes", "dropped")
                                if key in sample}}
    tally.lines.append(record)
    if "compile_ms" in sample:
        tally.compile_ms.append(sample["compile_ms"] + sample.get("rules_ms", 0))
    for each in sample.get("dropped", []):
        tally.dropped[keyword_of(each)] += 1
    faults = []
    if "refused" in sample:
        record.update(kind="refused", refused=sample["refused"])
        tally.refused[keyword_of(sample["refused"])] += 1
        tally.kinds["refused"] += 1
        if lenient:
            tally.wrong.append((case.id, "refused though lenient: " + sample["refused"], "", case.schema))
        return
    if "crash" in sample:
        faults.append((sample["crash"], ""))
    faults += [("no character is allowed here", text) for text in sample.get("stuck", [])]
    faults += [("limit of the matcher: " + text, "") for text in sample.get("failed", [])]
    enforced = not sample.get("dropped")
    judge = Judge(case.schema if enforced else "{}", resources)
    for text in sample.get("answers", []):
        tally.answers += 1
        try:
            fault = judge.fault(text)
            tally.repeated += fault is None and Judge.repeats_names(text)
        except Undecided as reason:
            tally.undecided += 1
            record["undecided"] = str(reason)
            continue
        if fault is not None:
            faults.append((fault, text))
    for text, taken in zip(case.valid + case.invalid, sample.get("accepted", [])):
        if text in case.invalid and taken and enforced:
            faults.append(("an invalid instance of the suite", text))
    found = completed(judge)
    if found is not None:
        faults.append(found)
    tally.valid += len(case.valid)
    tally.valid_taken += sum(sample.get("accepted", [])[:len(case.valid)])
    tally.cut += len(sample.get("cut", []))
    tally.wrong += [(case.id, *fault, case.schema) for fault in faults]
    kind = "wrong" if faults else "not finished" if not sample.get("answers") else "enforced" if enforced else "dropped"
    tally.kinds[kind] += 1
    record.update(kind=kind, faults=faults[:5])


def run(name, cases, samples, arguments, strict, resources=()):
    tally = Tally()
    for i, case in enumerate(cases):
        sample = samples.ask(case.schema, strict=strict, n=arguments.answers, seed=arguments.seed * 1000 + i,
                             texts=case.valid + case.invalid)
        try:
            judge_case(case, sample, resources, tally, not strict,
                       lambda judge: completion_fault(case, sample, samples, strict, judge, i))
        except Exception as trouble:
            raise RuntimeError(f"{name} {case.id}: {case.schema[:1000]}") from trouble
    out = tally.report(name, strict)
    first = {wrong[0]: wrong for wrong in reversed(tally.wrong)}  # of each schema
    for wrong in list(first.values())[:arguments.show]:
        print("WRONG", json.dumps(wrong, ensure_ascii=False)[:1500])
    if arguments.out:
        path = pathlib.Path(arguments.out) / f"{name}-{'strict' if strict else 'lenient'}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in [out, *tally.lines, *tally.wrong]))
    return len(tally.wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", help="checkout of JSON-Schema-Test-Suite")
    parser.add_argument("--bench", help="checkout of jsonschemabench")
    parser.add_argument("--tools", help="tools of MCP servers, from schema_tools.py")
    parser.add_argument("--random", type=int, default=500, help="random schemas (default: 500)")
    parser.add_argument("--schemas", type=int, default=500, help="schemas of --bench (default: 500)")
    parser.add_argument("--answers", type=int, default=20, help="texts per schema (default: 20)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=20, help="wrong texts to print per part (default: 20)")
    parser.add_argument("--out", help="folder for one file per part: a line per schema")
    parser.add_argument("--mode", choices=["strict", "lenient", "both"], default="both")
    parser.add_argument("--server", type=int, default=0, help="requests to a server (default: 0)")
    parser.add_argument("--program", default=REPO / "build" / "palimpsest")
    parser.add_argument("--samples", default=REPO / "build" / "schema_samples")
    parser.add_argument("--model", default=REPO / "models" / "palimpsest-stories.gguf")
    arguments = parser.parse_args()
    environment.enter("schemas", schema_judge.PACKAGES, "20 MB, half a minute")
    parts = []
    if arguments.suite:
        parts.append(("suite", schema_sources.suite(arguments.suite),
                      schema_judge.remotes(pathlib.Path(arguments.suite) / "remotes")))
    if arguments.bench:
        parts.append(("bench", schema_sources.bench(arguments.bench, arguments.schemas), ()))
    if arguments.tools:
        parts.append(("tools", schema_sources.tools(arguments.tools), ()))
    for name in ("suite", "bench", "tools"):
        if not getattr(arguments, name):
            print(f"skipped: {name} (--{name} is not given)")
    made = schema_random.schemas(arguments.random, arguments.seed)
    parts.append(("random", [schema_sources.Case(f"random {i}", text) for i, text in enumerate(made)], ()))
    odd = schema_random.hypothesis_schemas(arguments.random // 10, arguments.seed) if arguments.random >= 10 else []
    parts.append(("hypothesis", [schema_sources.Case(f"hypothesis {i}", text) for i, text in enumerate(odd)], ()))
    samples = Samples(arguments.samples)
    wrong = 0
    for name, cases, resources in parts:
        for strict in {"strict": [True], "lenient": [False], "both": [True, False]}[arguments.mode]:
            wrong += run(name, cases, samples, arguments, strict, resources)
    if arguments.server:
        found = schema_server.run(arguments.program, arguments.model, samples, arguments.server, arguments.seed)
        for each in found[:arguments.show]:
            print("WRONG", json.dumps(each, ensure_ascii=False)[:1500])
        wrong += len(found)
    samples.end()
    print(f"wrong: {wrong}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
