# The front door. Everything goes through tools/env, which finds or makes an environment with the dependencies.
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run build test test-asan test-tsan install-check bench attention bench-papers versus versus-shift evict-cost growth exactness quality shows sweep report peers convert-check serve-check serve-load serve-kill serve-hostile format format-check setup clean prune

# What `make run` runs; try RUN_ARGS='-p "Once upon a time" -n -1' and Ctrl-C.
RUN_ARGS ?= -n 1000 --ignore-eos --seed 1

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build  ## watch a model write on and on in constant memory (RUN_ARGS=...)
	@build/palimpsest run $(RUN_ARGS)

build:  ## build/palimpsest, the command alone (`make test` builds the tests)
	@tools/build release palimpsest_app

test:  ## every test (data that lies in ../shared is optional: its tests are skipped by name)
	@tools/test release

test-asan:  ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/test asan

test-tsan:  ## the tests under ThreadSanitizer
	@tools/test tsan

install-check: build  ## install into a scratch folder and build a program against it with find_package
	@tools/env ctest --test-dir build --output-on-failure --no-tests=error -R '^install\.'

bench: build  ## decode speed, method against method (BENCH_ARGS=...)
	@build/palimpsest bench decode $(BENCH_ARGS)

attention:  ## decode attention's bytes a second beside a plain read's
	@tools/build release palimpsest_app attention_bench
	@tools/env python3 bench/attention.py

bench-papers:  ## the papers' tables and figures beside ours (PAPERS_ARGS='--quick table5 fig7a')
	@tools/build release
	@tools/env --add python3-matplotlib || true
	@python3 bench/papers/torch_baselines.py $(PAPERS_ARGS) || echo "torch: skipped" >&2
	@tools/env python3 bench/papers/run.py $(PAPERS_ARGS)

versus: build  ## decode and prefill against llama.cpp's llama-bench (VERSUS_ARGS=...)
	@tools/env python3 bench/versus_llama_bench.py $(VERSUS_ARGS)

versus-shift:  ## what evicting costs here and in llama.cpp, 1,024 tokens kept (VERSUS_ARGS=...)
	@tools/build release palimpsest_app shift_bench
	@tools/env python3 bench/versus_llama_shift.py $(VERSUS_ARGS)

evict-cost: build  ## a step that evicts against one that never does (COST_ARGS=...)
	@tools/env python3 bench/evict_cost.py $(COST_ARGS)

growth: build  ## how time and memory grow with prompt, budget, batch and four million tokens (GROWTH_ARGS=...)
	@tools/env --add python3-matplotlib
	@tools/env python3 bench/growth.py $(GROWTH_ARGS)

# How many combinations to draw, 2,000 tokens each; grid: all but for page size, sequences, threads and split, which are
# interleaved, 1,000 tokens each; all: every one (weeks). PALIMPSEST_SEED draws the same again. PARTS=2 runs a grid in two
# processes (their tables are in build/exactness-*.log); PALIMPSEST_EXACTNESS_PART=2/4 runs one part of four.
EXACTNESS ?= 600
PARTS ?= 1
exactness:  ## check that only the method changes a result: mechanisms, positions, pages, types, paths, threads (EXACTNESS=grid PARTS=2)
	@tools/build release test_exactness
	@export PALIMPSEST_EXACTNESS=$(EXACTNESS) OMP_WAIT_POLICY=passive; pids=; rc=0; \
	if [ $(PARTS) = 1 ]; then exec tools/env build/test_exactness --gtest_filter='Exactness.TheGrid*'; fi; \
	for part in $$(seq $(PARTS)); do \
	  PALIMPSEST_EXACTNESS_PART=$$part/$(PARTS) tools/env build/test_exactness --gtest_filter='Exactness.TheGrid*' \
	    >build/exactness-$$part.log & pids="$$pids $$!"; \
	done; \
	for pid in $$pids; do wait $$pid || rc=1; done; tail -n 5 build/exactness-*.log; exit $$rc

quality: build  ## recall and perplexity of every method at equal budgets, what is not measured yet (QUALITY_ARGS=...)
	@tools/env --add python3-matplotlib
	@tools/env python3 bench/quality.py $(QUALITY_ARGS)

shows: build  ## the figures of docs/results/first-light.md made anew (SHOWS_ARGS='stream book')
	@tools/env python3 bench/shows.py $(SHOWS_ARGS)

peers: build  ## beside llama.cpp, OpenVINO GenAI and transformers with kvpress: speed, memory, quality (PEERS_ARGS=...)
	@python3 tools/peers/run.py $(PEERS_ARGS)

# Goes on where it was stopped; the results stay. SWEEP=another.json; RESULTS='a.jsonl b.jsonl'.
SWEEP ?= bench/sweeps/default-model.json
RESULTS ?= build/$(basename $(notdir $(SWEEP))).jsonl
sweep: build  ## methods, budgets and questions on the default model, and the report (SWEEP=..., RESULTS=...)
	@build/palimpsest sweep $(SWEEP) -o $(RESULTS)
	@$(MAKE) report

report:  ## the page and the Markdown of a sweep's results (RESULTS=...)
	@build/palimpsest report $(RESULTS) -o $(basename $(firstword $(RESULTS))).html \
	  --markdown $(basename $(firstword $(RESULTS))).md --plotly "$$(python3 tools/report/plotly.py)"

convert-check:  ## what tools/convert makes of small GPT-J and OPT models, against Hugging Face's own logits
	@tools/build release test_model
	@python3 tools/convert/check.py

serve-check: build  ## the README's curl examples and the official openai client against the server; a little load, some kills
	@python3 tools/serve/check.py
	@python3 tools/serve/load.py --clients 64 --seconds 5
	@python3 tools/serve/kill.py --times 10

serve-load: build  ## 256 clients for 10 minutes, of whom some leave and some send garbage (LOAD_ARGS=...)
	@python3 tools/serve/load.py --steady $(LOAD_ARGS)

serve-kill: build  ## kill the server with -9 while it saves sessions, 200 times (KILL_ARGS='--times 10')
	@python3 tools/serve/kill.py $(KILL_ARGS)

serve-hostile: build  ## how long others wait while grammars and schemas that were written to hurt come in (HOSTILE_ARGS='--seconds 60')
	@python3 tools/serve/hostile.py $(HOSTILE_ARGS)

SOURCES = $$(git ls-files '*.cpp' '*.h')
format:  ## clang-format on every source file
	@clang-format -i $(SOURCES)

format-check:
	@clang-format --dry-run --Werror $(SOURCES)

setup:  ## choose and make the build environment anew (after installing packages)
	@tools/env --forget && tools/env true && echo "route: $$(tools/env --route)"

clean:  ## remove the build folders
	rm -rf build build-asan build-tsan build-dev

prune: ## remove forky roots of earlier versions from the cache
	@tools/env --prune
