#include "palimpsest/writer.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "palimpsest/core/error.h"
#include "palimpsest/fit/own_shares.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/system.h"
#include "palimpsest/text/visible_text.h"

namespace palimpsest::cli {

TextModel load_text_model(const ModelFlags& flags) {
  if (!flags.synthetic.empty())
    fail("a synthetic model has no vocabulary, so it writes no text: use `palimpsest bench`, or a model file with -m");
  TextModel out;
  out.model = load_model(flags);
  out.vocabulary = Vocabulary::load(out.model->path(), out.model->options().overrides);
  if (out.vocabulary->size() != out.model->hyper().vocabulary)
    fail("'{}': its tokenizer has {} tokens and its weights {}: convert the model again", out.model->path(),
         out.vocabulary->size(), out.model->hyper().vocabulary);
  return out;
}

std::string profile_of(const TextModel& loaded, const SessionOptions& options, StepThreads threads) {
  Progress bar("shares of heads", "tokens");
  const OwnShares shares =
      own_shares(loaded.model, *loaded.vocabulary, options, threads, [&](long long done, long long total) {
        bar.update(done, total);
        return !interrupted();
      });
  bar.clear();
  if (!shares.problem.empty())
    fmt::print(stderr, "palimpsest: one share of the budget for all heads: {}\n", shares.problem);
  else if (shares.seconds > 0)
    fmt::print(stderr,
               "palimpsest: shares of heads measured once for this model, in {:.1f} s: {}; without: split=uniform\n",
               shares.seconds, shares.file);
  return shares.file;
}

void StandardOutput::write(std::string_view text) {
  if (closed_ || text.empty()) return;
  at_line_start_ = text.back() == '\n';
  const std::string shown = terminal_ ? visible_text(text) : std::string();
  if (terminal_) text = shown;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  if (errno != EPIPE) fail("the text cannot be written: {}", std::strerror(errno));
  closed_ = true;
}

void StandardOutput::end_line() {
  if (!at_line_start_) write("\n");
}

Session::Progress reading_progress(Progress& progress) {
  return [&progress](long long done, long long total) {
    if (done > 0)
      progress.update(done, total);
    else if (total > kDefaultChunk)
      progress.begin(total);
    return true;
  };
}

std::string summary_line(const Generation& g, const Session& session, const Session* small) {
  const Cache& cache = session.cache();
  const std::string kept = spell_protection(session.method());
  const Percentiles tpot = g.tpot.summary();
  std::string out = fmt::format("{} tokens", thousands(g.tokens));
  if (g.tpot.count() > 0)
    out += fmt::format(", {:.2f} ms each (p50 {:.2f}, p99 {:.2f}), {:.1f} tokens/s", tpot.mean, tpot.p50, tpot.p99,
                       1000 / tpot.mean);
  if (g.drafts.steps > 0)
    out += fmt::format("; {} of {} drafts accepted", thousands(g.drafts.accepted), thousands(g.drafts.drafts));
  if (small != nullptr) out += fmt::format(", {:.2f} tokens a pass of the full cache", g.tokens_per_pass());
  const RecallTier* const tier = session.sequence().recall();
  return out +
         fmt::format("; TTFT {:.1f} ms, {} prompt tokens; cache {} ({} tokens, peak {}), {} evicted{}{}{}", g.ttft_ms,
                     thousands(g.prompt_tokens), human_bytes(cache.bytes_in_use()), thousands(cache.occupied()),
                     human_bytes(cache.bytes_peak()), thousands(cache.evicted()),
                     session.method().evicts() ? " by " + spell_short(session.method()) : "",
                     tier == nullptr ? "" : fmt::format("; second tier {}", human_bytes(tier->bytes())),
                     kept.empty() ? "" : fmt::format("; {} protected", kept)) +
         (small == nullptr
              ? ""
              : fmt::format("; drafts by {}: cache {} ({} tokens, peak {})", spell_short(small->method()),
                            human_bytes(small->cache().bytes_in_use()), thousands(small->cache().occupied()),
                            human_bytes(small->cache().bytes_peak())));
}

}  // namespace palimpsest::cli
