#include "palimpsest/bench/speed.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "palimpsest/bench/fill.h"
#include "palimpsest/core/error.h"

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

void fill(Session& session, int vocabulary, const SpeedOptions& options, const std::function<bool()>& go_on) {
  session.clear();
  if (options.depth == 0) return;
  if (options.fill == Fill::kRandom) {
    session.pretend(options.depth);
    fill_pages_with_noise(session.cache(), options.seed);
  } else {
    const auto tokens = random_tokens(options.depth, vocabulary, options.seed);
    session.prefill(tokens, [&](long long, long long) { return !go_on || go_on(); });
  }
}

}  // namespace

const char* name_of(Fill fill) {
  return fill == Fill::kRandom ? "random" : "prompt";
}

SpeedSample measure_speed(Session& session, int vocabulary, const SpeedOptions& options,
                          const std::function<bool()>& go_on) {
  if (options.tokens < 1 || options.depth < 0)
    fail("{} tokens at depth {}: ask for 1 or more at 0 or more", options.tokens, options.depth);
  SpeedSample sample;
  fill(session, vocabulary, options, go_on);
  const auto tokens = random_tokens(options.tokens + options.warm_up, vocabulary, options.seed + 1);
  const auto measured = std::span(tokens).first(static_cast<std::size_t>(options.tokens));
  const auto stopped = [&] { return go_on && !go_on(); };
  if (stopped()) return sample;

  if (options.test == SpeedTest::kPrefill) {
    const auto evicted = session.cache().evicted();
    const auto start = Clock::now();
    session.prefill(measured, [&](long long, long long) { return !stopped(); });
    sample.seconds = seconds_since(start);
    sample.evicted = session.cache().evicted() - evicted;
  } else {
    for (const TokenId token : std::span(tokens).subspan(measured.size())) session.decode(token);
    const auto evicted = session.cache().evicted();
    std::vector<double> gaps;
    gaps.reserve(measured.size());
    const auto start = Clock::now();
    for (const TokenId token : measured) {
      const auto before = Clock::now();
      session.decode(token);
      gaps.push_back(seconds_since(before) * 1e3);
      if (stopped()) return sample;
    }
    sample.seconds = seconds_since(start);
    sample.evicted = session.cache().evicted() - evicted;
    std::sort(gaps.begin(), gaps.end());
    sample.ms_p50 = gaps[gaps.size() / 2];
    sample.ms_p99 = gaps[std::min(gaps.size() - 1, gaps.size() * 99 / 100)];
  }
  if (stopped()) return sample;
  sample.cache_bytes = session.cache().bytes_in_use() + session.cache().bytes_tables();
  sample.tokens_per_second = static_cast<double>(options.tokens) / sample.seconds;
  return sample;
}

}  // namespace palimpsest
