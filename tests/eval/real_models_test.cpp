// Perplexity of models that others trained, against libllama's on the same file and text.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "palimpsest/eval/likelihood.h"
#include "palimpsest/eval/perplexity.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/file_content.h"
#include "tests/support/llama_peer.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

// $PALIMPSEST_REAL_MODELS: GGUF files, separated by colons (docs/evaluation.md).
std::vector<std::string> real_models() {
  std::vector<std::string> files;
  const char* named = std::getenv("PALIMPSEST_REAL_MODELS");
  std::istringstream all(named ? named : "");
  for (std::string file; std::getline(all, file, ':');)
    if (!file.empty()) files.push_back(file);
  return files;
}

TEST(RealModels, PerplexityIsLibllamas) {
  const auto models = real_models();
  const auto dir = shared_dir();
  if (models.empty())
    GTEST_SKIP() << "needs models that others trained: PALIMPSEST_REAL_MODELS=FILE:FILE (docs/evaluation.md)";
  if (!dir) GTEST_SKIP() << "needs shared/text/wikitext-2 (set PALIMPSEST_SHARED)";
  const std::string text = file_content((*dir / "text/wikitext-2/wiki.test.raw").string()).substr(0, 12000);
  for (const std::string& file : models) {
    SCOPED_TRACE(file);
    const auto model = Model::load(file);
    const auto vocabulary = Vocabulary::load(file);
    auto tokens = vocabulary->tokenize(text, /*add_bos=*/true, /*special=*/false);
    tokens.resize(512);
    Session session(std::make_shared<Decoder>(model, 1), SessionOptions{});
    const double ours = perplexity(session, tokens, 100).value();

    const std::vector<float> logits = llama_logits(file, tokens, 512);
    const std::size_t width = logits.size() / tokens.size();
    double nats = 0;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
      nats += negative_log_likelihood(std::span(logits).subspan(i * width, width), tokens[i + 1]);
    const double theirs = std::exp(nats / static_cast<double>(tokens.size() - 1));
    RecordProperty("perplexity", std::to_string(ours));
    RecordProperty("libllama", std::to_string(theirs));
    EXPECT_NEAR(ours / theirs, 1, 0.005) << ours << ", libllama " << theirs;
  }
}

}  // namespace
}  // namespace palimpsest::testing
