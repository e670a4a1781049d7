#include "palimpsest/speed/speed.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/speculation/draft_length.h"
#include "palimpsest/speed/fill.h"
#include "palimpsest/speed/history.h"

namespace palimpsest {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<TokenId> random_tokens(int count, int vocabulary, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<TokenId> any(0, vocabulary - 1);
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  for (auto& token : tokens) token = any(generator);
  return tokens;
}

void fill_with_history(Lockstep& batch, const SpeedOptions& options) {
  Sequence& first = batch.session(0).sequence();
  simulate_generation(first, options.prompt, options.depth, options.seed);
  fill_pages_with_noise(first.cache(), options.seed);
  for (int i = 1; i < batch.sequences(); ++i) copy(first, batch.session(i).sequence());
}

void fill(Session& session, int vocabulary, const SpeedOptions& options, const std::function<bool()>& go_on) {
  session.clear();
  if (options.depth == 0) return;
  if (options.fill == Fill::kRandom) {
    session.fill_slots(options.depth);
    fill_pages_with_noise(session.cache(), options.seed);
  } else {
    const auto tokens = random_tokens(options.depth, vocabulary, options.seed);
    session.prefill(tokens, [&](long long, long long) { return !go_on || go_on(); });
  }
}

}  // namespace

const char* name_of(Fill fill) {
  return fill == Fill::kRandom ? "random" : fill == Fill::kPrompt ? "prompt" : "history";
}

SpeedSample measure_speed(Lockstep& batch, int vocabulary, const SpeedOptions& options,
                          const std::function<bool()>& go_on) {
  if (options.tokens < 1 || options.depth < 0)
    fail("{} tokens at depth {}: ask for 1 or more at 0 or more", options.tokens, options.depth);
  if (options.drafts > 0 && batch.sequences() > 1)
    fail("drafts with a batch of {}: give one sequence", batch.sequences());
  SpeedSample sample;
  const auto stopped = [&] { return go_on && !go_on(); };
  const int sequences = batch.sequences();
  if (options.fill == Fill::kHistory)
    fill_with_history(batch, options);
  else
    for (int i = 0; i < sequences && !stopped(); ++i) fill(batch.session(i), vocabulary, options, go_on);
  const auto tokens = random_tokens(options.tokens + options.warm_up, vocabulary, options.seed + 1);
  const auto measured = std::span(tokens).first(static_cast<std::size_t>(options.tokens));
  if (stopped()) return sample;

  const Session& first = batch.session(0);
  int done = options.test == SpeedTest::kPrefill ? options.tokens : 0;
  long long dropped = 0;  // before
  double evict = 0;
  const auto evict_ms = [&] {
    double sum = 0;
    for (int i = 0; i < sequences; ++i) sum += batch.session(i).times().evict_ms;
    return sum;
  };
  if (options.test == SpeedTest::kPrefill) {
    dropped = first.cache().dropped();
    int chunks = 0;
    const auto start = Clock::now();
    for (int i = 0; i < sequences; ++i)
      batch.session(i).prefill(measured, [&](long long, long long) {
        sample.ms_prepare += batch.decoder().times().build;
        ++chunks;
        return !stopped();
      });
    sample.seconds = seconds_since(start);
    sample.ms_prepare /= std::max(1, chunks);
  } else {
    std::vector<TokenId> step(static_cast<std::size_t>(sequences));
    std::mt19937 generator(options.seed + 2);
    std::bernoulli_distribution stands(options.accept);
    DraftLength length(options.drafts, options.price);
    const std::vector<TokenId> drafts = random_tokens(options.drafts, vocabulary, options.seed + 3);
    const auto decode = [&](TokenId token) {  // returns the number of tokens that were decoded
      for (std::size_t i = 0; i < step.size(); ++i)
        step[i] = static_cast<TokenId>((token + static_cast<TokenId>(i)) % vocabulary);
      if (options.drafts == 0) return batch.decode(step), 1;
      const int wanted = options.adaptive ? length.next() : options.drafts;
      Session& session = batch.session(0);
      const auto logits = session.decode(step[0], std::span(drafts).first(static_cast<std::size_t>(wanted)));
      const int read = static_cast<int>(logits.size()) / vocabulary - 1;
      int accepted = 0;
      while (accepted < read && stands(generator)) ++accepted;
      session.accept(accepted);
      if (read > 0) length.add(read, accepted);
      return 1 + accepted;
    };
    for (const TokenId token : std::span(tokens).subspan(measured.size())) decode(token);
    dropped = first.cache().dropped();
    sample.evictions = -first.times().evictions;
    evict = evict_ms();
    std::vector<double> itl;
    itl.reserve(measured.size());
    double attention = 0, prepare = 0;
    const auto start = Clock::now();
    while (done < options.tokens) {
      const auto before = Clock::now();
      done += decode(measured[static_cast<std::size_t>(done)]);
      itl.push_back(seconds_since(before) * 1e3);
      attention += batch.decoder().times().attention;
      prepare += batch.decoder().times().build;
      if (stopped()) return sample;
    }
    sample.seconds = seconds_since(start);
    const auto steps = static_cast<double>(itl.size());
    sample.tokens_per_step = done / steps;
    sample.ms_attention = attention / steps;
    sample.ms_prepare = prepare / steps;
    sample.ms_evict = (evict_ms() - evict) / steps;
    sample.ms_forward = sample.seconds * 1e3 / steps - sample.ms_evict;
    sample.evictions += first.times().evictions;
    std::sort(itl.begin(), itl.end());
    sample.ms_p50 = itl[itl.size() / 2];
    sample.ms_p99 = itl[std::min(itl.size() - 1, itl.size() * 99 / 100)];
  }
  sample.evicted = first.cache().evicted_since(dropped);
  for (int i = 0; i < sequences; ++i) {
    sample.cache_bytes += batch.session(i).cache().bytes_in_use() + batch.session(i).cache().bytes_tables();
    sample.cache_bytes_peak += batch.session(i).cache().bytes_peak();
    sample.slots_per_token += batch.session(i).cache().slots_per_token() / sequences;
    batch.session(i).clear();  // frees memory for the other batches of the round
  }
  if (stopped()) return sample;
  sample.tokens_per_second = static_cast<double>(sequences) * done / sample.seconds;
  return sample;
}

}  // namespace palimpsest
