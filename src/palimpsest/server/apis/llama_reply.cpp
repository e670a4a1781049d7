#include "palimpsest/server/apis/reply_writers.h"
#include "palimpsest/server/request/sampling_fields.h"
#include "palimpsest/text/utf8.h"

namespace palimpsest {
namespace {

Json token_json(TokenId id, const std::string& bytes, float logprob) {
  return {{"id", id}, {"token", whole_characters(bytes)}, {"bytes", bytes_json(bytes)}, {"logprob", logprob}};
}

Json probabilities_json(const std::vector<TokenLog>& logs) {
  Json out = Json::array();
  for (const TokenLog& log : logs) {
    Json token = token_json(log.id, log.bytes, log.logprob);
    token["top_logprobs"] = Json::array();
    for (std::size_t i = 0; i < log.top.size(); ++i)
      token["top_logprobs"].push_back(token_json(log.top_ids[i], log.top[i].first, log.top[i].second));
    out.push_back(std::move(token));
  }
  return out;
}

const char* stop_type(Finish finish) {
  switch (finish) {
    case Finish::kEnd:
      return "eos";
    case Finish::kStopped:
      return "word";
    case Finish::kLength:
      return "limit";
    default:
      return "none";
  }
}

// "generation_settings/n_predict" is a field of a field.
Json selected(const Json& object, const std::vector<std::string>& paths) {
  if (paths.empty()) return object;
  Json out = Json::object();
  for (const std::string& path : paths) {
    const Json* at = &object;
    for (std::size_t begin = 0; at != nullptr && begin <= path.size();) {
      const std::size_t end = std::min(path.find('/', begin), path.size());
      const auto found = at->is_object() ? at->find(path.substr(begin, end - begin)) : at->end();
      at = at->is_object() && found != at->end() ? &*found : nullptr;
      begin = end + 1;
    }
    if (at != nullptr) out[path] = *at;
  }
  return out;
}

class LlamaWriter final : public ReplyWriter {
 public:
  explicit LlamaWriter(LlamaWriterOptions options)
      : options_(std::move(options)), written_(options_.prompts.size(), 0), lines_(options_.prompts.size(), false) {}

  Json whole(const std::vector<Choice>& choices, const ReplyUsage&) override {
    Json list = Json::array();
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const Choice& choice = choices[i];
      list.push_back(selected(last(static_cast<int>(i), choice.text, choice.tokens, choice.logs, choice.finish,
                                   choice.stop_word, choice.usage),
                              options_.response_fields));
    }
    return list.size() == 1 ? list.front() : list;
  }
  std::string piece(const Event& event, const ReplyDelta& delta, bool, const Json& session,
                    const ReplyUsage*) override {
    written_[static_cast<std::size_t>(event.choice)] += static_cast<long long>(event.tokens.size());
    std::string out;
    const bool tokens = options_.return_tokens && !event.tokens.empty();
    if (delta.content.find('\n') != std::string::npos) lines_[static_cast<std::size_t>(event.choice)] = true;
    // The last object has no text.
    if (!event.last || tokens || !delta.content.empty()) out = line(with_timings(part(event, delta.content)));
    if (!event.last) return out;
    Json end = last(event.choice, "", {}, {}, event.finish, event.stop_word, event.usage);
    if (!session.is_null()) end["session"] = session;
    return out + line(selected(end, options_.response_fields));
  }
  std::string progress(int choice, const PromptProgress& progress, long long tokens, double ms) override {
    Json object = part({.choice = choice, .text = {}, .logs = {}}, "");
    object["prompt_progress"] = progress_json(progress, tokens, ms);
    return line(object);
  }
  void so_far(const ReplyUsage& usage) override { timings_ = timings_json(usage); }
  std::string end(const ReplyUsage&) override { return {}; }
  std::string error(const ApiError& error) override { return line(error.json()); }

 private:
  static std::string line(const Json& object) { return "data: " + dump(object) + "\n\n"; }

  Json with_timings(Json object) {
    if (!timings_.is_null()) object["timings"] = std::exchange(timings_, nullptr);
    return object;
  }

  Json part(const Event& event, const std::string& content) const {
    Json out = {{"index", event.choice},
                {"content", content},
                {"tokens", event.tokens},
                {"stop", false},
                {"id_slot", -1},
                {"tokens_predicted", written_[static_cast<std::size_t>(event.choice)]},
                {"tokens_evaluated", prompt_of(event.choice).tokens}};
    if (!event.logs.empty()) out["completion_probabilities"] = probabilities_json(event.logs);
    return out;
  }

  Json last(int choice, const std::string& content, const std::vector<TokenId>& tokens,
            const std::vector<TokenLog>& logs, Finish finish, const std::string& word, const Usage& usage) const {
    const LlamaWriterOptions::Prompt& prompt = prompt_of(choice);
    const ReplyUsage all{.prompt_tokens = prompt.tokens,
                         .cached_tokens = usage.cached,
                         .completion_tokens = usage.tokens,
                         .evicted_tokens = usage.evicted,
                         .drafts = usage.drafts,
                         .method = usage.method,
                         .queue_ms = usage.queue_ms,
                         .ttft_ms = usage.ttft_ms,
                         .total_ms = usage.total_ms};
    Json out = {{"index", choice},
                {"content", content},
                {"tokens", options_.return_tokens ? Json(tokens) : Json::array()},
                {"id_slot", -1},
                {"stop", true},
                {"model", options_.model},
                {"tokens_predicted", usage.tokens},
                {"tokens_evaluated", prompt.tokens},
                {"generation_settings", options_.settings},
                {"prompt", prompt.text},
                {"has_new_line", lines_[static_cast<std::size_t>(choice)] || content.find('\n') != std::string::npos},
                {"truncated",
                 finish == Finish::kLength && options_.context > 0 && prompt.tokens + usage.tokens >= options_.context},
                {"stop_type", stop_type(finish)},
                {"stopping_word", word},
                {"tokens_cached", prompt.tokens + usage.tokens},
                {"timings", timings_json(all)}};
    if (!logs.empty()) out["completion_probabilities"] = probabilities_json(logs);
    return out;
  }

  const LlamaWriterOptions::Prompt& prompt_of(int choice) const {
    return options_.prompts[static_cast<std::size_t>(choice)];
  }

  LlamaWriterOptions options_;
  Json timings_;  // of the next part
  // Per choice, in the parts of a stream so far: the number of tokens, and whether there is a line break.
  std::vector<long long> written_;
  std::vector<bool> lines_;
};

}  // namespace

std::unique_ptr<ReplyWriter> llama_writer(LlamaWriterOptions options) {
  return std::make_unique<LlamaWriter>(std::move(options));
}

}  // namespace palimpsest
