// The readers of /v1/embeddings, /api/embed, /api/embeddings and /v1/rerank.
#include "palimpsest/server/apis/embeddings_request.h"

#include "tests/server/request_readers.h"

namespace palimpsest::testing {
namespace {

class EmbeddingsReader : public ::testing::Test {
 protected:
  const ServedModel model_ = model_of_readers();
  std::string long_text() const {
    std::string text;
    for (int i = 0; i < model_.trained_context; ++i) text += " cat";
    return text;
  }
};

TEST_F(EmbeddingsReader, ReadsTexts) {
  const auto given = read_openai_embeddings(
      {{"input", {"Once", {1, 2}}}, {"encoding_format", "base64"}, {"cache", {{"budget", 64}}}}, model_);
  EXPECT_TRUE(given.base64);
  EXPECT_EQ(given.input.texts.size(), 2u);
  EXPECT_EQ(given.input.method.budget, 64);
  EXPECT_EQ(read_openai_embeddings({{"content", "Once"}}, model_).input.method.name, "full");
  EXPECT_EQ(read_ollama_embeddings({{"input", {"a", "b"}}, {"truncate", true}}, false, model_).texts.size(), 2u);
  EXPECT_EQ(read_ollama_embeddings({{"prompt", "a"}}, true, model_).texts.size(), 1u);
  const Json cut = {{"input", long_text()}, {"truncate", true}};
  EXPECT_EQ(std::ssize(read_ollama_embeddings(cut, false, model_).texts[0]), model_.trained_context);
  EXPECT_EQ(std::ssize(read_openai_embeddings(cut, model_).input.texts[0]), model_.trained_context);
}

TEST_F(EmbeddingsReader, ReadsDocumentsToRerank) {
  const RerankRequest given = read_rerank(
      {{"query", "q"}, {"documents", {"a", {{"text", "b"}}}}, {"top_n", 1}, {"return_documents", true}}, model_);
  EXPECT_EQ(given.input.texts.size(), 3u);
  EXPECT_EQ(given.documents, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(given.top, 1u);
  EXPECT_TRUE(given.return_texts && !given.bare_list);
  const RerankRequest bare = read_rerank({{"query", "q"}, {"texts", {"a"}}, {"top_n", 5}}, model_);
  EXPECT_EQ(bare.top, 1u);
  EXPECT_TRUE(bare.bare_list);
}

TEST_F(EmbeddingsReader, ErrorsNameFields) {
  const auto openai = [this](const Json& body) { read_openai_embeddings(body, model_); };
  const auto many = [this](const Json& body) { read_ollama_embeddings(body, false, model_); };
  const auto one = [this](const Json& body) { read_ollama_embeddings(body, true, model_); };
  const auto reranking = [this](const Json& body) { read_rerank(body, model_); };
  expect_named(openai, {{"input", "x"}},
               {{"input", {{"input", nullptr}}},
                {"input", {{"input", Json::array()}}},
                {"input", {{"input", 1}}},
                {"input", {{"input", long_text()}}},
                {"input[1]", {{"input", {"x", long_text()}}}},
                {"content", {{"input", nullptr}, {"content", 1}}},
                {"dimensions", {{"dimensions", 3}}},
                {"encoding_format", {{"encoding_format", "int8"}}},
                {"cache.budget", {{"cache", {{"budget", "many"}}}}},
                {"wrong", {{"wrong", 1}}}});
  expect_named(many, {{"input", "x"}}, {{"input", {{"input", nullptr}}}, {"prompt", {{"prompt", "x"}}}});
  expect_named(one, {{"prompt", "x"}}, {{"prompt", {{"prompt", {"x", "y"}}}}, {"truncate", {{"truncate", 1}}}});
  expect_named(reranking, {{"query", "q"}, {"documents", {"x"}}},
               {{"query", {{"query", nullptr}}},
                {"query", {{"query", 1}}},
                {"query", {{"query", long_text()}}},
                {"documents", {{"documents", nullptr}}},
                {"documents", {{"documents", Json::array()}}},
                {"documents[0]", {{"documents", {1}}}},
                {"documents[1]", {{"documents", {"x", long_text()}}}},
                {"texts[0]", {{"documents", nullptr}, {"texts", {1}}}},
                {"top_n", {{"top_n", 0}}},
                {"wrong", {{"wrong", 1}}}});
}

}  // namespace
}  // namespace palimpsest::testing
