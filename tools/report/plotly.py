"""The plotting library of `palimpsest report`, downloaded from PyPI: prints the path of plotly.min.js.

    build/palimpsest report results.jsonl -o report.html --plotly "$(python3 tools/report/plotly.py)"
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "setup"))
import environment  # noqa: E402

try:
    environment.enter("report", ["plotly==6.5.0"], "about 10 seconds")
except environment.Unavailable as error:
    sys.exit(f"plotly.py: {error}")
print(next(pathlib.Path(sys.prefix).glob("lib/python*/site-packages/plotly/package_data/plotly.min.js")))
