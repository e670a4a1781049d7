#include "palimpsest/text/vocabulary.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "palimpsest/core/error.h"
#include "tests/support/file_content.h"
#include "tests/support/own_file.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  for (std::size_t next; (next = text.find(separator, at)) != std::string::npos; at = next + separator.size())
    parts.push_back(text.substr(at, next - at));
  parts.push_back(text.substr(at));
  return parts;
}

std::string write(const char* name, const std::string& bytes) {
  const fs::path path = testing::own_file(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// llama.cpp's test vectors: inputs separated by a line, one line of ids each.
TEST(Vocabulary, MatchesThePublishedVectors) {
  const auto dir = shared_dir();
  if (!dir) GTEST_SKIP() << "needs shared/vocab (set PALIMPSEST_SHARED)";
  int vocabularies = 0;
  for (const auto& entry : fs::directory_iterator(*dir / "vocab")) {
    if (entry.path().extension() != ".gguf" || !fs::exists(entry.path().string() + ".inp")) continue;
    SCOPED_TRACE(entry.path().filename());
    ++vocabularies;
    const auto vocabulary = Vocabulary::load(entry.path());
    auto inputs = split(file_content(entry.path().string() + ".inp"), "\n__ggml_vocab_test__\n");
    auto outputs = split(file_content(entry.path().string() + ".out"), "\n");
    while (!outputs.empty() && outputs.back().empty() && outputs.size() > inputs.size()) outputs.pop_back();
    ASSERT_EQ(inputs.size(), outputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      std::istringstream line(outputs[i]);
      std::vector<TokenId> expected{std::istream_iterator<TokenId>(line), {}};
      EXPECT_EQ(vocabulary->tokenize(inputs[i], false, false), expected) << ::testing::PrintToString(inputs[i]);
    }
  }
  EXPECT_EQ(vocabularies, 5);
}

// All texts of the vectors with all vocabularies; those without vectors (gpt-neox) use those of another.
TEST(Vocabulary, TextComesBackFromItsTokens) {
  const auto dir = shared_dir();
  if (!dir) GTEST_SKIP() << "needs shared/vocab (set PALIMPSEST_SHARED)";
  const auto texts = split(file_content(*dir / "vocab/ggml-vocab-gpt-2.gguf.inp"), "\n__ggml_vocab_test__\n");
  ASSERT_GT(texts.size(), 40u);
  int vocabularies = 0;
  for (const auto& entry : fs::directory_iterator(*dir / "vocab")) {
    if (entry.path().extension() != ".gguf") continue;
    SCOPED_TRACE(entry.path().filename());
    ++vocabularies;
    const auto vocabulary = Vocabulary::load(entry.path());
    const bool spaced = vocabulary->kind() == "SPM";  // sentencepiece puts a space before a non-empty text
    for (const std::string& text : texts) {
      const auto tokens = vocabulary->tokenize(text, false, false);
      EXPECT_EQ(vocabulary->detokenize(tokens), text);
      std::string pieces;
      for (const TokenId token : tokens) pieces += vocabulary->piece(token);
      EXPECT_EQ(pieces, spaced && !text.empty() ? " " + text : text);
    }
  }
  EXPECT_EQ(vocabularies, 6);
}

TEST(Vocabulary, BeginsWhereTheModelWantsItAndKnowsTheEnd) {
  const auto dir = shared_dir();
  if (!dir) GTEST_SKIP() << "needs shared/models (set PALIMPSEST_SHARED)";
  const auto vocabulary = Vocabulary::load(*dir / "models/stories260K/stories260K.gguf");
  EXPECT_EQ(vocabulary->size(), 512);
  EXPECT_EQ(vocabulary->kind(), "SPM");
  EXPECT_EQ(vocabulary->tokenize("", true, false), std::vector<TokenId>{vocabulary->bos()});
  EXPECT_TRUE(vocabulary->is_end(vocabulary->eos()));
  EXPECT_FALSE(vocabulary->is_end(vocabulary->bos()));
  EXPECT_EQ(vocabulary->piece(vocabulary->bos()), "");
  EXPECT_NE(vocabulary->piece(vocabulary->bos(), true), "");
  EXPECT_THROW(vocabulary->piece(512), Error);
  EXPECT_FALSE(vocabulary->has_chat_template());
}

TEST(Vocabulary, RefusesWhatIsNotAModel) {
  EXPECT_THROW(Vocabulary::load("/no/such/file.gguf"), Error);
  EXPECT_THROW(Vocabulary::load(write("empty.gguf", "")), Error);
  EXPECT_THROW(Vocabulary::load(write("text.gguf", "this is not a model")), Error);
  EXPECT_THROW(Vocabulary::load(::testing::TempDir()), Error);
}

TEST(Vocabulary, RefusesACutOffFile) {
  const auto dir = shared_dir();
  if (!dir) GTEST_SKIP() << "needs shared/vocab (set PALIMPSEST_SHARED)";
  const std::string bytes = file_content(*dir / "vocab/ggml-vocab-llama-spm.gguf");
  for (const std::size_t size : {4u, 24u, 100u, 5000u, 300000u})
    EXPECT_THROW(Vocabulary::load(write("cut.gguf", bytes.substr(0, size))), Error) << size;
}

}  // namespace
}  // namespace palimpsest::testing
