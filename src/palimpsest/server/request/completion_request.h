// A request to write text, of any API. Each API has a reader from its JSON into CompletionInput.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "palimpsest/engine/scheduler/request.h"
#include "palimpsest/server/api_error.h"
#include "palimpsest/server/request/structured_output.h"
#include "palimpsest/server/served_model.h"
#include "palimpsest/text/chat_template.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct CompletionRequest {
  bool chat = false;
  std::vector<SharedTokens> prompts;
  int n = 1;  // answers to each prompt
  bool stream = false, include_usage = false;
  bool echo_logs = false;         // the answers begin with the prompts, with log probabilities
  std::vector<std::string> echo;  // the text of each prompt, returned before its answers; empty: no echo
  std::vector<std::string> stop;
  std::string restore, save;  // names of the sessions to restore and to save; empty: none
  bool has_cache = false;     // false: a restored session keeps its method
  bool tokens = false;        // events have the tokens of the answers
  bool progress = false;      // the stream reports how much of the prompt is read
  bool timings = false;       // the parts of the stream have the timings so far
  bool verbose = false;       // the answer has the prompt as the model reads it
  Request request;            // without a prompt; with pin=prompt each one pins its own
  // How the replies of a chat are taken apart; nullptr: they are content only.
  std::shared_ptr<const ReplyFormat> format;
  std::vector<TokenId> reply_tokens;  // control tokens that are part of a reply's text
};

// What a request asks for, before the chat template and the grammar are applied.
struct CompletionInput {
  explicit CompletionInput(const ServedModel& model);  // the server's defaults

  std::optional<ChatInput> chat;  // else the prompts are in `request`
  StructuredOutput output = {};
  bool pins = false;          // the system prompt of a chat, or the whole prompts
  bool marks_system = false;  // the system prompt of a chat is pinned as method auto does: if it is small
  bool has_seed = false;      // given by the request
  // The client's names of fields that are checked as a whole, for errors.
  struct Names {
    std::string limit = "max_tokens", messages = "messages", count = "n";
    std::string sampling = {};  // prefix of the sampling fields, as in "options."
  };
  Names names = {};
  CompletionRequest request;  // max_tokens -1: up to the trained context
};

inline constexpr int kMaxChoices = 128;  // answers to one HTTP request
inline constexpr long long kMaxAnswerTokens = 1LL << 40;
// `field`: the name of `n`.
void check_choices(std::size_t prompts, int n, const std::string& field);

// Applies the chat template, compiles the grammar, and checks what belongs together. Throws ApiError.
CompletionRequest make_request(CompletionInput input, const ServedModel& model);

// `name`: the request's "model". Throws ApiError unless it is the served one's, or any name is accepted.
void check_model(const std::string& name, const ServedModel& model);
ApiError no_model(const std::string& name, const ServedModel& model);  // a 404

}  // namespace palimpsest
