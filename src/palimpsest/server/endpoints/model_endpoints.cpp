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

Json model_json(const ServedModel& model, std::time_t created) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "palimpsest"},
          {"aliases", model.aliases}};
}

Json anthropic_model_json(const ServedModel& model, std::time_t created) {
  return {{"type", "model"},
          {"id", model.name},
          {"display_name", model.name},
          {"created_at", iso_time(created)},
          {"lifecycle", "active"},
          {"max_input_tokens", model.vocabulary->trained_context()}};
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
  const auto tokens = special ? model.vocabulary->tokenize_with_breaks(text.text, begin, text.breaks)
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
              {"model_max_length", call.hyper().trained_context},
              {"chat_template", model.chat_template == nullptr ? Json(nullptr) : Json(model.chat_template->source())}});
}

void show_properties(const HttpCall& call) {
  const ServedModel& model = call.model();
  const Hyperparameters& hyper = call.hyper();
  const int slots = call.service->scheduler().options().max_sequences;
  const bool chat = model.chat_template != nullptr;
  const bool tools = chat && model.chat_template->tools() != ChatTemplate::Tools::kNone;
  Json params = sampling_json(model.sampling);
  params["max_tokens"] = params["n_predict"] = model.default_max_tokens;
  call.reply(
      {{"default_generation_settings",
        {{"n_ctx", model.context > 0 ? model.context : hyper.trained_context}, {"params", std::move(params)}}},
       {"total_slots", slots},
       {"model_alias", model.name},
       {"model_path", std::filesystem::path(call.service->scheduler().decoder().model().path()).filename().string()},
       {"chat_template", chat ? model.chat_template->source() : ""},
       {"chat_template_caps", {{"supports_tools", tools}}},
       {"bos_token", text_of(*model.vocabulary, model.vocabulary->bos())},
       {"eos_token", text_of(*model.vocabulary, model.vocabulary->eos())},
       {"modalities", {{"vision", false}, {"audio", false}}},
       {"cache", without_folders(spell_out(model.method))},
       {"build_info", std::string("palimpsest ") + version()}});
}

// Requests have no slot of their own here: the first ones are those in use.
void list_slots(const HttpCall& call) {
  const SchedulerLoad load = call.service->scheduler().load();
  const int trained = call.hyper().trained_context;
  const int context = call.model().context > 0 ? call.model().context : trained;
  Json list = Json::array();
  for (int i = 0; i < call.service->scheduler().options().max_sequences; ++i)
    list.push_back({{"id", i}, {"n_ctx", context}, {"is_processing", i < load.running}});
  call.reply(list);
}

void list_models(const HttpCall& call) {
  if (is_anthropic(call.in)) {
    const Json model = anthropic_model_json(call.model(), call.started);
    return call.reply(
        {{"data", Json::array({model})}, {"has_more", false}, {"first_id", model["id"]}, {"last_id", model["id"]}});
  }
  call.reply({{"object", "list"}, {"data", Json::array({model_json(call.model(), call.started)})}});
}

void show_model(const HttpCall& call) {
  if (!call.model().has_name(call.name())) throw no_model(call.name(), call.model());
  call.reply((is_anthropic(call.in) ? anthropic_model_json : model_json)(call.model(), call.started));
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
  if (call.service->failed()) throw ApiError(500, "server_error", "the scheduler stopped: see the log");
  if (call.service->closed()) throw ApiError(503, "server_error", "the server is shutting down", "", "shutting_down");
  call.reply({{"status", "ok"}});
}

void show_metrics(const HttpCall& call) {
  call.out.set_content(call.service->metrics()->text(call.service->scheduler().load(), call.model().name),
                       "text/plain; version=0.0.4; charset=utf-8");
}

}  // namespace palimpsest
