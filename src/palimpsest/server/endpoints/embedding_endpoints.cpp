#include "palimpsest/server/endpoints/embedding_endpoints.h"

#include <httplib.h>

#include <bit>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "palimpsest/server/apis/ollama_request.h"
#include "palimpsest/server/http/json_response.h"
#include "palimpsest/server/reply/text_embeddings.h"
#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/server/service.h"

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

}  // namespace

void embed(Service& service, const ServerOptions& options, const httplib::Request& in, httplib::Response& out) {
  const Json body = parse_json(in.body);
  JsonFields fields(body);
  fields.ignore({"user", "metadata", "priority", "request_id"});
  check_model(fields.text("model", service.model().name), service.model());
  const std::string format = fields.text("encoding_format", "float");
  if (format != "float" && format != "base64")
    fail_field("encoding_format", "'encoding_format' is '{}': float and base64 are supported", format);
  EmbeddingInput asked = read_texts(fields, "input", service);
  fields.end();
  ReplyUsage usage;
  const auto vectors = text_embeddings(service, options, std::move(asked), in, usage);
  Json data = Json::array();
  for (std::size_t i = 0; i < vectors.size(); ++i)
    data.push_back({{"object", "embedding"},
                    {"index", i},
                    {"embedding", format == "base64" ? Json(base64(vectors[i])) : numbers(vectors[i])}});
  const Json answer = {{"object", "list"},
                       {"data", std::move(data)},
                       {"model", service.model().name},
                       {"usage",
                        {{"prompt_tokens", usage.prompt_tokens},
                         {"total_tokens", usage.prompt_tokens},
                         {"evicted_tokens", usage.evicted_tokens}}}};
  reply_json(answer, out);
}

void embed_for_ollama(Service& service, const ServerOptions& options, const httplib::Request& in,
                      httplib::Response& out) {
  const Json body = parse_json(in.body);
  JsonFields fields(body);
  fields.ignore({"truncate", "options", "keep_alive"});
  check_model(without_latest(fields.text("model", service.model().name)), service.model());
  EmbeddingInput asked = read_texts(fields, "input", service);
  fields.end();
  ReplyUsage usage;
  const auto start = Clock::now();
  Json embeddings = Json::array();
  for (const auto& vector : text_embeddings(service, options, std::move(asked), in, usage))
    embeddings.push_back(numbers(vector));
  const Json answer = {{"model", service.model().name},
                       {"embeddings", std::move(embeddings)},
                       {"total_duration", std::chrono::nanoseconds(Clock::now() - start).count()},
                       {"load_duration", 0},
                       {"prompt_eval_count", usage.prompt_tokens}};
  reply_json(answer, out);
}

void embed_one_for_ollama(Service& service, const ServerOptions& options, const httplib::Request& in,
                          httplib::Response& out) {
  const Json body = parse_json(in.body);
  JsonFields fields(body);
  fields.ignore({"options", "keep_alive"});
  check_model(without_latest(fields.text("model", service.model().name)), service.model());
  EmbeddingInput asked = read_texts(fields, "prompt", service);
  fields.end();
  if (asked.texts.size() > 1) fail_field("prompt", "'prompt' must be a string");
  ReplyUsage usage;
  reply_json({{"embedding", numbers(text_embeddings(service, options, std::move(asked), in, usage).front())}}, out);
}

}  // namespace palimpsest
