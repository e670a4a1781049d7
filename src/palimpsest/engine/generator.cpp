#include "palimpsest/engine/generator.h"

#include <cassert>
#include <chrono>

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
  const auto end = [&](const char* reason) {
    show(text.finish());
    result.stop_reason = reason;
    return result;
  };

  auto last = Clock::now();
  std::span<const float> logits = session.prefill(prompt, [&](long long done, long long total) {
    result.prompt_tokens = done;
    return !cancel && (!progress || progress(done, total));
  });
  for (const TokenId token : prompt.subspan(options.known)) sampler.accept(token);
  if (result.prompt_tokens < static_cast<long long>(prompt.size())) return end("cancelled");

  while (true) {
    if (cancel) return end("cancelled");
    if (options.max_tokens >= 0 && result.tokens >= options.max_tokens) return end("length");
    if (result.unread >= 0) {
      logits = session.decode(result.unread);
      result.unread = -1;
    }
    const TokenId token = sampler.sample(logits);
    const auto now = Clock::now();
    const double elapsed = milliseconds(now - last);
    last = now;
    if (result.tokens == 0) result.ttft_ms = elapsed;
    if (!options.ignore_end && vocabulary.is_end(token)) return end("end");
    if (result.tokens > 0) result.tpot.add(elapsed);
    ++result.tokens;
    result.unread = token;
    if (options.keep) result.written.push_back(token);
    show(text.put(token));
    if (text.stopped()) return end("stop");
  }
}

}  // namespace palimpsest
