#include "palimpsest/server/apis/embeddings_request.h"

#include "palimpsest/server/apis/ollama_request.h"
#include "palimpsest/server/request/common_fields.h"
#include "palimpsest/server/request/prompt_field.h"
#include "palimpsest/text/encoder_text.h"

namespace palimpsest {
namespace {

constexpr std::size_t kMaxInputs = 2048;  // texts of a request, as in OpenAI's API

// Every token of a text is kept, unless the request has a method.
EmbeddingInput keeping_all(const ServedModel& model) {
  if (model.pooling == Pooling::kNone)
    throw ApiError(400, "invalid_request_error",
                   "this server gives no embeddings: restart it with --pooling mean or --pooling last");
  return {.texts = {}, .method = parse_method("full")};
}

struct TextLimit {
  int context = 0;        // in tokens; 0: a method evicts
  bool truncate = false;  // longer texts, instead of an error; a control token at the end stays
};

void add_tokens(std::vector<TokenId> tokens, const std::string& field, const ServedModel& model, TextLimit limit,
                EmbeddingInput& out) {
  const auto max = static_cast<std::size_t>(limit.context);
  if (limit.context > 0 && tokens.size() > max && limit.truncate) {
    if (model.vocabulary->is_control(tokens.back())) tokens[max - 1] = tokens.back();
    tokens.resize(max);
  }
  if (limit.context > 0 && tokens.size() > max)
    fail_field(field, "'{}' has {} tokens, the model's context is {}: divide the text, or give {}", field,
               tokens.size(), limit.context, model.encodes ? "\"truncate\": true" : "a \"cache\" that evicts");
  if (model.encodes)  // else the scheduler refuses them
    for (const TokenId token : tokens)
      if (token < 0 || token >= model.vocabulary->size())
        fail_field(field, "'{}': token {} is not in the model's vocabulary of {}", field, token,
                   model.vocabulary->size());
  out.texts.emplace_back(std::move(tokens));
}

// The text, or the texts, of the field `name` or of llama-server's "content"; "dimensions", "truncate" and "cache".
EmbeddingInput read_texts(JsonFields& fields, const char* name, const ServedModel& model) {
  EmbeddingInput out = keeping_all(model);
  if (model.ranks)
    throw ApiError(501, "not_supported_error", "this model ranks documents and gives no embeddings: use /v1/rerank");
  if (fields.integer("dimensions", model.width, 1, 1 << 30) != model.width)
    fields.refuse("dimensions", "is not supported: embeddings of this model have {} dimensions", model.width);
  TextLimit limit{.context = model.trained_context, .truncate = fields.boolean("truncate", false)};
  if (const Json* cache = fields.take("cache")) {
    if (model.encodes) fields.refuse("cache", "has no effect: this model is an encoder, without a KV cache");
    out.method = parse_cache(*cache, model.method);
    limit.context = 0;
  }
  if (fields.take(name) == nullptr && fields.take("content") != nullptr) name = "content";
  const auto texts = list_prompts(fields, name, fields.need(name));
  if (texts.size() > kMaxInputs) fields.refuse(name, "has {} texts: give at most {}", texts.size(), kMaxInputs);
  for (const auto& [path, text] : texts) add_tokens(read_prompt(*text, path, model, false), path, model, limit, out);
  return out;
}

}  // namespace

OpenAiEmbeddingsRequest read_openai_embeddings(const Json& body, const ServedModel& model) {
  JsonFields fields(body);
  fields.ignore({"user", "metadata", "priority", "request_id"});
  check_model(fields.text("model", model.name), model);
  const std::string format = fields.text("encoding_format", "float");
  if (format != "float" && format != "base64")
    fields.refuse("encoding_format", "is '{}': float and base64 are supported", format);
  OpenAiEmbeddingsRequest out{read_texts(fields, "input", model), format == "base64"};
  fields.end();
  return out;
}

EmbeddingInput read_ollama_embeddings(const Json& body, bool one, const ServedModel& model) {
  JsonFields fields(body);
  fields.ignore({"options", "keep_alive"});
  check_model(without_latest(fields.text("model", model.name)), model);
  EmbeddingInput out = read_texts(fields, one ? "prompt" : "input", model);
  fields.end();
  if (one && out.texts.size() > 1) fields.refuse("prompt", "must be a string");
  return out;
}

RerankRequest read_rerank(const Json& body, const ServedModel& model) {
  RerankRequest out{.input = keeping_all(model), .documents = {}};
  JsonFields fields(body);
  fields.ignore({"user", "rank_fields", "max_chunks_per_doc", "max_tokens_per_doc", "raw_scores"});
  check_model(fields.text("model", model.name), model);
  fields.need("query");
  const std::string query = fields.text("query", "");
  const TextLimit limit{.context = model.trained_context, .truncate = fields.boolean("truncate", false)};
  if (!model.ranks) add_tokens(read_prompt(query, "query", model, false), "query", model, limit, out.input);
  // "documents" (Jina, Cohere) or "texts" (text-embeddings-inference): texts, or objects with a text.
  out.bare_list = fields.take("texts") != nullptr;
  const char* const name = out.bare_list && fields.take("documents") == nullptr ? "texts" : "documents";
  const Json& list = fields.need(name);
  if (!list.is_array() || list.empty()) fields.refuse(name, "must be a list of at least one text");
  if (list.size() >= kMaxInputs) fields.refuse(name, "has {} texts: give fewer than {}", list.size(), kMaxInputs);
  for (const Json& each : list) {
    const Json& text = each.is_object() && each.contains("text") ? each["text"] : each;
    const std::string path = fmt::format("{}[{}]", name, out.documents.size());
    if (!text.is_string()) fail_field(path, "'{}' must be a text, or an object with a 'text'", path);
    out.documents.push_back(text.get<std::string>());
    add_tokens(model.ranks ? pair_tokens(*model.vocabulary, query, out.documents.back())
                           : read_prompt(text, path, model, false),
               path, model, limit, out.input);
  }
  const auto all = static_cast<long long>(out.documents.size());
  out.top =
      static_cast<std::size_t>(std::min(all, fields.integer("top_n", all, 1, static_cast<long long>(kMaxInputs))));
  const bool documents = fields.boolean("return_documents", false), texts = fields.boolean("return_text", false);
  out.return_texts = documents || texts;
  fields.end();
  return out;
}

}  // namespace palimpsest
