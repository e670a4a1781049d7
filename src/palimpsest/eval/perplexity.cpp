#include "palimpsest/eval/perplexity.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>

#include "palimpsest/core/error.h"
#include "palimpsest/eval/likelihood.h"

namespace palimpsest {

double Perplexity::value() const {
  return std::exp(nll);
}

long long round_bin(long long predicted, int bins) {
  const double rough = std::max(1.0, static_cast<double>(predicted) / bins);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double lead = rough / power;
  return std::llround(power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10));
}

Perplexity merge_perplexities(std::span<const Perplexity> texts) {
  Perplexity all;
  all.complete = true;
  double sum = 0, squares = 0;
  for (const Perplexity& text : texts) {
    all.predicted += text.predicted;
    all.complete = all.complete && text.complete;
    for (const float nats : text.losses) {
      sum += static_cast<double>(nats);
      squares += static_cast<double>(nats) * static_cast<double>(nats);
    }
    all.losses.insert(all.losses.end(), text.losses.begin(), text.losses.end());
    for (std::size_t i = 0; i < text.curve.size(); ++i) {
      const CurveBin& bin = text.curve[i];
      if (i == all.curve.size()) all.curve.push_back({.from = bin.from});
      CurveBin& into = all.curve[i];
      into.to = std::max(into.to, bin.to);
      into.nll = (into.nll * static_cast<double>(into.tokens) + bin.nll * static_cast<double>(bin.tokens)) /
                 static_cast<double>(into.tokens + bin.tokens);
      into.tokens += bin.tokens;
    }
    all.seconds += text.seconds;
    all.evicted += text.evicted;
    all.cache_bytes = std::max(all.cache_bytes, text.cache_bytes);
    all.cache_bytes_peak = std::max(all.cache_bytes_peak, text.cache_bytes_peak);
  }
  const auto n = static_cast<double>(std::max(1LL, all.predicted));
  all.nll = sum / n;
  all.nll_error = std::sqrt(std::max(0.0, squares / n - all.nll * all.nll) / n);
  return all;
}

void check_perplexity(const Method& method, long long prompt) {
  const bool waits = method.evicts() && method.waits_for_prompt();
  if (prompt == 0 && waits && (method.prompt_max == 0 || method.prompt_max > method.budget))
    fail(
        "method {} evicts at the end of a prompt, so all of the text would be predicted from a full cache: give the "
        "number of tokens to read as a prompt (--prompt 1000), or schedule=step",
        method.name);
}

Perplexity perplexity(Session& session, std::span<const TokenId> tokens, long long bin,
                      const Session::Progress& progress, long long prompt, long long first) {
  check_perplexity(session.method(), prompt);
  if (prompt > 0 && static_cast<long long>(tokens.size()) < prompt + 2)
    fail("a prompt of {} tokens: the text has {}, and two or more are needed after it", prompt, tokens.size());
  assert(prompt == 0 || first == 0);
  if (first > 0 && static_cast<long long>(tokens.size()) < first + 2)
    fail("{} tokens that are not counted: the text has {}, and two or more are needed after them", first,
         tokens.size());
  if (tokens.size() < 2) fail("perplexity needs two tokens or more: the text has {}", tokens.size());
  if (bin < 1) fail("bins of {} tokens: ask for 1 or more", bin);
  Perplexity result;
  session.clear();
  const auto last = static_cast<long long>(tokens.size()) - 1 - prompt - first;
  result.losses.reserve(tokens.size());
  result.curve.reserve(static_cast<std::size_t>(last / bin) + 1);
  double sum = 0, squares = 0;
  const auto dropped_before = session.cache().dropped();
  const auto start = std::chrono::steady_clock::now();
  const auto predict = [&](long long index, std::span<const float> logits) {
    if (index < first) return;
    const double nats = negative_log_likelihood(logits, tokens[static_cast<std::size_t>(index) + 1]);
    result.losses.push_back(static_cast<float>(nats));
    sum += nats;
    squares += nats * nats;
    if (result.predicted % bin == 0) result.curve.push_back({.from = index + 1});
    result.curve.back().nll += nats;  // a sum until the end
    result.curve.back().to = index + 2;
    ++result.curve.back().tokens;
    ++result.predicted;
  };
  if (prompt == 0) {
    session.read(tokens.first(tokens.size() - 1), predict, progress);
  } else {
    session.prefill(tokens.first(static_cast<std::size_t>(prompt)));
    for (long long i = prompt; i + 1 < static_cast<long long>(tokens.size()); ++i) {
      predict(i, session.decode(tokens[static_cast<std::size_t>(i)]));
      if (progress && !progress(result.predicted, last)) break;
    }
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (auto& each : result.curve) each.nll /= static_cast<double>(each.tokens);
  const auto n = static_cast<double>(result.predicted);
  result.complete = result.predicted == last;
  if (result.predicted > 0) {
    result.nll = sum / n;
    result.nll_error = std::sqrt(std::max(0.0, squares / n - result.nll * result.nll) / n);
  }
  result.evicted = session.cache().evicted_since(dropped_before);
  result.cache_bytes = session.cache().bytes_in_use() + session.cache().bytes_tables();
  result.cache_bytes_peak = session.cache().bytes_peak() + session.cache().bytes_tables();
  return result;
}

}  // namespace palimpsest
