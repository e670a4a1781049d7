#include "palimpsest/engine/generation/generator.h"

#include <cassert>
#include <chrono>
#include <utility>

#include "palimpsest/text/text_stream.h"

namespace palimpsest {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

Generation generate(Session& session, Sampler& sampler, const Vocabulary& vocabulary, std::span<const TokenId> prompt,
                    const GenerateOptions& options, const Emit& emit, const std::atomic<bool>& cancel,
                    const Session::Progress& progress) {
  assert(!prompt.empty());
  Generation result;
  TextStream text(vocabulary, {.stop = options.stop, .begins_text = only_control_tokens(vocabulary, prompt)});
  const auto show = [&](const std::string& more) {
    if (!more.empty()) emit(more);
  };
  EvictionTimes of_prompt = session.times();
  const auto end = [&](Finish finish) {
    show(text.finish());
    result.evictions = {.evict_ms = session.times().evict_ms - of_prompt.evict_ms,
                        .evictions = session.times().evictions - of_prompt.evictions};
    result.finish = finish;
    return result;
  };

  auto last = Clock::now();
  std::span<const float> logits;
  if (prompt.size() == 1 && session.position() > 0 && session.method().cache) {
    // A saved text goes on by its last token, which is no prompt: nothing is compressed at its end.
    logits = session.decode(prompt.front());
    result.prompt_tokens = 1;
  } else {
    if (progress && !progress(0, std::ssize(prompt))) return end(Finish::kCancelled);
    logits = session.prefill(prompt, [&](long long done, long long total) {
      result.prompt_tokens = static_cast<long long>(session.sequence().tokens_read());
      return !cancel && (!progress || progress(done, total));
    });
  }
  of_prompt = session.times();
  for (const TokenId token : prompt.subspan(options.known)) sampler.accept(token);
  if (result.prompt_tokens < static_cast<long long>(prompt.size()) || cancel) return end(Finish::kCancelled);
  if (options.max_tokens == 0) return end(Finish::kLength);
  Speculation* const speculation = options.drafts;
  const DraftCounts before = speculation == nullptr ? DraftCounts() : speculation->counts();
  if (speculation != nullptr) speculation->append(prompt.subspan(options.known));
  const auto width = logits.size();

  TokenLoop loop({.max_tokens = options.max_tokens, .ignore_end = options.ignore_end}, sampler, &vocabulary,
                 speculation);
  const auto settle = [&] {
    loop.settle([&](int accepted) { session.accept(accepted); });
    if (speculation == nullptr) return;
    const DraftCounts& all = speculation->counts();
    result.drafts = {all.steps - before.steps, all.drafts - before.drafts, all.accepted - before.accepted};
  };
  const auto put = [&](const SampledToken& sampled, std::span<const float>) -> std::optional<Finish> {
    const auto now = Clock::now();
    const double elapsed = milliseconds(now - last);
    last = now;
    if (result.tokens == 0) result.ttft_ms = elapsed;
    result.unread = sampled.end ? -1 : sampled.token;
    if (sampled.end) return std::nullopt;
    if (result.tokens > 0) result.tpot.add(elapsed);
    ++result.tokens;
    if (options.keep) result.written.push_back(sampled.token);
    show(text.put(sampled.token));
    if (text.stopped()) return Finish::kStopped;
    return cancel ? std::optional(Finish::kCancelled) : std::nullopt;
  };
  try {
    while (true) {
      const std::optional<Finish> finish = loop.advance(logits, width, put);
      settle();
      if (finish) return end(*finish);
      logits = session.decode(loop.last(), loop.drafts(INT64_MAX));
    }
  } catch (...) {  // the session holds only the text, without drafts
    settle();
    throw;
  }
}

}  // namespace palimpsest
