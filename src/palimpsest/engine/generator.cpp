#include "palimpsest/engine/generator.h"

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
  const auto end = [&](const char* reason) {
    show(text.finish());
    result.evictions = {.evict_ms = session.times().evict_ms - of_prompt.evict_ms,
                        .evictions = session.times().evictions - of_prompt.evictions};
    result.stop_reason = reason;
    return result;
  };

  auto last = Clock::now();
  std::span<const float> logits = session.prefill(prompt, [&](long long done, long long total) {
    result.prompt_tokens = done;
    return !cancel && (!progress || progress(done, total));
  });
  of_prompt = session.times();
  for (const TokenId token : prompt.subspan(options.known)) sampler.accept(token);
  if (result.prompt_tokens < static_cast<long long>(prompt.size()) || cancel) return end("cancelled");
  if (options.max_tokens == 0) return end("length");
  Speculation* const speculation = options.drafts;
  const DraftCounts before = speculation == nullptr ? DraftCounts() : speculation->counts();
  if (speculation != nullptr) speculation->append(prompt.subspan(options.known));
  const auto width = logits.size();

  // The step's drafts that are part of the text, and those whose logits are there.
  std::span<const TokenId> drafts;
  int stood = 0, read = 0;
  const auto settle = [&] {
    const int accepted = std::exchange(stood, 0), drafted = std::exchange(read, 0);
    session.accept(accepted);
    if (speculation == nullptr) return;
    speculation->verified(drafted, accepted);
    const DraftCounts& all = speculation->counts();
    result.drafts = {all.steps - before.steps, all.drafts - before.drafts, all.accepted - before.accepted};
  };
  try {
    while (true) {
      const TokenId token = sampler.sample(logits.subspan(static_cast<std::size_t>(stood) * width, width));
      const auto now = Clock::now();
      const double elapsed = milliseconds(now - last);
      last = now;
      if (result.tokens == 0) result.ttft_ms = elapsed;
      if (!options.ignore_end && vocabulary.is_end(token)) {
        result.unread = -1;
        settle();
        return end("end");
      }
      if (result.tokens > 0) result.tpot.add(elapsed);
      ++result.tokens;
      result.unread = token;
      if (options.keep) result.written.push_back(token);
      if (speculation != nullptr) speculation->append({&token, 1});
      show(text.put(token));
      const bool length = options.max_tokens >= 0 && result.tokens >= options.max_tokens;
      if (text.stopped() || cancel || length) {
        settle();
        return end(text.stopped() ? "stop" : cancel ? "cancelled" : "length");
      }
      if (stood < read && token == drafts[static_cast<std::size_t>(stood)]) {
        ++stood;  // its successor's logits are there
        continue;
      }
      settle();
      drafts = {};
      const long long left = options.max_tokens < 0 ? INT64_MAX : options.max_tokens - result.tokens - 1;
      if (speculation != nullptr) drafts = speculation->draft(left);
      logits = session.decode(token, drafts);
      read = static_cast<int>(logits.size() / width) - 1;
    }
  } catch (...) {  // the session holds only the text, without drafts
    settle();
    throw;
  }
}

}  // namespace palimpsest
