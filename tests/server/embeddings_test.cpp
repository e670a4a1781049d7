// /v1/embeddings and Ollama's /api/embed.
#include <bit>
#include <cmath>
#include <cstring>

#include "tests/server/server_fixture.h"
#include "tests/support/plain_embedding.h"

namespace palimpsest::testing {
namespace {

constexpr const char* kEmbeddings = "/v1/embeddings";

std::vector<double> plain(const std::vector<TokenId>& tokens, Pooling pooling) {
  Decoder decoder(served_model(), 1);
  return plain_embedding(decoder, tokens, pooling);
}

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<double> vector_of(const Json& answer, std::size_t index) {
  EXPECT_EQ(answer["data"][index]["index"], index);
  EXPECT_EQ(answer["data"][index]["object"], "embedding");
  return answer["data"][index]["embedding"].get<std::vector<double>>();
}

std::vector<float> from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  for (std::size_t i = 0; i + 3 < text.size(); i += 4) {
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 4; ++j)
      bits = bits << 6 | static_cast<std::uint32_t>(text[i + j] == '=' ? 0 : digits.find(text[i + j]));
    for (int shift = 16; shift >= 0; shift -= 8) bytes += static_cast<char>(bits >> shift & 255);
  }
  bytes.resize(bytes.size() - static_cast<std::size_t>(std::ranges::count(text, '=')));
  std::vector<float> out(bytes.size() / 4);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint32_t word = 0;
    for (std::size_t j = 0; j < 4; ++j)
      word |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[4 * i + j])) << 8 * j;
    out[i] = std::bit_cast<float>(word);
  }
  return out;
}

const char* const kTexts[] = {"The cat sat on the mat.", "A dog ran home.", "Once upon a time there was a small boat."};

class EmbeddingsTest : public ::testing::Test {
 protected:
  Running running_;
  static std::vector<TokenId> tokens_of(const char* text) { return served_vocabulary()->tokenize(text, true, true); }
};

TEST_F(EmbeddingsTest, InputsOfEveryForm) {
  const Json one = running_.answer(kEmbeddings, {{"input", kTexts[0]}, {"model", "stories"}});
  EXPECT_EQ(one["object"], "list");
  EXPECT_EQ(one["model"], "stories");
  EXPECT_EQ(one["usage"]["prompt_tokens"], tokens_of(kTexts[0]).size());
  EXPECT_EQ(one["usage"]["total_tokens"], one["usage"]["prompt_tokens"]);
  const auto expected = plain(tokens_of(kTexts[0]), Pooling::kMean);
  const auto got = vector_of(one, 0);
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_NEAR(cosine(got, got), 1, 1e-5);
  EXPECT_GT(cosine(got, expected), 1 - 1e-4);

  const Json list = running_.answer(kEmbeddings, {{"input", kTexts}, {"encoding_format", "float"}});
  ASSERT_EQ(list["data"].size(), 3u);
  Json tokens = Json::array();
  for (const char* text : kTexts) tokens.push_back(tokens_of(text));
  const Json lists = running_.answer(kEmbeddings, {{"input", tokens}});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_GT(cosine(vector_of(list, i), plain(tokens_of(kTexts[i]), Pooling::kMean)), 1 - 1e-4) << i;
    EXPECT_GT(cosine(vector_of(list, i), vector_of(lists, i)), 1 - 1e-4) << i;
    EXPECT_LT(cosine(vector_of(list, i), vector_of(list, (i + 1) % 3)), 1 - 1e-3) << "different texts";
  }
  EXPECT_GT(cosine(vector_of(running_.answer(kEmbeddings, {{"input", tokens[1]}}), 0), vector_of(list, 1)), 1 - 1e-4);
}

TEST_F(EmbeddingsTest, Base64IsTheSameNumbers) {
  for (const Json& format : {Json("base64"), Json("float")}) {
    const Json answer = running_.answer(kEmbeddings, {{"input", kTexts[0]}, {"encoding_format", format}});
    const Json& data = answer["data"][0]["embedding"];
    const std::vector<float> vector =
        format == "base64" ? from_base64(data.get<std::string>()) : data.get<std::vector<float>>();
    static std::vector<float> first;
    if (first.empty()) first = vector;
    ASSERT_EQ(vector.size(), first.size());
    for (std::size_t i = 0; i < vector.size(); ++i) EXPECT_NEAR(vector[i], first[i], 1e-5) << i;
  }
}

TEST_F(EmbeddingsTest, TheLastToken) {
  ServerSetup setup;
  setup.pooling = Pooling::kLast;
  const Running last(setup);
  const auto got = vector_of(last.answer(kEmbeddings, {{"input", kTexts[0]}}), 0);
  EXPECT_GT(cosine(got, plain(tokens_of(kTexts[0]), Pooling::kLast)), 1 - 1e-4);
  EXPECT_LT(cosine(got, plain(tokens_of(kTexts[0]), Pooling::kMean)), 1 - 1e-3);
}

TEST_F(EmbeddingsTest, Refusals) {
  const auto refused = [&](const char* body, const char* part) {
    const auto [status, message] = running_.refusal(kEmbeddings, Json::parse(body));
    EXPECT_EQ(status, 400) << body;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  refused("{}", "'input' is missing");
  refused(R"({"input":[]})", "empty list");
  refused(R"({"input":1})", "'input' must be");
  refused(R"({"input":[[]]})", "has none");
  refused(R"({"input":[[999999]]})", "not in the model's vocabulary");
  refused(R"({"input":"x","dimensions":3})", "have 256 dimensions");
  refused(R"({"input":"x","encoding_format":"int8"})", "float and base64");
  refused(R"({"input":"x","wrong":1})", "'wrong'");
  EXPECT_EQ(
      running_.answer(kEmbeddings, {{"input", "x"}, {"dimensions", served_model()->hyper().width}})["data"].size(), 1u);
  ServerSetup strict;
  strict.strict_model = true;
  EXPECT_EQ(Running(strict).refusal(kEmbeddings, {{"input", "x"}, {"model", "other"}}).first, 404);
  EXPECT_EQ(running_.client().Get(kEmbeddings)->status, 405);

  std::string text;
  for (int i = 0; i < served_model()->hyper().trained_context; ++i) text += " cat";
  const auto [status, message] = running_.refusal(kEmbeddings, {{"input", text}});
  EXPECT_EQ(status, 400);
  EXPECT_NE(message.find("the model's context is"), std::string::npos) << message;
  const Json evicting = {{"input", text}, {"cache", {{"budget", 64}}}};
  EXPECT_GT(running_.answer(kEmbeddings, evicting)["usage"]["evicted_tokens"], 0);

  ServerSetup setup;
  setup.pooling = Pooling::kNone;
  const Running none(setup);
  EXPECT_NE(none.refusal(kEmbeddings, {{"input", "x"}}).second.find("--pooling"), std::string::npos);
}

// 60 texts, with a queue of 4 that answers share.
TEST_F(EmbeddingsTest, AnswersGoOnMeanwhile) {
  ServerSetup setup;
  setup.scheduler.max_queue = 4;
  setup.scheduler.max_sequences = 4;
  const Running running(setup);
  const Json asked = {{"prompt", "Once upon a time"}, {"max_tokens", 60}, {"seed", 1}, {"ignore_eos", true}};
  const std::string before = text_of(running.answer(kText, asked));
  Json texts = Json::array();
  for (int i = 0; i < 60; ++i) texts.push_back(std::string(kTexts[i % 3]) + " " + std::to_string(i));
  std::thread embeds([&] {
    const auto result = running.post(kEmbeddings, {{"input", texts}});
    ASSERT_TRUE(result);
    // Refused as a whole if the queue is full when it begins.
    EXPECT_TRUE(result->status == 200 || result->status == 429) << result->body;
    if (result->status == 200) {
      EXPECT_EQ(Json::parse(result->body)["data"].size(), 60u);
    }
  });
  for (int i = 0; i < 3; ++i) {
    const auto result = running.post(kText, asked);
    ASSERT_TRUE(result);
    if (result->status == 200) {
      EXPECT_EQ(text_of(Json::parse(result->body)), before);
    }
  }
  embeds.join();
}

TEST_F(EmbeddingsTest, OllamasEmbed) {
  const Json answer = running_.answer("/api/embed", {{"model", "stories:latest"}, {"input", kTexts}});
  ASSERT_EQ(answer["embeddings"].size(), 3u);
  EXPECT_GT(cosine(answer["embeddings"][1].get<std::vector<double>>(), plain(tokens_of(kTexts[1]), Pooling::kMean)),
            1 - 1e-4);
  EXPECT_EQ(answer["prompt_eval_count"],
            tokens_of(kTexts[0]).size() + tokens_of(kTexts[1]).size() + tokens_of(kTexts[2]).size());
}

}  // namespace
}  // namespace palimpsest::testing
