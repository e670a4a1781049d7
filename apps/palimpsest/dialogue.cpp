#include "palimpsest/dialogue.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/evict/auto.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/system.h"
#include "palimpsest/text/system_prompt.h"

namespace palimpsest::cli {
namespace {

// "h2o:budget=256"
bool writes_budget(std::string_view method) {
  return method.find(":budget=") != std::string_view::npos || method.find(",budget=") != std::string_view::npos;
}

}  // namespace

Dialogue::Dialogue(const ChatFlags& flags)
    : flags_(flags),
      loaded_(load_text_model(flags.model)),
      sampling_(sampler_options(flags.sampling, loaded_.vocabulary.get())),
      decoder_(std::make_shared<Decoder>(loaded_.model, threads_of(flags.threads, loaded_.model->hyper()))),
      template_(ChatTemplate::load(loaded_.vocabulary, flags.chat_template, flags.special_in_messages)),
      conversation_(template_, flags.system) {
  sampling_.seed = Sampler(sampling_, loaded_.vocabulary.get(), loaded_.vocabulary->size()).seed();
  begin(flags_.cache);
}

// Where the system prompt is.
std::vector<PositionRange> Dialogue::system_prompt() const {
  if (flags_.system.empty()) return {};
  const ChatInput chat{.messages = {{"system", flags_.system}, {"user", "x"}}};
  const ChatPrompt text = template_->apply(chat);
  const auto prompt = loaded_.vocabulary->tokenize_with_breaks(text.text, true, text.breaks);
  const std::size_t tokens = system_prompt_tokens(*template_, *loaded_.vocabulary, chat, prompt);
  return {{0, static_cast<Position>(tokens)}};
}

// Method auto pins a system prompt that is short.
bool Dialogue::pins_itself(const CacheFlags& cache, const std::vector<PositionRange>& system) const {
  if (system.empty()) return false;
  SessionOptions options = session_options(cache, kDefaultMethod);
  choose_cache_type(cache, loaded_.model->hyper(), options);
  const MethodPlan plan = plan_of(options, loaded_.model->hyper());
  return pins_system_prompt(plan.method(), static_cast<std::size_t>(system.front().last));
}

SessionOptions Dialogue::options_of(CacheFlags cache) const {
  cache.on_host = on_host(flags_.model);
  const std::vector<PositionRange> system = system_prompt();
  if (pins_prompt(cache, kDefaultMethod) || pins_itself(cache, system)) pin_prompt(cache, system);
  SessionOptions options = session_options(cache, kDefaultMethod, loaded_.model->hyper(), loaded_.vocabulary.get(), 0);
  options.draft_max = draft_max_of(flags_.drafts, options.method);
  return options;
}

// An empty session of this method.
void Dialogue::begin(CacheFlags cache) {
  cache.profile_file = profile_of(loaded_, session_options(cache, kDefaultMethod), decoder_->threads());
  TextSession text = text_session(decoder_, options_of(cache), flags_.drafts, *loaded_.vocabulary);
  if (text.session->method().cache) text.session->record_memory();
  text_ = std::move(text);
  flags_.generate.drafts = text_.speculation ? &*text_.speculation : nullptr;
  flags_.cache = cache;
  unread_.clear();
  before_.clear();
  last_ = {};
}

void Dialogue::read_later(const Conversation::Turn& turn) {
  if (turn.restart) unread_.clear();
  const auto tokens = loaded_.vocabulary->tokenize_with_breaks(turn.text, turn.restart, turn.breaks);
  unread_.insert(unread_.end(), tokens.begin(), tokens.end());
}

const Generation& Dialogue::answer(const std::string& words, const Emit& emit, const Session::Progress& progress) {
  before_.push_back({conversation_, text_.session->position(), unread_});
  if (before_.size() > kMaxUndo) before_.pop_front();
  const Conversation::Turn turn = conversation_.user(words);
  if (turn.restart) text_.session->clear();
  read_later(turn);

  SamplerOptions options = sampling_;  // a new sampler for each answer, so that a grammar restarts
  options.seed += turns_++;
  Sampler sampler(options, loaded_.vocabulary.get(), loaded_.vocabulary->size());
  std::string reply;
  last_ = generate(
      *text_.session, sampler, *loaded_.vocabulary, unread_, flags_.generate,
      [&](std::string_view piece) {
        reply += piece;
        emit(piece);
      },
      interrupted(), progress);
  unread_.erase(unread_.begin(), unread_.begin() + static_cast<std::ptrdiff_t>(last_.prompt_tokens));
  if (last_.unread >= 0) unread_.push_back(last_.unread);
  conversation_.assistant(reply);
  remember(words, std::move(reply));
  // A prompt that was stopped between two layers cannot be continued.
  if (text_.session->options().layerwise && text_.session->sequence().stage() == Sequence::Stage::kPrompt) {
    text_.session->clear();
    repeat(flags_.system, said_);
  }
  return last_;
}

void Dialogue::remember(const std::string& words, std::string reply) {
  said_bytes_ += words.size() + reply.size();
  said_.push_back({words, std::move(reply)});
  for (; said_bytes_ > kMaxSaid && said_.size() > 1; forgot_ = true) {
    said_bytes_ -= said_.front().words.size() + said_.front().reply.size();
    said_.pop_front();
  }
}

std::optional<std::string> Dialogue::undo() {
  if (said_.empty()) return std::nullopt;
  std::string words = std::move(said_.back().words);
  said_bytes_ -= words.size() + said_.back().reply.size();
  said_.pop_back();
  if (!before_.empty() && rewind(before_.back().position)) {
    conversation_ = std::move(before_.back().conversation);
    unread_ = std::move(before_.back().unread);
  } else {
    text_.session->clear();
    repeat(flags_.system, said_);
  }
  if (!before_.empty()) before_.pop_back();
  last_ = {};
  return words;
}

// false: the conversation must be read again, because it began again after `position` (a template that rewrites earlier
// turns), or the method cannot take tokens back (merged tokens, no cache; a lossless method's small cache is not made
// from a text that was cut).
bool Dialogue::rewind(Position position) {
  if (text_.session->position() < position || small() != nullptr) return false;
  try {
    text_.session->rewind(position);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void Dialogue::reset() {
  conversation_.reset();
  text_.session->clear();
  last_ = {};
  said_.clear();
  unread_.clear();
  before_.clear();
  said_bytes_ = 0;
  forgot_ = false;
}

// The same conversation again, for an empty session: its text is read with the next message.
void Dialogue::repeat(const std::string& system, const std::deque<Said>& said) {
  Conversation conversation(template_, system);
  unread_.clear();
  for (const Said& each : said) {
    read_later(conversation.user(each.words));
    const auto reply = loaded_.vocabulary->tokenize(each.reply, false, flags_.special_in_messages);
    unread_.insert(unread_.end(), reply.begin(), reply.end());
    conversation.assistant(each.reply);
  }
  conversation_ = std::move(conversation);
}

void Dialogue::use(const std::string& method) {
  CacheFlags cache = flags_.cache;
  if (writes_budget(method))
    cache.budget.reset();
  else if (!cache.budget && writes_budget(cache.method))
    cache.budget = get_option(parse_method(cache.method), "budget");
  cache.method = method;
  cache.policy.reset();
  cache.mechanism.reset();
  cache.positions.reset();
  cache.sinks.reset();
  begin(cache);
  repeat(flags_.system, said_);
}

std::string Dialogue::method() const {
  const Method& method = chosen();
  const std::string name = spell_short(method);
  if (!method.evicts())
    return name + ", evicts nothing" +
           (flags_.cache.budget ? fmt::format("; budget {} stays for other methods", *flags_.cache.budget) : "");
  return writes_budget(name) ? name : fmt::format("{}, budget {}", name, method.budget);
}

void Dialogue::limit(const std::string& budget) {
  if (!chosen().evicts()) fail("method {} evicts nothing: choose another with /method", chosen().name);
  CacheFlags cache = flags_.cache;
  cache.budget = budget;  // replaces the one that the method writes
  begin(cache);
  repeat(flags_.system, said_);
}

void Dialogue::save(const std::string& path) const {
  nlohmann::ordered_json out = {{"system", flags_.system}, {"messages", nlohmann::ordered_json::array()}};
  for (const Said& each : said_) {
    out["messages"].push_back({{"role", "user"}, {"content", each.words}});
    out["messages"].push_back({{"role", "assistant"}, {"content", each.reply}});
  }
  std::ofstream file(path, std::ios::binary);
  file << out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
  file.close();
  if (!file) fail("{} cannot be written: choose another file", path);
  if (forgot_) fail("{} has the newest {} messages: earlier ones are not kept", path, 2 * said_.size());
}

void Dialogue::load(const std::string& path) {
  const auto in = nlohmann::json::parse(read_text(path, "the conversation"), nullptr, false);
  const auto is_text = [](const nlohmann::json& object, const char* name) {
    return object.is_object() && object.contains(name) && object[name].is_string();
  };
  if (!is_text(in, "system") || !in.contains("messages") || !in["messages"].is_array())
    fail("{} is no conversation that /save has written", path);
  std::deque<Said> said;
  bool answered = true;
  for (const auto& message : in["messages"]) {
    const bool fits =
        is_text(message, "role") && is_text(message, "content") && message["role"] == (answered ? "user" : "assistant");
    if (!fits) fail("{} is no conversation that /save has written: messages and answers must alternate", path);
    if (answered)
      said.push_back({message["content"], {}});
    else
      said.back().reply = message["content"];
    answered = !answered;
  }
  if (!answered) fail("{} ends with a message without an answer", path);
  const std::string before = std::exchange(flags_.system, in["system"].get<std::string>());
  try {
    begin(flags_.cache);  // the method pins this system prompt
  } catch (...) {
    flags_.system = before;
    throw;
  }
  reset();
  repeat(flags_.system, said);
  for (Said& each : said) remember(each.words, std::move(each.reply));
}

}  // namespace palimpsest::cli
