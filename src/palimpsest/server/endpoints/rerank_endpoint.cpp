#include "palimpsest/server/endpoints/rerank_endpoint.h"

#include <httplib.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>

#include "palimpsest/server/http/json_response.h"
#include "palimpsest/server/log.h"
#include "palimpsest/server/reply/text_embeddings.h"
#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/server/service.h"

namespace palimpsest {
namespace {

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

// "documents" (Jina, Cohere) or "texts" (text-embeddings-inference): texts, or objects with a text.
std::vector<std::string> read_documents(JsonFields& fields) {
  const char* const name = fields.take("documents") != nullptr ? "documents" : "texts";
  const Json* list = fields.take(name);
  if (list == nullptr) fail_field("documents", "'documents' is missing");
  if (!list->is_array() || list->empty()) fail_field(name, "'{}' must be a list of at least one text", name);
  if (list->size() >= kMaxInputs)
    fail_field(name, "'{}' has {} texts: give fewer than {}", name, list->size(), kMaxInputs);
  std::vector<std::string> out;
  for (const Json& each : *list) {
    const Json* text = each.is_object() && each.contains("text") ? &each["text"] : &each;
    if (!text->is_string()) fail_field(name, "'{}' must be a list of texts", name);
    out.push_back(text->get<std::string>());
  }
  return out;
}

}  // namespace

void rerank(Service& service, const ServerOptions& options, const httplib::Request& in, httplib::Response& out) {
  const Json body = parse_json(in.body);
  JsonFields fields(body);
  fields.ignore({"user", "rank_fields", "max_chunks_per_doc", "max_tokens_per_doc", "truncate", "raw_scores"});
  check_model(fields.text("model", service.model().name), service.model());
  if (fields.take("query") == nullptr) fail_field("query", "'query' is missing");
  const std::vector<std::string> documents = read_documents(fields);
  const bool short_form = fields.take("texts") != nullptr;  // text-embeddings-inference answers with a bare list
  const auto top = static_cast<std::size_t>(
      fields.integer("top_n", static_cast<long long>(documents.size()), 1, static_cast<long long>(kMaxInputs)));
  const bool texts = fields.boolean("return_documents", false) || fields.boolean("return_text", false);
  std::vector<std::string> all = {fields.text("query", "")};
  all.insert(all.end(), documents.begin(), documents.end());
  fields.end();
  ReplyUsage usage;
  const auto vectors = text_embeddings(service, options, read_texts(all, "documents", service), in, usage);
  std::vector<Document> order;
  for (std::size_t i = 0; i < documents.size(); ++i) order.push_back({i, cosine(vectors.front(), vectors[i + 1])});
  std::ranges::stable_sort(order, std::greater(), &Document::score);
  order.resize(std::min(order.size(), top));
  Json results = Json::array();
  for (const Document& each : order) {
    results.push_back({{"index", each.index}, {short_form ? "score" : "relevance_score", each.score}});
    if (texts && short_form) results.back()["text"] = documents[each.index];
    if (texts && !short_form) results.back()["document"] = {{"text", documents[each.index]}};
  }
  if (short_form) return reply_json(results, out);
  reply_json({{"id", new_id("rerank-")},
              {"object", "list"},
              {"model", service.model().name},
              {"results", std::move(results)},
              {"usage", {{"prompt_tokens", usage.prompt_tokens}, {"total_tokens", usage.prompt_tokens}}}},
             out);
}

}  // namespace palimpsest
