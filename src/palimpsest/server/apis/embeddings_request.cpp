#include "palimpsest/server/apis/embeddings_request.h"

#include "palimpsest/server/apis/ollama_request.h"
#include "palimpsest/server/request/common_fields.h"
#include "palimpsest/server/request/prompt_field.h"

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

// `context`: 0: a method evicts.
void add_text(const Json& text, const std::string& field, const ServedModel& model, int context, EmbeddingInput& out) {
  out.texts.emplace_back(read_prompt(text, field, model, false));
  if (const SharedTokens& tokens = out.texts.back(); context > 0 && std::ssize(tokens) > context)
    fail_field(field, "'{}' has {} tokens, the model's context is {}: divide the text, or give a \"cache\" that evicts",
               field, tokens.size(), context);
}

// The text, or the texts, of the field `name` or of llama-server's "content"; "dimensions" and "cache".
EmbeddingInput read_texts(JsonFields& fields, const char* name, const ServedModel& model,
                          const Hyperparameters& hyper) {
  EmbeddingInput out = keeping_all(model);
  if (fields.integer("dimensions", hyper.width, 1, 1 << 30) != hyper.width)
    fields.refuse("dimensions", "is not supported: embeddings of this model have {} dimensions", hyper.width);
  const Json* cache = fields.take("cache");
  if (cache != nullptr) out.method = parse_cache(*cache, model.method);
  if (fields.take(name) == nullptr && fields.take("content") != nullptr) name = "content";
  const auto texts = list_prompts(fields, name, fields.need(name));
  if (texts.size() > kMaxInputs) fields.refuse(name, "has {} texts: give at most {}", texts.size(), kMaxInputs);
  for (const auto& [path, text] : texts)
    add_text(*text, path, model, cache == nullptr ? hyper.trained_context : 0, out);
  return out;
}

}  // namespace

OpenAiEmbeddingsRequest read_openai_embeddings(const Json& body, const ServedModel& model,
                                               const Hyperparameters& hyper) {
  JsonFields fields(body);
  fields.ignore({"user", "metadata", "priority", "request_id"});
  check_model(fields.text("model", model.name), model);
  const std::string format = fields.text("encoding_format", "float");
  if (format != "float" && format != "base64")
    fields.refuse("encoding_format", "is '{}': float and base64 are supported", format);
  OpenAiEmbeddingsRequest out{read_texts(fields, "input", model, hyper), format == "base64"};
  fields.end();
  return out;
}

EmbeddingInput read_ollama_embeddings(const Json& body, bool one, const ServedModel& model,
                                      const Hyperparameters& hyper) {
  JsonFields fields(body);
  fields.ignore({"options", "keep_alive"});
  if (!one) fields.ignore({"truncate"});
  check_model(without_latest(fields.text("model", model.name)), model);
  EmbeddingInput out = read_texts(fields, one ? "prompt" : "input", model, hyper);
  fields.end();
  if (one && out.texts.size() > 1) fields.refuse("prompt", "must be a string");
  return out;
}

RerankRequest read_rerank(const Json& body, const ServedModel& model, const Hyperparameters& hyper) {
  RerankRequest out{.input = keeping_all(model), .documents = {}};
  JsonFields fields(body);
  fields.ignore({"user", "rank_fields", "max_chunks_per_doc", "max_tokens_per_doc", "truncate", "raw_scores"});
  check_model(fields.text("model", model.name), model);
  fields.need("query");
  add_text(fields.text("query", ""), "query", model, hyper.trained_context, out.input);
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
    add_text(text, path, model, hyper.trained_context, out.input);
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
