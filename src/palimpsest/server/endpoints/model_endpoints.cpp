#include "palimpsest/server/endpoints/model_endpoints.h"

#include <httplib.h>

#include <filesystem>

#include "palimpsest/core/version.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/server/apis/openai_chat.h"
#include "palimpsest/server/http/json_response.h"
#include "palimpsest/server/reply/reply_parts.h"
#include "palimpsest/server/request/chat_request.h"
#include "palimpsest/server/request/sampling_fields.h"
#include "palimpsest/server/service.h"
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

}  // namespace

// vLLM's form has `prompt` or `messages`, and begins with BOS unless add_special_tokens is false; llama-server's has
// `content`, and begins without unless add_special is true.
void tokenize(Service& service, const httplib::Request& in, httplib::Response& out) {
  const ServedModel& model = service.model();
  const Json body = parse_json(in.body);
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
  reply_json({{"tokens", std::move(list)}, {"count", tokens.size()}}, out);
}

void detokenize(Service& service, const httplib::Request& in, httplib::Response& out) {
  const Vocabulary& vocabulary = *service.model().vocabulary;
  const Json body = parse_json(in.body);
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
  reply_json({{"prompt", text}, {"content", text}}, out);
}

void apply_template(Service& service, const httplib::Request& in, httplib::Response& out) {
  const Json body = parse_json(in.body);
  JsonFields fields(body);
  fields.ignore({"model"});
  StructuredOutput output;
  ChatInput chat = read_chat(fields);
  fields.end();
  reply_json({{"prompt", chat_prompt(std::move(chat), output, service.model(), false).text}}, out);
}

// As vLLM's: lm-evaluation-harness reads it to use the server's tokenizer.
void tokenizer_info(Service& service, httplib::Response& out) {
  const ServedModel& model = service.model();
  const Vocabulary& vocabulary = *model.vocabulary;
  const auto text = [&](TokenId token) { return token < 0 ? Json(nullptr) : Json(text_of(vocabulary, token)); };
  reply_json({{"bos_token", text(vocabulary.bos())},
              {"eos_token", text(vocabulary.eos())},
              {"vocab_size", vocabulary.size()},
              {"model_max_length", service.scheduler().decoder().model().hyper().trained_context},
              {"chat_template", model.chat_template == nullptr ? Json(nullptr) : Json(model.chat_template->source())}},
             out);
}

void props(Service& service, httplib::Response& out) {
  const ServedModel& model = service.model();
  const Hyperparameters& hyper = service.scheduler().decoder().model().hyper();
  const int slots = service.scheduler().options().max_sequences;
  const bool chat = model.chat_template != nullptr;
  const bool tools = chat && model.chat_template->tools() != ChatTemplate::Tools::kNone;
  Json params = sampling_json(model.sampling);
  params["max_tokens"] = params["n_predict"] = model.default_max_tokens;
  reply_json({{"default_generation_settings",
               {{"n_ctx", model.context > 0 ? model.context : hyper.trained_context}, {"params", std::move(params)}}},
              {"total_slots", slots},
              {"model_alias", model.name},
              {"model_path", std::filesystem::path(service.scheduler().decoder().model().path()).filename().string()},
              {"chat_template", chat ? model.chat_template->source() : ""},
              {"chat_template_caps", {{"supports_tools", tools}}},
              {"bos_token", text_of(*model.vocabulary, model.vocabulary->bos())},
              {"eos_token", text_of(*model.vocabulary, model.vocabulary->eos())},
              {"modalities", {{"vision", false}, {"audio", false}}},
              {"cache", without_folders(spell_out(model.method))},
              {"build_info", std::string("palimpsest ") + version()}},
             out);
}

// Requests have no slot of their own here: the first ones are those in use.
void slots(Service& service, httplib::Response& out) {
  const SchedulerLoad load = service.scheduler().load();
  const int trained = service.scheduler().decoder().model().hyper().trained_context;
  const int context = service.model().context > 0 ? service.model().context : trained;
  Json list = Json::array();
  for (int i = 0; i < service.scheduler().options().max_sequences; ++i)
    list.push_back({{"id", i}, {"n_ctx", context}, {"is_processing", i < load.running}});
  reply_json(list, out);
}

}  // namespace palimpsest
