// Cost of eviction in this engine and in libllama: one process, one file, `kept` tokens in each cache, interleaved
// steps. Every contestant attends to `kept` tokens in every step, the newest included:
//
//   llama.cpp   never     removes the newest token after each step, untimed
//               remove    removes the oldest token after the sinks before each step; positions are not changed
//               shift     the same, then shifts later tokens by one position: rotates their keys again (context shift)
//               shift-64  64 tokens every 64 steps (so up to 63 more are attended to)
//   ours        never, streaming (cache positions), original (original positions), compact (moves and rotates keys, as
//               llama.cpp's shift), lazy (64 tokens every 64 steps)
//
// llama.cpp's contestants run with flash attention off and on. Prints one JSON object with all step times in ms.
//
//   build/shift_bench [model.gguf | synthetic shape] [threads] [n_ctx] [kept] [steps] [full]
//
// full: the number of tokens that `never` attends to; default: as many as are kept.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/speed/fill.h"
#include "research/speed/libllama.h"

namespace palimpsest::bench {
namespace {

constexpr int kSinks = 4, kBatch = 64, kWarmUp = 3;

struct Settings {
  int threads = 2, cells = 2048, kept = 1024, steps = 192, full = 1024;
};

struct Contestant {
  std::string engine, mode;
  std::function<void()> step;        // timed: evicts if necessary, decodes one token
  std::function<void()> after = {};  // untimed
  std::vector<double> ms = {};
};

// One llama.cpp context and its eviction.
class Peer {
 public:
  Peer(LibllamaContext context, int kept) : context_(std::move(context)), kept_(kept) {}

  llama_context* context() const { return context_.get(); }
  // Removes the oldest tokens after the sinks until kept - 1 tokens are left.
  void make_room(bool shift) {
    const int count = tokens_ - kept_ + 1;
    const llama_memory_t memory = llama_get_memory(context());
    if (!llama_memory_seq_rm(memory, 0, oldest_, oldest_ + count)) fail("llama_memory_seq_rm refuses");
    if (shift)
      llama_memory_seq_add(memory, 0, oldest_ + count, -1, -count);
    else
      oldest_ += count;
    tokens_ -= count;
  }
  void take(TokenId token) {
    libllama_forward(context(), {&token, 1});
    ++tokens_;
  }
  void take_back() {
    const llama_memory_t memory = llama_get_memory(context());
    const llama_pos newest = llama_memory_seq_pos_max(memory, 0);
    if (!llama_memory_seq_rm(memory, 0, newest, newest + 1)) fail("llama_memory_seq_rm refuses");
    --tokens_;
  }
  bool full(int batch) const { return tokens_ >= kept_ - 1 + batch; }
  void set_tokens(int tokens) { tokens_ = tokens; }

 private:
  LibllamaContext context_;
  int kept_, tokens_ = 0;
  llama_pos oldest_ = kSinks;
};

void add_peers(std::vector<Contestant>& all, const std::string& file, const Settings& s,
               std::span<const TokenId> prompt, TokenId next) {
  const LibllamaModel model = load_libllama_model(file);
  for (const bool flash : {false, true}) {
    std::vector<std::uint8_t> state;  // of the kept tokens: read once and copied
    std::size_t read = 0;             // tokens of `state`
    for (const char* mode : {"never", "remove", "shift", "shift-64"}) {
      const auto peer = std::make_shared<Peer>(make_libllama_context(model, s.threads, s.cells, flash), s.kept);
      const auto tokens = static_cast<std::size_t>(std::string(mode) == "never" ? s.full : s.kept);
      if (read != tokens) {
        for (std::size_t at = 0; at < tokens; at += 512)
          libllama_forward(peer->context(), prompt.subspan(at, std::min<std::size_t>(tokens - at, 512)));
        read = tokens;
        state.resize(llama_state_get_size(peer->context()));
        state.resize(llama_state_get_data(peer->context(), state.data(), state.size()));
      } else if (llama_state_set_data(peer->context(), state.data(), state.size()) != state.size()) {
        fail("llama_state_set_data refuses its own state");
      }
      peer->set_tokens(static_cast<int>(tokens));
      Contestant c{.engine = flash ? "llama.cpp, flash attention" : "llama.cpp", .mode = mode, .step = {}};
      const std::string what = mode;
      const int batch = what == "shift-64" ? kBatch : 1;
      c.step = [=] {
        if (what != "never" && peer->full(batch)) peer->make_room(what != "remove");
        peer->take(next);
      };
      if (what == "never") {
        peer->take_back();
        c.after = [=] { peer->take_back(); };
      }
      all.push_back(std::move(c));
    }
  }
}

// Attention over random rows takes the same time as over a real prompt (research/results/versus-llama-bench.md times
// both).
void add_ours(std::vector<Contestant>& all, std::shared_ptr<const Model> model, const Settings& s, TokenId next) {
  const auto decoder = std::make_shared<Decoder>(std::move(model), s.threads);
  CacheOptions shape = decoder->cache_options();
  shape.page_size = SessionOptions().page_size;  // the page size of the sessions below
  const auto cache = std::make_shared<Cache>(shape);
  cache->insert(s.full - 1);
  fill_pages_with_noise(*cache, 1);
  all.push_back({.engine = "palimpsest",
                 .mode = "never",
                 .step =
                     [=] {
                       cache->insert(1);
                       const SequenceStep step{.cache = cache.get(), .tokens = {&next, 1}};
                       decoder->step({&step, 1});
                     },
                 .after = [=] { cache->undo(1); }});
  const std::string budget = ",budget=" + std::to_string(s.kept) + ",sinks=" + std::to_string(kSinks);
  for (const auto& [mode, method] : {std::pair{"streaming", "streaming:positions=cache"},
                                     {"original", "streaming:positions=original"},
                                     {"compact", "compact-shift:positions=cache"},
                                     {"lazy", "streaming:positions=cache,every=64"}}) {
    SessionOptions options;
    options.method = parse_method(method + budget);
    const auto session = std::make_shared<Session>(decoder, options);
    session->fill_slots(s.kept);
    fill_pages_with_noise(session->cache(), 1);
    all.push_back({.engine = "palimpsest", .mode = mode, .step = [=] { session->decode(next); }});
  }
}

void race(std::vector<Contestant>& all, int steps) {
  std::vector<std::size_t> order(all.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::mt19937 random(1);
  for (int step = -kWarmUp; step < steps; ++step) {
    if (::isatty(STDERR_FILENO)) std::fprintf(stderr, "\r%d of %d steps ", step, steps);
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      Contestant& c = all[i];
      const double start = now_ms();
      c.step();
      const double ms = now_ms() - start;
      if (step >= 0) c.ms.push_back(ms);
      if (c.after) c.after();
    }
  }
  if (::isatty(STDERR_FILENO)) std::fprintf(stderr, "\r\033[K");
}

void print(const std::vector<Contestant>& all, const Settings& s) {
  std::printf("{\"threads\": %d, \"n_ctx\": %d, \"kept\": %d, \"full\": %d, \"contestants\": [", s.threads, s.cells,
              s.kept, s.full);
  const char* comma = "";
  for (const Contestant& c : all) {
    std::printf("%s\n {\"engine\": \"%s\", \"mode\": \"%s\", \"ms\": [", comma, c.engine.c_str(), c.mode.c_str());
    for (std::size_t i = 0; i < c.ms.size(); ++i) std::printf(i == 0 ? "%.4f" : ", %.4f", c.ms[i]);
    std::printf("]}");
    comma = ",";
  }
  std::printf("\n]}\n");
}

void run(const std::string& file, const Settings& s) {
  const int most = std::max(s.kept, s.full);
  if (s.threads < 1 || s.steps < 1 || std::min(s.kept, s.full) <= kSinks + kBatch || s.cells < most + kBatch)
    fail("{} threads, n_ctx {}, {} kept of {}, {} steps: more than {} must be kept, {} fewer than n_ctx", s.threads,
         s.cells, s.kept, s.full, s.steps, kSinks + kBatch, kBatch);
  const std::shared_ptr<const Model> model = Model::load(file);
  std::vector<TokenId> prompt(static_cast<std::size_t>(most));
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(i * 7) % model->hyper().vocabulary;
  std::vector<Contestant> all;
  add_ours(all, model, s, prompt[1]);
  add_peers(all, file, s, prompt, prompt[1]);
  race(all, s.steps);
  print(all, s);
}

}  // namespace
}  // namespace palimpsest::bench

int main(int argc, char** argv) {
  using namespace palimpsest;
  const auto number = [&](int at, int fallback) { return argc > at ? std::atoi(argv[at]) : fallback; };
  const bench::Settings settings{.threads = number(2, 2),
                                 .cells = number(3, 2048),
                                 .kept = number(4, 1024),
                                 .steps = number(5, 192),
                                 .full = number(6, number(4, 1024))};
  try {
    const bench::ModelFile file(argc > 1 ? argv[1] : "llama-3.2-1b@vocab=32000@type=q4_0");
    bench::run(file.path(), settings);
  } catch (const Error& e) {
    std::fprintf(stderr, "shift_bench: %s\n", e.what());
    return 2;
  }
  return 0;
}
