// Edits of a text, by both modes, against reading the edited text (docs/edits.md).
//
// --texts FILE: JSON, a list of {"before", "old", "new", "after", "next"}. Each text is tokenized by itself, and
// `before + old + after` is read; the edit replaces `old` by `new`; `next` is then read token by token, for its
// distributions. A number instead of a text: as many random tokens. With "questions" (a list of texts) each is read
// after the edit, and the greedy answer is printed.
//
// --moves N: the text without the edit, whose tokens behind `old` are moved by one position and back, N times in all.
// The KL divergence from the text that was never moved, after 2, 4, 8, ... moves: what it costs to round keys again.
//
// Prints JSON: per text the tokens of each part, milliseconds of reading and of both edits in each of --rounds (the
// modes are interleaved), the mean KL divergence (nats) from reading the edited text to both edits, and to the text
// without the edit; answers by mode; "refused": the error of a mode that does not work on this text.
//
//   build/edits_bench --texts FILE [--model FILE | --synthetic SHAPE] [--method full] [--cache-type f16] [--threads 2]
//     [--rounds 3] [--moves 0]
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/text/logprobs.h"
#include "palimpsest/text/vocabulary.h"
#include "research/speed/flags.h"

namespace palimpsest::bench {
namespace {

using Tokens = std::vector<TokenId>;
using Rows = std::vector<std::vector<float>>;

double ms_of(const std::function<void()>& act) {
  const auto start = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// The distributions after each token of `next`, as log probabilities.
Rows distributions(Session& session, const Tokens& next) {
  Rows rows;
  for (const TokenId token : next) {
    const auto logits = session.decode(token);
    auto& row = rows.emplace_back(logits.begin(), logits.end());
    const double sum = log_sum_exp(row);
    for (float& x : row) x = static_cast<float>(x - sum);
  }
  return rows;
}

double kl(const Rows& truth, const Rows& other) {
  double sum = 0;
  for (std::size_t i = 0; i < truth.size(); ++i)
    for (std::size_t j = 0; j < truth[i].size(); ++j)
      sum += std::exp(double{truth[i][j]}) * (double{truth[i][j]} - other[i][j]);
  return truth.empty() ? 0 : sum / static_cast<double>(truth.size());
}

constexpr int kAnswerTokens = 8;  // an answer is one word

std::string answer(Session& session, const Vocabulary& vocabulary, const Tokens& question) {
  const auto fork = session.fork();
  auto logits = fork->prefill(question);
  Tokens tokens;
  for (int i = 0; i < kAnswerTokens; ++i) {
    tokens.push_back(static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()));
    if (vocabulary.detokenize(tokens).find('\n') != std::string::npos) break;
    logits = fork->decode(tokens.back());
  }
  return vocabulary.detokenize(tokens);
}

void run(Flags& flags) {
  const std::string texts = flags.text("--texts", ""), path = flags.text("--model", "models/palimpsest-stories.gguf"),
                    shape = flags.text("--synthetic", "");
  SessionOptions options{.method = parse_method(flags.text("--method", "full"))};
  options.cache_type = parse_cache_type(flags.text("--cache-type", "f16"), "--cache-type");
  const int threads = flags.number("--threads", 2), rounds = std::max(1, flags.number("--rounds", 3)),
            moves = flags.number("--moves", 0);
  flags.done("research/speed/edits_bench.cpp");
  std::ifstream file(texts);
  if (!file) fail("--texts {}: cannot be read", texts);
  const auto model = shape.empty() ? Model::load(path) : Model::synthetic(shape);
  const auto decoder = std::make_shared<Decoder>(model, threads);
  const auto vocabulary = shape.empty() ? Vocabulary::load(path) : nullptr;  // random weights: random tokens only
  std::mt19937 random(1);
  nlohmann::json out = nlohmann::json::array();
  for (const auto& text : nlohmann::json::parse(file)) {
    const auto part = [&](const char* name) {
      if (const auto found = text.find(name); found != text.end() && found->is_number()) {
        Tokens tokens(found->get<std::size_t>());
        for (TokenId& token : tokens)
          token = static_cast<TokenId>(random() % static_cast<unsigned>(model->hyper().vocabulary));
        return tokens;
      }
      if (vocabulary == nullptr) return Tokens();
      return vocabulary->tokenize(text.value(name, std::string()), std::string_view(name) == "before", true);
    };
    const Tokens before = part("before"), old = part("old"), fresh = part("new"), after = part("after"),
                 next = part("next");
    Tokens whole = before, edited_text;
    whole.insert(whole.end(), old.begin(), old.end());
    whole.insert(whole.end(), after.begin(), after.end());
    const PositionRange range{std::ssize(before), std::ssize(before) + std::ssize(old)};
    edited_text = edited(whole, range, fresh);
    Session session(decoder, options);
    nlohmann::json row = {
        {"before", before.size()}, {"old", old.size()}, {"new", fresh.size()}, {"after", after.size()}};
    if (moves > 0) {
      session.prefill(whole);
      const Rows unmoved = distributions(*session.fork(), next);
      for (int moved = 2, report = 2; moved <= moves; moved += 2) {
        try {
          session.edit(range.last, range.last, Tokens{whole.front()});
          session.edit(range.last, range.last + 1, Tokens{});
        } catch (const Error& error) {
          row["refused"]["moved"] = error.what();
          break;
        }
        if (moved != report) continue;
        row["moved"].push_back({{"moves", moved}, {"kl", kl(unmoved, distributions(*session.fork(), next))}});
        report *= 2;
      }
      out.push_back(row);
      continue;
    }
    Rows truth;
    for (int round = 0; round < rounds; ++round)
      for (const std::string mode : {"read", "exact", "reuse", "stale"}) {
        const bool first = round == 0;
        if (mode == "stale" && (!first || (next.empty() && !text.contains("questions")))) continue;
        if (row.contains("refused") && row["refused"].contains(mode)) continue;
        session.clear();
        if (mode == "read") {
          row["ms"][mode].push_back(ms_of([&] { session.prefill(edited_text); }));
        } else {
          session.prefill(whole);
          try {
            if (mode != "stale")
              row["ms"][mode].push_back(
                  ms_of([&] { session.edit(range.first, range.last, fresh, parse_edit_mode(mode), whole); }));
          } catch (const Error& error) {
            row["refused"][mode] = error.what();
            continue;
          }
        }
        if (!first) continue;
        if (text.contains("questions"))
          for (const auto& question : text["questions"])
            row["answers"][mode].push_back(
                answer(session, *vocabulary, vocabulary->tokenize(question.get<std::string>(), false, true)));
        if (next.empty()) continue;
        const Rows rows = distributions(session, next);
        if (truth.empty())
          truth = rows;
        else
          row["kl"][mode] = kl(truth, rows);
      }
    out.push_back(row);
  }
  std::printf("%s\n", out.dump(1).c_str());
}

}  // namespace
}  // namespace palimpsest::bench

int main(int argc, char** argv) {
  return palimpsest::bench::bench_main("edits_bench", argc, argv, palimpsest::bench::run);
}
