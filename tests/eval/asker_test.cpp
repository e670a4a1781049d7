#include "palimpsest/eval/asker.h"

#include <gtest/gtest.h>

#include "palimpsest/eval/likelihood.h"
#include "palimpsest/evict/legality.h"
#include "tests/support/draws.h"
#include "tests/support/error_of.h"
#include "tests/support/scorer_file.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

struct Small {
  std::shared_ptr<Model> model = Model::load(default_model());
  std::shared_ptr<Decoder> decoder = std::make_shared<Decoder>(model, 1);
  std::shared_ptr<Vocabulary> vocabulary = Vocabulary::load(default_model());
};

const Small& small() {
  static const Small made;
  return made;
}

std::vector<TokenId> some_tokens(std::size_t count, unsigned seed) {
  std::vector<TokenId> out;
  for (std::size_t i = 0; i < count; ++i) {
    seed = seed * 1664525U + 1013904223U;
    out.push_back(static_cast<TokenId>(3 + (seed >> 8U) % 200));
  }
  return out;
}

// The oracle of Asker: one session per question.
std::vector<TokenId> plain(const Prompt& prompt, std::size_t question, QuestionSeen seen, const SessionOptions& options,
                           int tokens, long long* evicted) {
  Session session(small().decoder, options);
  std::span<const float> logits;
  std::vector<TokenId> all(prompt.context);
  all.insert(all.end(), prompt.questions[question].begin(), prompt.questions[question].end());
  const std::size_t start = prompt.starts.empty() ? 1 : prompt.starts[question];
  const std::size_t read =
      seen == QuestionSeen::kAfter && options.method.cache ? prompt.context.size() : all.size() - start;
  session.prefill(std::span(all).first(read));
  for (const TokenId token : std::span(all).subspan(read)) logits = session.decode(token);
  std::vector<TokenId> out;
  while (true) {
    const TokenId token = top_two(logits).best;
    if (small().vocabulary->is_end(token)) break;
    out.push_back(token);
    if (static_cast<int>(out.size()) == tokens) break;
    logits = session.decode(token);
  }
  *evicted = session.cache().evicted();
  return out;
}

TEST(Asker, AnswersAsASessionOfItsOwnWould) {
  const Prompt prompt{some_tokens(110, 1), {some_tokens(9, 2), some_tokens(17, 3), some_tokens(5, 4)}};
  const std::vector<MethodRow> rows(methods().begin(), methods().end());
  for (const MethodRow& row : some_of(rows, test_length<std::size_t>(12, 100, 4))) {
    SessionOptions options;
    options.method = row.preset;
    options.chunk = 32;
    options.page_size = 16;
    if (row.preset.evicts()) {
      try {
        set_option(options.method, "budget", "64");
        validate(options.method);
        check_legal(Scope::kHead, {.method = options.method, .budget = 64, .page_size = 16});
      } catch (const Error&) {
        set_option(options.method, "budget", "300");  // protects more than 64 tokens by default
      }
    }
    if (needs_scorer(row.preset)) continue;
    if (get_option(options.method, "split") == "duo") set_option(options.method, "split", "uniform");  // needs a list
    for (const QuestionSeen seen : {QuestionSeen::kBefore, QuestionSeen::kAfter}) {
      SCOPED_TRACE(std::string(row.name) + (seen == QuestionSeen::kAfter ? ", question seen after" : ""));
      Asker asker(small().decoder, small().vocabulary, options);
      for (int twice = 0; twice < 2; ++twice) {  // an asker can be reused
        const auto answers = asker.ask(prompt, seen, {.max_tokens = 8});
        ASSERT_EQ(answers.size(), 3u);
        for (std::size_t q = 0; q < 3; ++q) {
          long long evicted = 0;
          EXPECT_EQ(answers[q].tokens, plain(prompt, q, seen, options, 8, &evicted)) << "question " << q;
          EXPECT_EQ(answers[q].evicted, evicted);
          EXPECT_EQ(answers[q].prompt_tokens, static_cast<long long>(110 + prompt.questions[q].size()));
        }
      }
    }
  }
}

// The start of an answer is read after the end of the prompt: what follows sees the compressed cache only.
TEST(Asker, ReadsStartsOfAnswersAfterTheCompression) {
  Prompt prompt{some_tokens(110, 1), {some_tokens(9, 2), some_tokens(17, 3)}};
  prompt.starts = {4, 7};
  for (const char* name : {"full", "snapkv", "ems", "keydiff", "kvzip"}) {
    SessionOptions options;
    options.method = parse_method(name);
    options.chunk = 32;
    options.page_size = 16;
    if (options.method.evicts()) set_option(options.method, "budget", "64");
    for (const QuestionSeen seen : {QuestionSeen::kBefore, QuestionSeen::kAfter}) {
      SCOPED_TRACE(std::string(name) + (seen == QuestionSeen::kAfter ? ", question seen after" : ""));
      Asker asker(small().decoder, small().vocabulary, options);
      const auto answers = asker.ask(prompt, seen, {.max_tokens = 8});
      for (std::size_t q = 0; q < 2; ++q) {
        long long evicted = 0;
        EXPECT_EQ(answers[q].tokens, plain(prompt, q, seen, options, 8, &evicted)) << "question " << q;
      }
    }
  }
}

TEST(Asker, StopsAtALineAfterTheFirstWord) {
  SessionOptions options;
  Asker asker(small().decoder, small().vocabulary, options);
  const Prompt prompt{some_tokens(20, 1), {some_tokens(3, 2)}};
  const QuestionAnswer whole = asker.ask(prompt, QuestionSeen::kBefore, {.max_tokens = 200}).front();
  const QuestionAnswer line =
      asker.ask(prompt, QuestionSeen::kBefore, {.max_tokens = 200, .stop_at_newline = true}).front();
  EXPECT_EQ(line.text, whole.text.substr(0, whole.text.find('\n', whole.text.find_first_not_of(" \n\t"))));
}

// Sampled answers: the same seed gives the same draws for every answer.
TEST(Asker, SamplesBySeed) {
  Asker asker(small().decoder, small().vocabulary, SessionOptions());
  const std::vector<TokenId> question = some_tokens(3, 2);
  const Prompt prompt{some_tokens(20, 1), {question, question}};
  const auto sampled = [&](std::uint32_t seed) {
    SamplerOptions sampler;
    sampler.temperature = 100;  // the model's distributions are narrow
    sampler.top_k = 0;
    sampler.top_p = 1;
    sampler.min_p = 0;
    sampler.seed = seed;
    sampler.min_tokens = 40;
    return asker.ask(prompt, QuestionSeen::kAfter, {.max_tokens = 40, .sampler = sampler});
  };
  const auto first = sampled(1), again = sampled(1), other = sampled(2);
  EXPECT_EQ(first[0].tokens.size(), 40u);
  EXPECT_EQ(first[0].tokens, first[1].tokens);
  EXPECT_EQ(first[0].tokens, again[0].tokens);
  EXPECT_NE(first[0].tokens, other[0].tokens);
}

TEST(Asker, ContextEndsWhereTheTokensOfTheQuestionsPart) {
  const auto& vocabulary = *small().vocabulary;
  const std::string context = "Once upon a time there was a cat. Its name was";
  const std::vector<std::string> questions = {" Tom. Who?", " Tim. Who?"};
  const Prompt prompt = tokenize_prompt(vocabulary, context, questions);
  ASSERT_EQ(prompt.questions.size(), 2u);
  for (std::size_t q = 0; q < 2; ++q) {
    std::vector<TokenId> joined(prompt.context);
    joined.insert(joined.end(), prompt.questions[q].begin(), prompt.questions[q].end());
    EXPECT_EQ(joined, vocabulary.tokenize(context + questions[q], true, false));
  }
  EXPECT_GT(prompt.context.size(), 5u);
  EXPECT_EQ(prompt.starts, (std::vector<std::size_t>{0, 0}));
  const std::vector<std::string> starts = {" It was", ""};
  const Prompt begun = tokenize_prompt(vocabulary, context, questions, starts);
  EXPECT_EQ(begun.context, prompt.context);
  EXPECT_EQ(begun.questions[0].size(), prompt.questions[0].size() + begun.starts[0]);
  EXPECT_GT(begun.starts[0], 1u);
  EXPECT_EQ(begun.starts[1], 0u);
  const std::vector<std::string> nothing = {""};
  EXPECT_NE(error_of([&] { tokenize_prompt(vocabulary, context, nothing); }).find("question"), std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
