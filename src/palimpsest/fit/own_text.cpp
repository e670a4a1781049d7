#include "palimpsest/fit/own_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <string_view>

#include "palimpsest/engine/sequence/lockstep.h"
#include "palimpsest/text/conversation.h"
#include "palimpsest/text/sampler.h"

namespace palimpsest {
namespace {

constexpr int kMaxAnswer = 320;  // tokens; a longer answer is cut

constexpr std::array<std::string_view, 16> kRequests = {
    "Write a short story about {}.",
    "Explain {} to a student, with examples.",
    "Write a news report about {}, with names, dates and numbers.",
    "Write a dialogue between two friends about {}.",
    "List ten facts about {}, one per line.",
    "Write a letter to a colleague about {}.",
    "Describe the history of {}.",
    "Write step-by-step instructions that have to do with {}.",
    "Write a Python program that has to do with {}, with comments.",
    "Compare two opinions about {}.",
    "Write the minutes of a meeting about {}: who said what.",
    "Invent a person who knows a lot about {}: name, age, home, family, work, plans.",
    "Write a quiz of five questions about {}, then the answers.",
    "Write a diary entry of a person whose day was about {}.",
    "Make a table of prices and amounts that have to do with {}.",
    "Summarise everything that was said so far, and add a thought about {}.",
};

constexpr std::array<std::string_view, 32> kSubjects = {"a lighthouse",        "bread baking",
                                                        "the solar system",    "a railway station",
                                                        "bees and honey",      "a lost key",
                                                        "electric cars",       "the Roman Empire",
                                                        "a mountain rescue",   "learning the piano",
                                                        "a football match",    "the human heart",
                                                        "an old library",      "coffee",
                                                        "a bank account",      "sorting numbers",
                                                        "a sea voyage",        "a school trip",
                                                        "volcanoes",           "a court case",
                                                        "planting a garden",   "a broken computer",
                                                        "the weather",         "a wedding",
                                                        "medicines and doses", "a chess tournament",
                                                        "recycling",           "a film festival",
                                                        "a new neighbour",     "the price of houses",
                                                        "a hospital at night", "travelling by train"};

// One text: what is read next, and what was read.
class Author {
 public:
  Author(const std::shared_ptr<const Vocabulary>& vocabulary, int number, int vocabulary_size)
      : vocabulary_(vocabulary),
        random_(static_cast<std::uint64_t>(number) + 1),
        sampler_({.seed = static_cast<std::uint32_t>(number) + 1}, vocabulary.get(), vocabulary_size) {
    if (!vocabulary->has_chat_template()) return;
    try {
      conversation_.emplace(ChatTemplate::load(vocabulary, ""), "");
    } catch (const Error&) {  // a template that needs more than messages: documents will do
    }
  }

  // The tokens before the next answer.
  std::vector<TokenId> ask() {
    const std::string request = next_request();
    const bool first = text.empty();
    std::string next;
    if (conversation_) {
      if (!first) conversation_->assistant(answer_);
      next = conversation_->user(request).text;
    } else {
      next = fmt::format("{}Title: {}\n\n", first ? "" : "\n\n", request.substr(0, request.size() - 1));
    }
    answer_.clear();
    in_answer_ = 0;
    const auto tokens = vocabulary_->tokenize(next, /*add_bos=*/first, /*special=*/true);
    text.insert(text.end(), tokens.begin(), tokens.end());
    return tokens;
  }

  // The next token of the answer; -1: the answer has ended.
  TokenId write(std::span<const float> logits) {
    const TokenId token = in_answer_ == kMaxAnswer ? -1 : sampler_.sample(logits);
    if (token < 0 || vocabulary_->is_end(token)) return -1;
    ++in_answer_;
    answer_ += vocabulary_->piece(token);
    text.push_back(token);
    return token;
  }

  std::vector<TokenId> text;

 private:
  std::string next_request() {
    const std::string_view request = kRequests[static_cast<std::size_t>(random_() % kRequests.size())];
    return fmt::format(fmt::runtime(request), kSubjects[static_cast<std::size_t>(random_() % kSubjects.size())]);
  }

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::mt19937_64 random_;
  Sampler sampler_;
  std::optional<Conversation> conversation_;
  std::string answer_;
  int in_answer_ = 0;  // tokens
};

}  // namespace

std::vector<std::vector<TokenId>> write_texts(const std::shared_ptr<Decoder>& decoder,
                                              const std::shared_ptr<const Vocabulary>& vocabulary, int first, int count,
                                              int tokens,
                                              const std::function<bool(long long done, long long total)>& progress) {
  SessionOptions options;
  options.method = parse_method("full");
  Lockstep batch(decoder, options, count);
  const int size = decoder->model().hyper().vocabulary;
  std::vector<std::unique_ptr<Author>> authors;
  for (int i = 0; i < count; ++i) authors.push_back(std::make_unique<Author>(vocabulary, first + i, size));

  std::vector<TokenId> next(at(count), -1);
  std::span<const float> logits;  // [count][size], of the last step
  for (;;) {
    long long done = 0;
    bool all = true;
    for (const auto& author : authors) {
      done += std::min<long long>(tokens, static_cast<long long>(author->text.size()));
      all = all && static_cast<int>(author->text.size()) >= tokens;
    }
    if (progress && !progress(done, static_cast<long long>(tokens) * count)) return {};
    if (all) break;
    // Sampled before any prompt is read: that overwrites the logits.
    for (std::size_t i = 0; i < next.size(); ++i)
      if (next[i] >= 0) next[i] = authors[i]->write(logits.subspan(i * at(size), at(size)));
    for (std::size_t i = 0; i < next.size(); ++i)
      while (next[i] < 0) next[i] = authors[i]->write(batch.session(static_cast<int>(i)).prefill(authors[i]->ask()));
    logits = batch.decode(next);
  }
  std::vector<std::vector<TokenId>> out;
  for (const auto& author : authors) out.emplace_back(author->text.begin(), author->text.begin() + tokens);
  return out;
}

}  // namespace palimpsest
