#include "palimpsest/engine/generation/generator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>

#include "palimpsest/engine/speculation/drafter.h"
#include "palimpsest/text/utf8.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

class GeneratorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = default_model();
    vocabulary_ = Vocabulary::load(path);
    decoder_ = std::make_shared<Decoder>(Model::load(path), 1);
    session_ = std::make_unique<Session>(decoder_, SessionOptions{.method = parse_method("streaming:budget=64")});
  }
  Generation write(const std::vector<TokenId>& prompt, const GenerateOptions& options, SamplerOptions sampling = {}) {
    Sampler sampler(sampling, vocabulary_.get(), vocabulary_->size());
    text_.clear();
    return generate(
        *session_, sampler, *vocabulary_, prompt, options,
        [&](std::string_view piece) {
          EXPECT_FALSE(piece.empty());
          EXPECT_FALSE(invalid_utf8(piece));
          text_ += piece;
          if (text_.size() > cancel_after_) cancel_ = true;
        },
        cancel_);
  }
  static SamplerOptions greedy() {
    SamplerOptions options;
    options.temperature = 0;
    return options;
  }

  std::shared_ptr<Vocabulary> vocabulary_;
  std::shared_ptr<Decoder> decoder_;
  std::unique_ptr<Session> session_;
  std::string text_;
  std::atomic<bool> cancel_{false};
  std::size_t cancel_after_ = std::string::npos;
};

TEST_F(GeneratorTest, CountsAndTimes) {
  const Generation g = write(vocabulary_->tokenize("One day", true, false), {.max_tokens = 100, .stop = {}}, greedy());
  EXPECT_EQ(g.finish, Finish::kLength);
  EXPECT_EQ(g.tokens, 100);
  EXPECT_EQ(g.tpot.count(), 99);
  EXPECT_GT(g.ttft_ms, 0);
  EXPECT_EQ(g.prompt_tokens, static_cast<long long>(vocabulary_->tokenize("One day", true, false).size()));
  EXPECT_GE(g.unread, 0);
}

TEST_F(GeneratorTest, GoesOnWhereItStopped) {
  const std::vector<TokenId> begin = {vocabulary_->bos()};
  write(begin, {.max_tokens = 120, .stop = {}}, greedy());
  const std::string whole = text_;
  session_->clear();
  const Generation first = write(begin, {.max_tokens = 70, .stop = {}}, greedy());
  const std::string head = text_;
  write({first.unread}, {.max_tokens = 50, .stop = {}}, greedy());
  EXPECT_EQ(head + text_, whole);
}

TEST_F(GeneratorTest, StopStringsEndTheText) {
  const std::vector<TokenId> begin = {vocabulary_->bos()};
  write(begin, {.max_tokens = 60, .stop = {}}, greedy());
  const std::string whole = text_;
  ASSERT_GT(whole.size(), 60u);
  for (const std::string& stop : {whole.substr(20, 12), whole.substr(33, 3), std::string("zzz")}) {
    session_->clear();
    const Generation g = write(begin, {.max_tokens = 60, .stop = {stop}}, greedy());
    EXPECT_EQ(text_, whole.substr(0, whole.find(stop))) << stop;
    EXPECT_EQ(g.finish, stop == "zzz" ? Finish::kLength : Finish::kStopped);
  }
}

TEST_F(GeneratorTest, StopsWhenAsked) {
  cancel_after_ = 40;
  const Generation g = write({vocabulary_->bos()}, {.max_tokens = -1, .stop = {}, .ignore_end = true}, greedy());
  EXPECT_EQ(g.finish, Finish::kCancelled);
  EXPECT_GT(text_.size(), 40u);
  EXPECT_LT(text_.size(), 60u);
}

TEST_F(GeneratorTest, AnEndTokenEndsUnlessIgnored) {
  SamplerOptions sampling = greedy();
  sampling.grammar = "root ::= \"a\"";  // after "a" only the end of the text is allowed
  const Generation g = write({vocabulary_->bos()}, {.max_tokens = 50, .stop = {}}, sampling);
  EXPECT_EQ(g.finish, Finish::kEnd);
  EXPECT_EQ(text_, "a");
  EXPECT_EQ(g.tokens, 1);
}

TEST_F(GeneratorTest, AStopTokenEndsEvenIfEndsAreIgnored) {
  SamplerOptions sampling = greedy();
  const GenerateOptions options{.max_tokens = 50, .stop = {}, .ignore_end = true, .keep = true};
  const Generation whole = write({vocabulary_->bos()}, options, sampling);
  sampling.stop_tokens = {vocabulary_->size() - 1, whole.written.at(20)};
  const auto first = std::ranges::find(whole.written, whole.written.at(20)) - whole.written.begin();
  session_->clear();
  const Generation g = write({vocabulary_->bos()}, options, sampling);
  EXPECT_EQ(g.finish, Finish::kEnd);
  EXPECT_EQ(g.tokens, first);
  EXPECT_EQ(g.unread, -1);
}

TEST_F(GeneratorTest, BytesOfACharacterComeTogether) {
  SamplerOptions sampling = greedy();
  sampling.grammar = "root ::= \"\xC3\xA9\xE2\x82\xAC\" \"!\"";  // not in the vocabulary: generated as single bytes
  const Generation g = write({vocabulary_->bos()}, {.max_tokens = 50, .stop = {}}, sampling);
  EXPECT_EQ(text_, "\xC3\xA9\xE2\x82\xAC!");
  EXPECT_GT(g.tokens, 3);
}

TEST_F(GeneratorTest, APromptIsReadInChunksUntilCancelled) {
  cancel_ = true;
  const auto prompt = vocabulary_->tokenize(std::string(4000, 'x'), true, false);
  const Generation g = write(prompt, {.max_tokens = 5, .stop = {}}, greedy());
  EXPECT_EQ(g.finish, Finish::kCancelled);
  EXPECT_EQ(g.prompt_tokens, 512);
  EXPECT_EQ(g.tokens, 0);
}

// Proposes the text of an earlier run; some of its drafts are wrong.
class KnownText final : public Drafter {
 public:
  KnownText(std::vector<TokenId> text, unsigned seed) : text_(std::move(text)), random_(seed) {}
  void append(std::span<const TokenId> tokens) override { read_ += tokens.size(); }
  std::span<const TokenId> draft(int max) override {
    drafts_.clear();
    for (std::size_t i = read_; i < text_.size() && max > 0; ++i, --max)
      drafts_.push_back(random_() % 5 == 0 ? TokenId{7} : text_[i]);
    return drafts_;
  }

 private:
  std::vector<TokenId> text_, drafts_;
  std::mt19937 random_;
  std::size_t read_ = 0;
};

TEST_F(GeneratorTest, DraftsDoNotChangeTheText) {
  const std::vector<TokenId> begin = vocabulary_->tokenize("One day", true, false);
  std::mt19937 random(1);
  long long accepted = 0, rejected = 0;
  for (const char* method : {"full", "streaming:budget=32", "h2o:budget=48,every=8", "snapkv:budget=48",
                             "streaming:budget=32,mechanism=shift,every=4", "keydiff:budget=40,every=5"})
    for (int run = 0; run < 6; ++run) {
      SCOPED_TRACE(std::string(method) + ", run " + std::to_string(run));
      SamplerOptions sampling;
      sampling.temperature = run % 2 == 0 ? 0.8F : 0;
      sampling.seed = static_cast<std::uint32_t>(run);
      sampling.repeat_penalty = run == 3 ? 1.2F : 1;
      if (run == 4) sampling.grammar = "root ::= ([a-z] | \" \")+ \".\"";
      GenerateOptions options{.max_tokens = 80, .stop = {}, .ignore_end = run != 4, .keep = true};
      if (run == 5) options.stop = {"he"};
      SessionOptions plain{.method = parse_method(method)};
      session_ = std::make_unique<Session>(decoder_, plain);
      const Generation whole = write(begin, options, sampling);
      const std::string text = text_;
      std::vector<TokenId> known = begin;
      known.insert(known.end(), whole.written.begin(), whole.written.end());
      for (int i = 0; i < 20; ++i) known.push_back(static_cast<TokenId>(random() % 100));  // beyond the end

      SessionOptions drafting = plain;
      drafting.draft_max = 5;
      session_ = std::make_unique<Session>(decoder_, drafting);
      Speculation speculation(std::make_unique<KnownText>(known, random()), {.max = 5, .adaptive = run == 2});
      options.drafts = &speculation;
      const Generation drafted = write(begin, options, sampling);
      EXPECT_EQ(text_, text);
      EXPECT_EQ(drafted.written, whole.written);
      EXPECT_EQ(drafted.unread, whole.unread);
      EXPECT_EQ(drafted.tokens, whole.tokens);
      EXPECT_EQ(drafted.finish, whole.finish);
      EXPECT_EQ(session_->position(),
                static_cast<long long>(begin.size()) + whole.tokens - (whole.unread >= 0 ? 1 : 0));
      accepted += drafted.drafts.accepted;
      rejected += drafted.drafts.drafts - drafted.drafts.accepted;
    }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(rejected, 100);
}

// The default model, sampled at 0.8, with drafts from the text itself. The long form has 200 texts of 20 seeds each:
// PALIMPSEST_DRAFT_TEXTS=200x20 build/test_engine --gtest_filter='*TextsWithLookup*'
TEST_F(GeneratorTest, TextsWithLookupAreThoseWithout) {
  int texts = 3, seeds = 2;
  const char* const form = std::getenv("PALIMPSEST_DRAFT_TEXTS");
  if (form != nullptr) {
    ASSERT_EQ(std::sscanf(form, "%dx%d", &texts, &seeds), 2) << "PALIMPSEST_DRAFT_TEXTS=200x20";
  }
  const std::string path = default_model();
  vocabulary_ = Vocabulary::load(path);
  decoder_ = std::make_shared<Decoder>(Model::load(path), 1);
  const char* const names[] = {"Tom", "Lily", "Max", "Anna", "Ben", "Mia", "Sam", "Nell", "Gwen", "Jack"};
  const char* const things[] = {"a red ball",    "an old boat",  "a small dog",     "a blue kite", "a new friend",
                                "a lost button", "a big tree",   "a warm blanket",  "a gray cat",  "a loud drum",
                                "a toy train",   "a gold coin",  "a yellow flower", "a tall hat",  "a sweet cake",
                                "a wooden box",  "a green frog", "a paper plane",   "a soft bear", "a long rope"};
  int different = 0;
  long long accepted = 0;
  for (int text = 0; text < texts; ++text) {
    const std::string begin =
        fmt::format("One day, {} found {}. {} ", names[text % 10], things[text / 10 % 20], names[text % 10]);
    const std::vector<TokenId> prompt = vocabulary_->tokenize(begin, true, false);
    for (int seed = 0; seed < seeds; ++seed)
      for (const char* method : {"auto", "streaming:budget=64"}) {
        SamplerOptions sampling;
        sampling.temperature = 0.8F;
        sampling.seed = static_cast<std::uint32_t>(1000 * text + seed);
        GenerateOptions options{.max_tokens = 120, .stop = {}, .ignore_end = true, .keep = true};
        SessionOptions session{.method = parse_method(method)};
        session_ = std::make_unique<Session>(decoder_, session);
        const Generation plain = write(prompt, options, sampling);
        session.draft_max = 3;
        session_ = std::make_unique<Session>(decoder_, session);
        Speculation speculation(std::make_unique<LookupDrafter>(), {.max = 3});
        options.drafts = &speculation;
        const Generation drafted = write(prompt, options, sampling);
        different += drafted.written != plain.written;
        accepted += drafted.drafts.accepted;
      }
  }
  EXPECT_EQ(different, 0) << "of " << 2 * texts * seeds;
  EXPECT_GT(accepted, texts * seeds);
  if (form != nullptr) fmt::print("{} texts, {} drafts accepted\n", 2 * texts * seeds, accepted);
}

// An exception between a step with drafts and its acceptance: the session holds only tokens of the text.
TEST_F(GeneratorTest, DraftsAreForgottenWhenTheListenerThrows) {
  const std::vector<TokenId> begin = vocabulary_->tokenize("One day", true, false);
  GenerateOptions options{.max_tokens = 20, .stop = {}, .ignore_end = true, .keep = true};
  session_ = std::make_unique<Session>(decoder_, SessionOptions{.method = parse_method("full")});
  std::vector<TokenId> known = begin;
  for (const TokenId token : write(begin, options, greedy()).written) known.push_back(token);

  session_ = std::make_unique<Session>(decoder_, SessionOptions{.method = parse_method("full"), .draft_max = 5});
  Speculation speculation(std::make_unique<KnownText>(known, 1U), {.max = 5, .adaptive = false});
  options.drafts = &speculation;
  Sampler sampler(greedy(), vocabulary_.get(), vocabulary_->size());
  int calls = 0;
  const auto emit = [&](std::string_view) {
    if (++calls == 4) throw std::runtime_error("disk full");
  };
  EXPECT_THROW(generate(*session_, sampler, *vocabulary_, begin, options, emit, cancel_), std::runtime_error);
  const Position read = session_->position();
  EXPECT_EQ(read, static_cast<Position>(begin.size()) + calls - 1) << "the last token is not read yet";
  Session plain(decoder_, SessionOptions{.method = parse_method("full")});
  plain.prefill(std::span(known).first(static_cast<std::size_t>(read)));
  const std::vector<TokenId> more = {5, 6};
  const auto expected = plain.prefill(more);
  EXPECT_TRUE(std::ranges::equal(session_->prefill(more), expected));
  EXPECT_EQ(session_->position(), plain.position());
}

// The library's own loop: a prompt after a step with drafts that was never accepted.
TEST_F(GeneratorTest, APromptForgetsDraftsThatWereNotAccepted) {
  const std::vector<TokenId> begin = vocabulary_->tokenize("One day", true, false), more = {5, 6, 7};
  session_ = std::make_unique<Session>(decoder_, SessionOptions{.method = parse_method("full"), .draft_max = 5});
  Session plain(decoder_, SessionOptions{.method = parse_method("full")});
  session_->prefill(begin);
  plain.prefill(begin);
  session_->decode(9, std::vector<TokenId>{1, 2, 3});
  plain.decode(9);
  const auto expected = plain.prefill(more);
  EXPECT_TRUE(std::ranges::equal(session_->prefill(more), expected));
  EXPECT_EQ(session_->position(), plain.position());
}

}  // namespace
}  // namespace palimpsest::testing
