// Encoders against plain loops in double precision, and against libllama's own API with one text at a time.
#include "palimpsest/encoder/encoder.h"

#include <gtest/gtest.h>
#include <llama.h>

#include <atomic>
#include <cmath>
#include <map>
#include <stdexcept>
#include <thread>

#include "palimpsest/text/encoder_text.h"
#include "tests/support/error_of.h"
#include "tests/support/random_tokens.h"
#include "tests/support/tiny_encoder.h"

namespace palimpsest::testing {
namespace {

using Floats = std::vector<float>;

const std::function<void()> kNoCheck = [] {};

std::vector<SharedTokens> texts_of(std::initializer_list<int> lengths) {
  std::vector<SharedTokens> out;
  for (const int length : lengths)
    out.emplace_back(random_tokens(static_cast<std::size_t>(length), static_cast<unsigned>(10 + out.size()), 60));
  return out;
}

std::vector<TokenId> list_of(const SharedTokens& text) {
  return {text.begin(), text.end()};
}

std::vector<double> pooled(const std::vector<std::vector<double>>& hidden, EncoderPooling pooling) {
  if (pooling == EncoderPooling::kCls) return hidden.front();
  if (pooling == EncoderPooling::kLast) return hidden.back();
  std::vector<double> mean(hidden.front().size());
  for (const auto& row : hidden)
    for (std::size_t i = 0; i < row.size(); ++i) mean[i] += row[i] / static_cast<double>(hidden.size());
  return mean;
}

void expect_equal(const Floats& got, std::vector<double> expected, double tolerance, const std::string& what) {
  double sum = 0;
  for (const double x : expected) sum += x * x;
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i] / std::sqrt(sum), tolerance) << what;
}

// What libllama gives for one text in a context of its own.
Floats by_hand(const std::string& path, const SharedTokens& text, enum llama_pooling_type pooling) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_backend_dev_t none[] = {nullptr};
  llama_model_params params = llama_model_default_params();
  params.devices = none;
  const std::unique_ptr<llama_model, void (*)(llama_model*)> model(llama_model_load_from_file(path.c_str(), params),
                                                                   llama_model_free);
  if (!model) throw std::runtime_error("libllama refuses " + path);
  llama_context_params options = llama_context_default_params();
  options.n_ctx = options.n_batch = options.n_ubatch = 64;
  options.n_threads = options.n_threads_batch = 1;
  options.embeddings = true;
  options.pooling_type = pooling;
  options.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  const std::unique_ptr<llama_context, void (*)(llama_context*)> context(llama_init_from_model(model.get(), options),
                                                                         llama_free);
  std::vector<TokenId> tokens = list_of(text);
  const llama_batch batch = llama_batch_get_one(tokens.data(), static_cast<std::int32_t>(tokens.size()));
  const bool decodes = llama_get_memory(context.get()) != nullptr && !llama_model_has_encoder(model.get());
  if ((decodes ? llama_decode(context.get(), batch) : llama_encode(context.get(), batch)) != 0)
    throw std::runtime_error("libllama fails");
  const float* const result = llama_get_embeddings_seq(context.get(), 0);
  const bool ranks = pooling == LLAMA_POOLING_TYPE_RANK;
  return {result,
          result + (ranks ? static_cast<int>(llama_model_n_cls_out(model.get())) : llama_model_n_embd(model.get()))};
}

TEST(EncoderTest, EqualsPlainLoops) {
  const std::string path = tiny_encoder({});
  const auto texts = texts_of({1, 7, 30, 64, 2, 11});
  for (const EncoderPooling pooling : {EncoderPooling::kMean, EncoderPooling::kCls, EncoderPooling::kLast}) {
    const auto encoder = Encoder::load(path, {.pooling = pooling});
    EXPECT_EQ(encoder->width(), 32);
    EXPECT_EQ(encoder->context(), 64);
    const auto got = encoder->encode(texts, kNoCheck);
    ASSERT_EQ(got.size(), texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i)
      expect_equal(got[i], pooled(plain_bert(path, list_of(texts[i])), pooling), 2e-3,
                   std::string(name_of(pooling)) + " " + std::to_string(i));
  }
}

TEST(EncoderTest, RanksByTheHeadOfTheFile) {
  const std::string path = tiny_encoder({.pooling = 4, .head = true});
  const auto encoder = Encoder::load(path);
  EXPECT_EQ(encoder->pooling(), EncoderPooling::kRank);
  EXPECT_EQ(encoder->width(), 1);
  const auto texts = texts_of({5, 20, 9, 40});
  const auto got = encoder->encode(texts, kNoCheck);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const double expected = plain_score(path, plain_bert(path, list_of(texts[i])).front());
    EXPECT_NEAR(got[i].front(), expected, 0.02 * (1 + std::abs(expected))) << i;
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_GT(std::abs(got[i].front() - got[j].front()), 0.01) << "one score for all";
  }
}

// The poolings of a file and of the caller; other architectures.
TEST(EncoderTest, EqualsLibllamaOneTextAtATime) {
  const auto texts = texts_of({3, 25, 50, 64, 1});
  // Seven layers: EmbeddingGemma's sixth has no window, of ModernBERT each third.
  const std::map<std::string, int> windows = {{"attention.sliding_window", 16}};
  const std::vector<TinyEncoder> shapes = {
      {.architecture = "bert"},
      {.architecture = "nomic-bert"},
      {.architecture = "nomic-bert-moe",
       .layers = 4,
       .keys = {{"moe_every_n_layers", 2}, {"expert_count", 4}, {"expert_used_count", 2}}},
      {.architecture = "eurobert"},
      {.architecture = "t5encoder"},
      {.architecture = "modern-bert", .layers = 7, .keys = windows},
      {.architecture = "neo-bert"},
      {.architecture = "jina-bert-v2"},
      {.architecture = "jina-bert-v3"},
      {.architecture = "gemma-embedding", .layers = 7, .keys = windows},
  };
  for (TinyEncoder shape : shapes) {
    const std::string& architecture = shape.architecture;
    SCOPED_TRACE(architecture);
    shape.pooling = 2;
    const std::string path = tiny_encoder(shape);
    const auto encoder = Encoder::load(path);
    EXPECT_EQ(encoder->pooling(), EncoderPooling::kCls);
    EXPECT_EQ(encoder->file().architecture, architecture);
    const auto got = encoder->encode(texts, kNoCheck);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const Floats hand = by_hand(path, texts[i], LLAMA_POOLING_TYPE_CLS);
      expect_equal(got[i], {hand.begin(), hand.end()}, 1e-3, architecture + " " + std::to_string(i));
    }
    // The texts are not all alike, so a mask that is missing would be seen.
    double apart = 0;
    for (std::size_t j = 0; j < got[1].size(); ++j) apart += std::abs(got[1][j] - got[2][j]);
    EXPECT_GT(apart, 0.01) << architecture;
  }
}

// A decoder whose file has a head, and libllama a cache for it.
TEST(EncoderTest, DecodersThatRankEqualLibllama) {
  const std::string path = tiny_encoder({.architecture = "qwen3", .pooling = 4, .head = true});
  EXPECT_TRUE(is_encoder(GgufFile::open(path)));
  const auto encoder = Encoder::load(path);
  EXPECT_EQ(encoder->width(), 2);
  const auto texts = texts_of({3, 25, 50, 64, 1, 60, 60, 60, 60, 60});
  for (int repetition = 0; repetition < 2; ++repetition) {
    const auto got = encoder->encode(texts, kNoCheck);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const Floats hand = by_hand(path, texts[i], LLAMA_POOLING_TYPE_RANK);
      ASSERT_EQ(got[i].size(), hand.size());
      for (std::size_t j = 0; j < hand.size(); ++j) EXPECT_NEAR(got[i][j], hand[j], 1e-3) << i;
      EXPECT_NEAR(got[i][0] + got[i][1], 1, 1e-4) << "a softmax";
    }
    EXPECT_GT(std::abs(got[1][0] - got[2][0]), 1e-3) << "one score for all";
  }
}

TEST(EncoderTest, ManyTextsAreReadInBatches) {
  const auto encoder = Encoder::load(tiny_encoder({}));
  std::vector<SharedTokens> texts(200, texts_of({3}).front());
  const auto got = encoder->encode(texts, kNoCheck);
  ASSERT_EQ(got.size(), 200u);
  for (const Floats& each : got) expect_equal(each, {got[0].begin(), got[0].end()}, 1e-4, "of equal texts");
  EXPECT_EQ(encoder->load().batches, 4) << "at most 64 texts";
  EXPECT_EQ(encoder->load().tokens, 600);
  encoder->encode(std::vector<SharedTokens>(17, texts_of({60}).front()), kNoCheck);
  EXPECT_EQ(encoder->load().batches, 9) << "at most 256 tokens: 4 texts";
  EXPECT_TRUE(encoder->encode({}, kNoCheck).empty());
}

TEST(EncoderTest, CallersTakeTurns) {
  const auto encoder = Encoder::load(tiny_encoder({}), {.threads = 2});
  std::vector<Floats> expected;
  std::vector<SharedTokens> texts;
  for (int i = 1; i <= 6; ++i) texts.push_back(texts_of({7 * i}).front());
  for (const SharedTokens& text : texts) expected.push_back(encoder->encode({&text, 1}, kNoCheck).front());
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  for (std::size_t i = 0; i < texts.size(); ++i)
    threads.emplace_back([&, i] {
      const std::vector<SharedTokens> mine(20 * i + 1, texts[i]);
      for (const Floats& each : encoder->encode(mine, kNoCheck))
        for (std::size_t j = 0; j < each.size(); ++j) failures += std::abs(each[j] - expected[i][j]) > 1e-3F;
    });
  // A caller that gives up leaves the queue.
  for (int i = 0; i < 5; ++i)
    EXPECT_THROW(encoder->encode(texts, [] { throw std::runtime_error("given up"); }), std::runtime_error);
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(encoder->load().callers, 0);
}

TEST(EncoderTest, TheVocabularyPutsItsTokensAtTheEnds) {
  const auto vocabulary = Vocabulary::load(tiny_encoder({}));
  const auto texts = [&](const std::vector<TokenId>& tokens) {
    std::string out;
    for (const TokenId token : tokens) out += vocabulary->piece(token, true) + "|";
    return out;
  };
  EXPECT_EQ(texts(encoder_tokens(*vocabulary, "The cats")), "[CLS]| the| cat|s|[SEP]|");
  EXPECT_EQ(texts(encoder_tokens(*vocabulary, "")), "[CLS]|[SEP]|");
  EXPECT_EQ(texts(pair_tokens(*vocabulary, "dog", "a cat")), "[CLS]| dog|[SEP]| a| cat|");
}

TEST(EncoderTest, Refusals) {
  const auto refused = [](const TinyEncoder& shape, const EncoderOptions& options, const char* part) {
    const std::string path = tiny_encoder(shape, "refused.gguf");
    const std::string message = error_of([&] { Encoder::load(path, options); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  };
  refused({.pooling = 4}, {}, "no classification head");
  refused({}, {.pooling = EncoderPooling::kRank}, "no classification head");
  refused({.keys = {{"attention.head_count", 5}}}, {}, "5 heads");
  refused({.keys = {{"attention.head_count", 0}}}, {}, "head_count");
  refused({.keys = {{"block_count", 3}}}, {}, "libllama cannot load");
  refused({.keys = {{"block_count", 100000}}}, {}, "block_count");
  refused({.keys = {{"embedding_length", 16}}}, {}, "token_embd.weight is 32 x");
  refused({.keys = {{"context_length", 65}}}, {}, "libllama cannot load");
  refused({.keys = {{"pooling_type", 9}}}, {}, "pooling_type");
  EXPECT_NE(error_of([] { parse_encoder_pooling("max"); }).find("mean, cls, last or rank"), std::string::npos);
  EXPECT_EQ(Encoder::load(tiny_encoder({}), {.context = 20})->context(), 20);
  EXPECT_EQ(Encoder::load(tiny_encoder({}), {.context = 2000})->context(), 64);
}

}  // namespace
}  // namespace palimpsest::testing
