#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "palimpsest/server/apis/embeddings_request.h"
#include "palimpsest/server/endpoints/endpoints.h"
#include "palimpsest/server/log.h"

namespace palimpsest {
namespace {

// The shortest decimal that reads back as `x`.
double shortest(float x) {
  char text[32];
  double out = x;
  const auto end = std::to_chars(text, text + sizeof text, x).ptr;
  std::from_chars(text, end, out);
  return out;
}

Json numbers(const std::vector<float>& vector) {
  Json out = Json::array();
  for (const float x : vector) out.push_back(shortest(x));
  return out;
}

// Little-endian f32 in base64.
std::string base64(const std::vector<float>& vector) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  const auto put = [&](std::uint32_t byte) {
    bits = bits << 8 | byte;
    for (count += 8; count >= 6; count -= 6) out += kDigits[bits >> (count - 6) & 63];
  };
  for (const float x : vector)
    for (int shift = 0; shift < 32; shift += 8) put(std::bit_cast<std::uint32_t>(x) >> shift & 0xFF);
  if (count > 0) out += kDigits[bits << (6 - count) & 63];
  out.append((4 - out.size() % 4) % 4, '=');
  return out;
}

struct Document {
  std::size_t index = 0;
  double score = 0;
};

double cosine(std::span<const float> a, std::span<const float> b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

}  // namespace

void embed(const HttpCall& call) {
  const OpenAiEmbeddingsRequest request = read_openai_embeddings(parse_json(call.in.body), call.model());
  ReplyUsage usage;
  Json data = Json::array();
  for (const auto& vector : text_embeddings(call, request.input, usage))
    data.push_back({{"object", "embedding"},
                    {"index", data.size()},
                    {"embedding", request.base64 ? Json(base64(vector)) : numbers(vector)}});
  call.reply({{"object", "list"},
              {"data", std::move(data)},
              {"model", call.model().name},
              {"usage",
               {{"prompt_tokens", usage.prompt_tokens},
                {"total_tokens", usage.prompt_tokens},
                {"evicted_tokens", usage.evicted_tokens}}}});
}

void ollama_embed(const HttpCall& call) {
  const EmbeddingInput input = read_ollama_embeddings(parse_json(call.in.body), false, call.model());
  ReplyUsage usage;
  const auto start = Clock::now();
  Json embeddings = Json::array();
  for (const auto& vector : text_embeddings(call, input, usage)) embeddings.push_back(numbers(vector));
  call.reply({{"model", call.model().name},
              {"embeddings", std::move(embeddings)},
              {"total_duration", std::chrono::nanoseconds(Clock::now() - start).count()},
              {"load_duration", 0},
              {"prompt_eval_count", usage.prompt_tokens}});
}

void ollama_embeddings(const HttpCall& call) {
  const EmbeddingInput input = read_ollama_embeddings(parse_json(call.in.body), true, call.model());
  ReplyUsage usage;
  call.reply({{"embedding", numbers(text_embeddings(call, input, usage).front())}});
}

// By the model's own score, else by the cosine of embeddings, as vLLM does with models for embeddings.
void rerank(const HttpCall& call) {
  const RerankRequest request = read_rerank(parse_json(call.in.body), call.model());
  ReplyUsage usage;
  const auto vectors = text_embeddings(call, request.input, usage);
  std::vector<Document> order;
  for (std::size_t i = 0; i < request.documents.size(); ++i)
    order.push_back({i, call.model().ranks ? vectors[i].front() : cosine(vectors.front(), vectors[i + 1])});
  std::ranges::stable_sort(order, std::greater(), &Document::score);
  order.resize(request.top);
  Json results = Json::array();
  for (const auto& [index, score] : order) {
    const std::string& text = request.documents[index];
    results.push_back({{"index", index}, {request.bare_list ? "score" : "relevance_score", score}});
    if (request.return_texts && request.bare_list) results.back()["text"] = text;
    if (request.return_texts && !request.bare_list) results.back()["document"] = {{"text", text}};
  }
  if (request.bare_list) return call.reply(results);
  call.reply({{"id", new_id("rerank-")},
              {"object", "list"},
              {"model", call.model().name},
              {"results", std::move(results)},
              {"usage", {{"prompt_tokens", usage.prompt_tokens}, {"total_tokens", usage.prompt_tokens}}}});
}

}  // namespace palimpsest
