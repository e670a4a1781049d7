// GGUF files made by tools/convert, against the logits of Hugging Face's transformers. tools/convert/check.py (make
// convert-check) makes the folders and passes their names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "palimpsest/model/model.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/teacher_forced.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders() {
  const char* set = std::getenv("PALIMPSEST_CONVERTED");
  std::vector<fs::path> out;
  std::istringstream list(set == nullptr ? "" : set);
  for (std::string folder; std::getline(list, folder, ':');) out.emplace_back(folder);
  return out;
}

nlohmann::json golden(const fs::path& folder) {
  return nlohmann::json::parse(std::ifstream(folder / "golden.json"));
}

std::vector<float> floats(const fs::path& path) {
  std::vector<float> out(fs::file_size(path) / sizeof(float));
  std::ifstream(path, std::ios::binary)
      .read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size() * sizeof(float)));
  return out;
}

TEST(Converted, LogitsAreThoseOfHuggingFace) {
  if (folders().empty()) GTEST_SKIP() << "needs converted models (make convert-check)";
  for (const fs::path& folder : folders()) {
    SCOPED_TRACE(folder);
    const auto expected = golden(folder);
    const auto tokens = expected["tokens"].get<std::vector<TokenId>>();
    ASSERT_GE(tokens.size(), 200U);
    const auto model = Model::load((folder / "model.gguf").string());
    ASSERT_EQ(model->hyper().architecture, expected["architecture"].get<std::string>());
    for (const int chunk : {1, 48}) {
      const testing::TeacherForced how{.name = "full", .type = CacheType::kF32, .chunk = chunk};
      const std::vector<float> ours = run(model, how, tokens).logits;
      for (const auto& theirs : expected["logits"]) {
        const auto name = theirs["file"].get<std::string>();
        const std::vector<float> logits = floats(folder / name);
        ASSERT_EQ(logits.size(), ours.size());
        std::vector<double> errors;  // per token
        const int row = model->hyper().vocabulary;
        for (auto at = ours.begin(), to = logits.begin(); at < ours.end(); at += row, to += row)
          errors.push_back(max_relative_error({at, at + row}, {to, to + row}, row));
        std::ranges::sort(errors);
        const double median = errors[errors.size() / 2], greatest = errors.back();
        std::printf("%s, %d at once: greatest relative error of a token's logits: median %.1e, greatest %.1e\n",
                    (folder.filename() / name).c_str(), chunk, median, greatest);
        EXPECT_LE(median, theirs["median"].get<double>());
        EXPECT_LE(greatest, theirs["max"].get<double>());
      }
    }
  }
}

TEST(Converted, TokensAreThoseOfHuggingFace) {
  if (folders().empty()) GTEST_SKIP() << "needs converted models (make convert-check)";
  for (const fs::path& folder : folders()) {
    SCOPED_TRACE(folder);
    const auto vocabulary = Vocabulary::load((folder / "model.gguf").string());
    const auto expected = golden(folder);
    ASSERT_FALSE(expected["texts"].empty());
    for (const auto& each : expected["texts"]) {
      const auto text = each["text"].get<std::string>();
      const auto tokens = each["tokens"].get<std::vector<TokenId>>();
      EXPECT_EQ(vocabulary->tokenize(text, false, false), tokens) << text;
      EXPECT_EQ(vocabulary->detokenize(tokens), text);
    }
  }
}

}  // namespace
}  // namespace palimpsest::testing
