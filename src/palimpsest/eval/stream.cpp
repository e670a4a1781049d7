#include "palimpsest/eval/stream.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "palimpsest/core/error.h"
#include "palimpsest/core/memory.h"
#include "palimpsest/eval/likelihood.h"

namespace palimpsest {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t now_resident() {
  return static_cast<std::int64_t>(resident_bytes());
}

double mean_of(std::span<const float> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// `scratch` has at least the size of `values`, so that nothing is allocated while the stream runs.
double median_of(std::span<const float> values, std::vector<float>& scratch) {
  std::copy(values.begin(), values.end(), scratch.begin());
  const auto middle = scratch.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(scratch.begin(), middle, scratch.begin() + static_cast<std::ptrdiff_t>(values.size()));
  return static_cast<double>(*middle);
}

double distinct_4grams(std::span<const TokenId> tokens, std::vector<std::uint64_t>& scratch) {
  if (tokens.size() < 4) return 1;
  scratch.clear();
  for (std::size_t i = 0; i + 4 <= tokens.size(); ++i) {
    std::uint64_t hash = 1469598103934665603ULL;  // FNV-1a over four tokens
    for (std::size_t k = 0; k < 4; ++k) hash = (hash ^ static_cast<std::uint32_t>(tokens[i + k])) * 1099511628211ULL;
    scratch.push_back(hash);
  }
  std::sort(scratch.begin(), scratch.end());
  const auto end = std::unique(scratch.begin(), scratch.end());
  return static_cast<double>(end - scratch.begin()) / static_cast<double>(scratch.size());
}

double judge_nll(Session& judge, TokenId begin, std::span<const TokenId> text, const StreamOptions& options,
                 std::vector<TokenId>& scratch) {
  scratch.clear();
  if (begin >= 0) scratch.push_back(begin);
  const auto count = std::min(text.size(), static_cast<std::size_t>(options.judged));
  scratch.insert(scratch.end(), text.begin(), text.begin() + static_cast<std::ptrdiff_t>(count));
  judge.clear();
  double sum = 0;
  int counted = 0;
  judge.read(std::span(scratch).first(scratch.size() - 1), [&](long long index, std::span<const float> logits) {
    if (index < options.judge_skip) return;
    sum += negative_log_likelihood(logits, scratch[static_cast<std::size_t>(index) + 1]);
    ++counted;
  });
  return counted == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / counted;
}

}  // namespace

StreamResult run_stream(Session& session, Sampler& sampler, std::span<const TokenId> prompt,
                        const StreamOptions& options, Session* judge, TokenId begin,
                        const std::function<void(TokenId)>& emit,
                        const std::function<bool(long long done, long long total)>& progress) {
  if (prompt.empty()) fail("the stream needs a first token: this vocabulary has no BOS, so give a prompt");
  if (options.tokens < options.windows || options.windows < 1)
    fail("{} tokens in {} windows: every window needs a token", options.tokens, options.windows);
  const auto total = static_cast<std::size_t>(options.tokens);
  const auto window = static_cast<long long>(options.tokens / options.windows);

  // All memory of the measurement is allocated and touched before the first token.
  std::vector<float> milliseconds(total, 1.0F), scratch(total, 1.0F), held;
  std::vector<TokenId> text, judged;
  std::vector<std::uint64_t> hashes;
  text.resize(static_cast<std::size_t>(window * 2));
  text.clear();
  hashes.resize(static_cast<std::size_t>(window * 2));
  judged.resize(static_cast<std::size_t>(options.judged) + 1);
  StreamResult result;
  result.windows.reserve(static_cast<std::size_t>(options.windows));

  session.clear();
  auto logits = session.prefill(prompt);
  double nats = 0;
  for (long long done = 0; done < options.tokens;) {
    const auto start = Clock::now();
    const TokenId token = sampler.sample(logits);
    const auto sampled = Clock::now();
    nats += negative_log_likelihood(logits, token);
    const auto resumed = Clock::now();
    logits = session.decode(token);
    milliseconds[static_cast<std::size_t>(done)] =
        std::chrono::duration<float, std::milli>((sampled - start) + (Clock::now() - resumed)).count();
    text.push_back(token);
    if (emit) emit(token);
    ++done;

    if (done == std::min(options.settled, options.tokens)) result.resident_settled = now_resident();
    if (done >= options.settled && (done % 100 == 0 || done == options.tokens))
      result.resident_after = std::max(result.resident_after, now_resident());
    const auto windows = static_cast<long long>(result.windows.size());
    const bool last = windows + 1 == options.windows;
    if (done == (last ? options.tokens : (windows + 1) * window)) {
      StreamWindow& w = result.windows.emplace_back();
      w.from = windows * window;
      w.to = done;
      const auto times =
          std::span(milliseconds).subspan(static_cast<std::size_t>(w.from), static_cast<std::size_t>(done - w.from));
      w.nll = nats / static_cast<double>(done - w.from);
      w.distinct = distinct_4grams(text, hashes);
      w.ms_mean = mean_of(times);
      w.ms_median = median_of(times, scratch);
      if (judge != nullptr) {
        held.assign(logits.begin(), logits.end());  // the judge's steps may overwrite the decoder's
        logits = held;
        w.full_cache_nll = judge_nll(*judge, begin, text, options, judged);
      } else {
        w.full_cache_nll = std::numeric_limits<double>::quiet_NaN();
      }
      w.resident = now_resident();
      w.cache_bytes = session.cache().bytes_in_use() + session.cache().bytes_tables();
      nats = 0;
      text.clear();
    }
    result.tokens = done;
    if (progress && !progress(done, options.tokens)) break;
  }
  result.complete = result.tokens == options.tokens;
  const auto times = std::span(milliseconds).first(static_cast<std::size_t>(result.tokens));
  for (std::size_t i = 0; i < 10 && times.size() >= 10; ++i) {
    const std::size_t from = times.size() * i / 10, to = times.size() * (i + 1) / 10;
    result.tenth_mean_ms.push_back(mean_of(times.subspan(from, to - from)));
    result.tenth_median_ms.push_back(median_of(times.subspan(from, to - from), scratch));
  }
  result.evicted = session.cache().evicted();
  result.cache_bytes = session.cache().bytes_in_use() + session.cache().bytes_tables();
  result.cache_bytes_peak = session.cache().bytes_peak() + session.cache().bytes_tables();
  return result;
}

}  // namespace palimpsest
