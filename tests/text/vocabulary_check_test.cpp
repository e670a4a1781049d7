// Files on which libllama would abort the process must be an Error before libllama reads them.
#include "palimpsest/text/vocabulary_check.h"

#include <ggml-cpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "palimpsest/text/sampler.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/error_of.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

// A valid sentencepiece vocabulary, for tests to damage.
struct Parts {
  std::string architecture = "llama";
  std::string model = "llama";
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types = {2, 3, 3};
  std::size_t scores = 0;  // one for each token if 0
  std::int64_t bos = 1;
  std::vector<const char*> merges = {};
  std::vector<std::int32_t> suppressed = {};
  Parts() {
    for (int byte = 0; byte < 256; ++byte) {
      tokens.push_back(fmt::format("<0x{:02X}>", byte));
      types.push_back(6);
    }
    tokens.push_back("a");
    types.push_back(1);
  }
};

std::string written(const Parts& parts) {
  const gguf_context_ptr g(gguf_init_empty());
  gguf_set_val_str(g.get(), "general.architecture", parts.architecture.c_str());
  gguf_set_val_u32(g.get(), "llama.context_length", 128);
  gguf_set_val_u32(g.get(), "llama.embedding_length", 32);
  gguf_set_val_u32(g.get(), "llama.block_count", 1);
  gguf_set_val_u32(g.get(), "llama.feed_forward_length", 32);
  gguf_set_val_u32(g.get(), "llama.attention.head_count", 2);
  gguf_set_val_f32(g.get(), "llama.attention.layer_norm_rms_epsilon", 1e-5F);
  std::vector<const char*> texts;
  for (const auto& token : parts.tokens) texts.push_back(token.c_str());
  const std::vector<float> scores(parts.scores == 0 ? texts.size() : parts.scores, 0.0F);
  gguf_set_val_str(g.get(), "tokenizer.ggml.model", parts.model.c_str());
  gguf_set_arr_str(g.get(), "tokenizer.ggml.tokens", texts.data(), texts.size());
  gguf_set_arr_data(g.get(), "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
  gguf_set_arr_data(g.get(), "tokenizer.ggml.token_type", GGUF_TYPE_INT32, parts.types.data(), parts.types.size());
  std::vector<const char*> merges = parts.merges;
  if (!merges.empty()) gguf_set_arr_str(g.get(), "tokenizer.ggml.merges", merges.data(), merges.size());
  if (!parts.suppressed.empty())
    gguf_set_arr_data(g.get(), "tokenizer.ggml.suppress_tokens", GGUF_TYPE_INT32, parts.suppressed.data(),
                      parts.suppressed.size());
  gguf_set_val_u32(g.get(), "tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(parts.bos));
  const std::string path = testing::own_file("vocabulary_check.gguf");
  gguf_write_to_file(g.get(), path.c_str(), true);
  return path;
}

TEST(VocabularyCheck, TakesAWholeOne) {
  const auto vocabulary = Vocabulary::load(written({}));
  EXPECT_EQ(vocabulary->size(), 260);
  EXPECT_EQ(vocabulary->detokenize(vocabulary->tokenize("ab\xFF", false, false)),
            "\xE2\x96\x81"
            "ab\xFF");  // no token for a space: its bytes
}

// Gemma 4: merges of characters, spaces as in SentencePiece, bytes for what has no token; newlines are never merged
// with other characters.
TEST(VocabularyCheck, TakesGemma4s) {
  Parts parts;
  parts.model = "gemma4";
  for (const char* token : {"b", "\xE2\x96\x81", "ab",
                            "\xE2\x96\x81"
                            "ab",
                            "\n", "\n\n"})
    parts.tokens.emplace_back(token), parts.types.push_back(1);
  parts.merges = {"a b", "\xE2\x96\x81 ab"};
  const auto vocabulary = Vocabulary::load(written(parts));
  EXPECT_EQ(vocabulary->size(), 266);
  EXPECT_EQ(vocabulary->tokenize("ab ab\n\nb\xC3\xA9", false, false),
            (std::vector<TokenId>{262, 263, 265, 260, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(vocabulary->tokenize("ab", true, false), (std::vector<TokenId>{1, 262}));
  for (const char* text : {"ab ab\n\nb\xC3\xA9", " ab", "a  b\n", "\xF0\x9F\x98\x80"})
    EXPECT_EQ(vocabulary->detokenize(vocabulary->tokenize(text, false, false)), text);
  parts.merges.clear();
  EXPECT_NE(error_of([&] { Vocabulary::load(written(parts)); }).find("merges"), std::string::npos);
}

// Gemma 4's marks of images and audio. Numbers that no token has are ignored.
TEST(VocabularyCheck, SuppressedTokensAreNotSampled) {
  Parts parts;
  parts.suppressed = {7, 1'000'000, -5};
  const auto vocabulary = Vocabulary::load(written(parts));
  std::vector<float> logits(260, 0.0F);
  logits[7] = 9;
  logits[11] = 5;
  EXPECT_EQ(Sampler({.temperature = 0}, vocabulary.get(), 260).sample(logits), 11);
  EXPECT_EQ(Sampler({.temperature = 0}, nullptr, 260).sample(logits), 7);
}

// Chameleon's files do not say which tokens are images: 4 to 8195.
TEST(VocabularyCheck, ChameleonsImageTokensAreNotSampled) {
  Parts parts;
  parts.architecture = "chameleon";
  const auto vocabulary = Vocabulary::load(written(parts));
  std::vector<float> logits(260, 0.0F);
  logits[4] = 9;
  logits[3] = 5;
  EXPECT_EQ(Sampler({.temperature = 0}, vocabulary.get(), 260).sample(logits), 3);
}

// Architectures that libllama has no graph for or does not know.
TEST(VocabularyCheck, TakesThoseOfFamiliesThatLibllamaDoesNotHave) {
  Parts parts;
  for (const char* architecture : {"gptj", "opt"}) {
    parts.architecture = architecture;
    EXPECT_EQ(Vocabulary::load(written(parts))->size(), 260) << architecture;
  }
}

template <typename Bend>
std::string complaint(Bend bend) {
  Parts parts;
  bend(parts);
  const std::string path = written(parts);
  return error_of([&] { check_vocabulary(path); }).substr(path.size());
}

TEST(VocabularyCheck, RefusesWhatLibllamaAsserts) {
  EXPECT_EQ(complaint([](Parts& p) { p.tokens[259] = "<s>"; }),
            ": token 259 (\"<s>\") is there twice: convert the model again");
  EXPECT_EQ(complaint([](Parts& p) { p.tokens[259] = "[EMPTY_7]"; }),
            ": token 259 is named \"[EMPTY_7]\", which is reserved: convert the model again");
  EXPECT_EQ(complaint([](Parts& p) { p.tokens[3 + 0x41] = "xyz"; }),
            ": the vocabulary has no token for the byte <0x41>: convert the model again");
  EXPECT_EQ(complaint([](Parts& p) { p.types[259] = 6; }),
            ": token 259 (\"a\") is said to be a byte and is not: convert the model again");
  EXPECT_EQ(complaint([](Parts& p) { p.types.pop_back(); }),
            ": tokenizer.ggml.token_type has 259 entries for 260 tokens: convert the model again");
  EXPECT_EQ(complaint([](Parts& p) { p.scores = 1; }),
            ": tokenizer.ggml.scores has 1 entries for 260 tokens: convert the model again");
  EXPECT_EQ(complaint([](Parts& p) { p.bos = 260; }),
            ": tokenizer.ggml.bos_token_id is 260, but there are 260 tokens: convert the model again");
  EXPECT_EQ(complaint([](Parts& p) { p.tokens.resize(2); }),
            ": the vocabulary has 2 tokens, fewer than 3: convert the model again");
  EXPECT_EQ(complaint([](Parts& p) { p.tokens.clear(); }),
            ": tokenizer.ggml.tokens is missing or empty: convert the model again");
  EXPECT_EQ(complaint([](Parts& p) { p.model = "rwkv"; }),
            ": tokenizer \"rwkv\" is not supported; llama, gpt2, bert, t5, gemma4 are: use another model");
  EXPECT_EQ(complaint([](Parts& p) {
              p.model = "bert";
              p.tokens.resize(100);
              p.types.resize(100);
            }),
            ": the vocabulary has 100 tokens, fewer than 104: convert the model again");
  EXPECT_EQ(complaint([](Parts& p) { p.model = "no_vocab"; }),
            ": has no vocabulary (tokenizer.ggml.model): convert the model together with its tokenizer");
}

}  // namespace
}  // namespace palimpsest::testing
