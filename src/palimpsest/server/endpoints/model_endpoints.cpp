#include <filesystem>

#include "palimpsest/core/error.h"
#include "palimpsest/core/version.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/server/apis/openai_chat.h"
#include "palimpsest/server/endpoints/endpoints.h"
#include "palimpsest/server/reply/iso_time.h"
#include "palimpsest/server/reply/reply_parts.h"
#include "palimpsest/server/request/chat_request.h"
#include "palimpsest/server/request/sampling_fields.h"
#include "palimpsest/text/encoder_text.h"
#include "palimpsest/text/utf8.h"

namespace palimpsest {
namespace {

std::string text_of(const Vocabulary& vocabulary, TokenId token) {
  return token < 0 ? std::string() : whole_characters(vocabulary.piece(token, true));
}

// A text, or the bytes of what is none.
Json piece_json(const std::string& piece) {
  return whole_characters(piece) == piece ? Json(piece) : bytes_json(piece);
}

const char* name_of(ModelHost::Status status) {
  switch (status) {
    case ModelHost::Status::kLoading:
      return "loading";
    case ModelHost::Status::kLoaded:
      return "loaded";
    case ModelHost::Status::kFailed:
      return "failed";
    default:
      return "unloaded";
  }
}

// As llama-server's router tells it.
Json status_json(const ModelHost::Shown& shown) {
  Json out = {{"value", name_of(shown.status)}};
  if (!shown.error.empty()) out["failed"] = true, out["error"] = shortened(without_folders(shown.error));
  return out;
}

Json model_json(const HttpCall& call, const ModelHost::Shown& shown, bool many) {
  Json out = {{"id", shown.model.name},
              {"object", "model"},
              {"created", call.started},
              {"owned_by", "palimpsest"},
              {"aliases", many ? std::vector<std::string>() : shown.service->model().aliases}};
  if (many) out["status"] = status_json(shown);
  return out;
}

Json anthropic_model_json(const HttpCall& call, const ModelHost::Shown& shown, bool) {
  Json out = {{"type", "model"},
              {"id", shown.model.name},
              {"display_name", shown.model.name},
              {"created_at", iso_time(call.started)},
              {"lifecycle", "active"}};
  if (shown.service != nullptr) out["max_input_tokens"] = shown.service->model().vocabulary->trained_context();
  return out;
}

Json shown_json(const HttpCall& call, const ModelHost::Shown& shown) {
  return (is_anthropic(call.in) ? anthropic_model_json : model_json)(call, shown, !call.host.has_one());
}

// The body's "model", which is known.
std::string named_model(const HttpCall& call) {
  const Json body = parse_json(call.in.body);
  JsonFields fields(body);
  fields.need("model");
  const std::string name = fields.text("model", "");
  fields.end();
  if (call.host.has_one()) fail_field("model", "this server has one model: start it with --models-dir for more");
  call.host.find(name);
  return name;
}

}  // namespace

// vLLM's form has `prompt` or `messages`, and begins with BOS unless add_special_tokens is false; llama-server's has
// `content`, and begins without unless add_special is true.
void tokenize(const HttpCall& call) {
  const ServedModel& model = call.model();
  const Json body = parse_json(call.in.body);
  JsonFields fields(body);
  fields.ignore({"model"});
  const bool chat = body.contains("messages") && !body["messages"].is_null();
  const bool content = fields.take("content") != nullptr, prompt = fields.take("prompt") != nullptr;
  if (chat + content + prompt != 1) fail_field("prompt", "give one of 'prompt', 'messages' and 'content'");
  StructuredOutput output;
  const ChatPrompt text = chat ? chat_prompt(read_chat(fields), output, model, false)
                               : ChatPrompt{.text = fields.text(content ? "content" : "prompt", "")};
  const bool begin = content ? fields.boolean("add_special", false) : fields.boolean("add_special_tokens", true);
  const bool special = fields.boolean("parse_special", true), pieces = fields.boolean("with_pieces", false);
  fields.end();
  const auto tokens = begin && model.encodes ? encoder_tokens(*model.vocabulary, text.text)
                      : special              ? model.vocabulary->tokenize_with_breaks(text.text, begin, text.breaks)
                                             : model.vocabulary->tokenize(text.text, begin, false);
  Json list = Json::array();
  for (const TokenId token : tokens)
    list.push_back(pieces ? Json{{"id", token}, {"piece", piece_json(model.vocabulary->piece(token, true))}}
                          : Json(token));
  call.reply({{"tokens", std::move(list)}, {"count", tokens.size()}});
}

void detokenize(const HttpCall& call) {
  const Vocabulary& vocabulary = *call.model().vocabulary;
  const Json body = parse_json(call.in.body);
  JsonFields fields(body);
  fields.ignore({"model"});
  const Json* list = fields.take("tokens");
  fields.end();
  if (list == nullptr || !list->is_array()) fail_field("tokens", "'tokens' must be a list of tokens");
  std::vector<TokenId> tokens;
  for (const Json& id : *list) {
    if (!id.is_number_integer() || id.get<long long>() < 0 || id.get<long long>() >= vocabulary.size())
      fail_field("tokens", "{} is not in the vocabulary of {} tokens", id.dump(), vocabulary.size());
    tokens.push_back(id.get<TokenId>());
  }
  const std::string text = whole_characters(vocabulary.detokenize(tokens, true));
  call.reply({{"prompt", text}, {"content", text}});
}

void apply_template(const HttpCall& call) {
  const Json body = parse_json(call.in.body);
  JsonFields fields(body);
  fields.ignore({"model"});
  StructuredOutput output;
  ChatInput chat = read_chat(fields);
  fields.end();
  call.reply({{"prompt", chat_prompt(std::move(chat), output, call.model(), false).text}});
}

// As vLLM's: lm-evaluation-harness reads it to use the server's tokenizer.
void show_tokenizer(const HttpCall& call) {
  const ServedModel& model = call.model();
  const Vocabulary& vocabulary = *model.vocabulary;
  const auto text = [&](TokenId token) { return token < 0 ? Json(nullptr) : Json(text_of(vocabulary, token)); };
  call.reply({{"bos_token", text(vocabulary.bos())},
              {"eos_token", text(vocabulary.eos())},
              {"vocab_size", vocabulary.size()},
              {"model_max_length", model.trained_context},
              {"chat_template", model.chat_template == nullptr ? Json(nullptr) : Json(model.chat_template->source())}});
}

void show_properties(const HttpCall& call) {
  const ServedModel& model = call.model();
  const int slots = call.service->options().max_sequences;
  const bool chat = model.chat_template != nullptr;
  const bool tools = chat && model.chat_template->tools() != ChatTemplate::Tools::kNone;
  Json params = sampling_json(model.sampling);
  params["max_tokens"] = params["n_predict"] = model.default_max_tokens;
  call.reply({{"default_generation_settings",
               {{"n_ctx", model.context > 0 ? model.context : model.trained_context}, {"params", std::move(params)}}},
              {"total_slots", slots},
              {"model_alias", model.name},
              {"model_path", std::filesystem::path(model.vocabulary->path()).filename().string()},
              {"chat_template", chat ? model.chat_template->source() : ""},
              {"chat_template_caps", {{"supports_tools", tools}}},
              {"bos_token", text_of(*model.vocabulary, model.vocabulary->bos())},
              {"eos_token", text_of(*model.vocabulary, model.vocabulary->eos())},
              {"modalities", {{"vision", false}, {"audio", false}}},
              {"cache", model.encodes ? Json(nullptr) : Json(without_folders(spell_out(model.method)))},
              {"build_info", std::string("palimpsest ") + version()}});
}

// Requests have no slot of their own here: the first ones are those in use.
void list_slots(const HttpCall& call) {
  const SchedulerLoad load = call.service->load();
  const int trained = call.model().trained_context;
  const int context = call.model().context > 0 ? call.model().context : trained;
  Json list = Json::array();
  for (int i = 0; i < call.service->options().max_sequences; ++i)
    list.push_back({{"id", i}, {"n_ctx", context}, {"is_processing", i < load.running}});
  call.reply(list);
}

void list_models(const HttpCall& call) {
  Json list = Json::array();
  for (const ModelHost::Shown& shown : call.host.show()) list.push_back(shown_json(call, shown));
  if (!is_anthropic(call.in)) return call.reply({{"object", "list"}, {"data", std::move(list)}});
  const Json first = list.empty() ? Json(nullptr) : list.front()["id"], last = list.empty() ? first : list.back()["id"];
  call.reply({{"data", std::move(list)}, {"has_more", false}, {"first_id", first}, {"last_id", last}});
}

void show_model(const HttpCall& call) {
  if (call.host.has_one() && !call.model().has_name(call.name())) throw no_model(call.name(), call.model());
  if (!call.host.has_one()) call.host.find(call.name());
  for (const ModelHost::Shown& shown : call.host.show())
    if (call.host.has_one() || shown.model.name == call.name()) return call.reply(shown_json(call, shown));
  throw error_of_status(404);  // its file was removed now
}

void load_model(const HttpCall& call) {
  call.host.lease(named_model(call), [&] {
    if (call.in.is_connection_closed()) throw ApiError(499, "client_closed_request", "the client disconnected");
  });
  call.reply({{"success", true}});
}

void unload_model(const HttpCall& call) {
  call.host.unload(named_model(call));
  call.reply({{"success", true}});
}

void list_methods(const HttpCall& call) {
  Json list = Json::array();
  for (const MethodRow& row : methods()) {
    if (!row.preset.cache) continue;
    Json method = {{"id", row.name},         {"object", "method"},          {"paper", row.paper},
                   {"summary", row.summary}, {"budget", row.preset.budget}, {"error", nullptr}};
    try {
      method["budget"] = call.service->scheduler().resolved(row.preset).budget;
    } catch (const Error& error) {
      method["error"] = error.what();
    }
    list.push_back(std::move(method));
  }
  call.reply({{"object", "list"}, {"data", std::move(list)}});
}

void show_health(const HttpCall& call) {
  if (call.host.failed()) throw ApiError(500, "server_error", "the scheduler stopped: see the log");
  if (call.host.closed()) throw ApiError(503, "server_error", "the server is shutting down", "", "shutting_down");
  call.reply({{"status", "ok"}});
}

void show_metrics(const HttpCall& call) {
  call.out.set_content(call.service->metrics()->text(call.service->load(), call.model().name),
                       "text/plain; version=0.0.4; charset=utf-8");
}

}  // namespace palimpsest
