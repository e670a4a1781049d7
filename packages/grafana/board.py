#!/usr/bin/env python3
"""Writes palimpsest.json, the Grafana board, and checks its queries.

usage: packages/grafana/board.py                 writes the board
       packages/grafana/board.py --check URL     compares it and its metrics with a running server's /metrics
"""
import json
import pathlib
import re
import sys
import urllib.request

BOARD = pathlib.Path(__file__).with_name('palimpsest.json')

# title, unit, [(query, legend)]
PANELS = [
    ('Requests', 'short', [('palimpsest_num_requests_running', 'running'), ('palimpsest_num_requests_waiting', 'waiting')]),
    ('Tokens per second', 'short', [('rate(palimpsest_generation_tokens_total[1m])', 'generated'),
                                    ('rate(palimpsest_prompt_tokens_total[1m])', 'read'),
                                    ('rate(palimpsest_evicted_tokens_total[1m])', 'evicted')]),
    ('Time to first token', 's', [
        (f'histogram_quantile({q}, sum by (le) (rate(palimpsest_time_to_first_token_seconds_bucket[5m])))', f'p{q * 100:g}')
        for q in (0.5, 0.9, 0.99)]),
    ('Time per output token', 's', [
        (f'histogram_quantile({q}, sum by (le) (rate(palimpsest_time_per_output_token_seconds_bucket[5m])))',
         f'p{q * 100:g}') for q in (0.5, 0.9, 0.99)]),
    ('Cache', 'percentunit', [('palimpsest_kv_cache_usage_perc', 'in use'), ('palimpsest_kv_cache_reserved_perc', 'reserved')]),
    ('Cache in bytes', 'bytes', [('palimpsest_kv_cache_bytes', 'running requests'),
                                 ('palimpsest_prefix_cache_bytes', 'kept prefixes and chats')]),
    ('Found in kept caches', 'percentunit', [
        ('rate(palimpsest_prefix_cache_hits_total[5m]) / rate(palimpsest_prefix_cache_queries_total[5m])', 'prompt tokens'),
        ('rate(palimpsest_history_cache_hits_total[5m]) / rate(palimpsest_history_cache_queries_total[5m])', 'chats')]),
    ('Ends and refusals', 'short', [('sum by (finished_reason) (rate(palimpsest_request_success_total[5m]))',
                                     '{{finished_reason}}'),
                                    ('rate(palimpsest_requests_rejected_total[5m])', '429: queue full')]),
]


def board() -> str:
    source = {'type': 'prometheus', 'uid': 'prometheus'}
    panels = [{
        'id': i + 1, 'type': 'timeseries', 'title': title, 'datasource': source,
        'gridPos': {'x': 12 * (i % 2), 'y': 8 * (i // 2), 'w': 12, 'h': 8},
        'fieldConfig': {'defaults': {'unit': unit, 'min': 0}, 'overrides': []},
        'targets': [{'refId': chr(ord('A') + k), 'expr': expr, 'legendFormat': legend, 'datasource': source}
                    for k, (expr, legend) in enumerate(queries)],
    } for i, (title, unit, queries) in enumerate(PANELS)]
    return json.dumps({'uid': 'palimpsest', 'title': 'Palimpsest', 'schemaVersion': 39, 'refresh': '5s',
                       'time': {'from': 'now-15m', 'to': 'now'}, 'panels': panels}, indent=1) + '\n'


def check(url: str) -> None:
    with urllib.request.urlopen(f'{url}/metrics', timeout=10) as answer:
        served = set(re.findall(r'^(palimpsest_\w+)', answer.read().decode(), re.MULTILINE))
    if BOARD.read_text() != board():
        raise SystemExit('board.py: palimpsest.json is not what PANELS say: run packages/grafana/board.py')
    asked = {name for panel in json.loads(BOARD.read_text())['panels'] for target in panel['targets']
             for name in re.findall(r'palimpsest_\w+', target['expr'])}
    if missing := sorted(asked - served):
        raise SystemExit(f'board.py: /metrics does not have {", ".join(missing)}')
    print(f'board.py: {len(asked)} metrics of {len(PANELS)} panels are in {url}/metrics')


if sys.argv[1:2] == ['--check'] and len(sys.argv) == 3:
    check(sys.argv[2].rstrip('/'))
elif len(sys.argv) == 1:
    BOARD.write_text(board())
else:
    raise SystemExit(__doc__)
