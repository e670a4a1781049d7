// Shared by the commands that ask questions: flags, one Asker per method, cache use and speed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "palimpsest/eval/asker.h"
#include "palimpsest/eval/haystack.h"
#include "palimpsest/eval_commands.h"
#include "palimpsest/method_list.h"
#include "palimpsest/text/chat_template.h"
#include "palimpsest/writer.h"

namespace palimpsest::cli {

struct QuestionFlags {
  ModelFlags model;
  MethodListFlags list;
  ThreadFlags threads;
  std::string seen = "before";
  bool chat = false, json = false;
  std::string chat_template, samples;  // samples: a file
};
void add_question_flags(CLI::App& command, QuestionFlags& flags);

// Reads the haystack: files and folders, or the built-in text if none is given.
Haystack read_haystack(const std::vector<std::string>& files);

class Questioner {
 public:
  // `longest`: tokens of the longest prompt and its answer; warns on standard error if it exceeds the model's trained
  // context. Throws Error.
  Questioner(const QuestionFlags& flags, TextModel model, long long longest);

  struct Run {
    NamedMethod method;
    CacheUse cache_use;
    double prompt_ms = 0, answer_ms = 0;
    long long prompt_tokens = 0, answer_tokens = 0, steps = 0;  // steps: decoded tokens in answer_ms
    double tpot_ms() const { return steps > 0 ? answer_ms / static_cast<double>(steps) : 0; }
  };
  // Runs `count` prompts, each with every method. Calls `make` once per prompt and `got` with the answers. Stops after
  // an interrupt.
  using Make = std::function<Prompt(std::size_t prompt, AnswerOptions& options)>;
  using Got = std::function<void(std::size_t run, std::size_t prompt, const std::vector<QuestionAnswer>& answers)>;
  void ask(std::size_t count, const std::string& label, const Make& make, const Got& got);

  // Tokenizes a prompt; with --chat inside the model's chat template (throws Error if it has none). `starts`: of the
  // answers, one for each question; or none. `system`: the system prompt; empty: none.
  Prompt prompt(const std::string& context, const std::vector<std::string>& questions,
                const std::vector<std::string>& starts = {}, const std::string& system = {}) const;
  // What the chat template puts between two messages of the user, with the assistant's reply. Throws Error without
  // --chat.
  std::string between_messages(const std::string& reply) const;
  const std::vector<Run>& runs() const { return runs_; }
  const Vocabulary& vocabulary() const { return *model_.vocabulary; }
  const Model& model() const { return *model_.model; }
  const std::shared_ptr<Decoder>& decoder() const { return decoder_; }
  nlohmann::json json_of(const Run& run) const;  // cache use and speed

 private:
  const QuestionFlags& flags_;
  TextModel model_;
  long long longest_;
  QuestionSeen seen_;
  std::shared_ptr<Decoder> decoder_;
  std::shared_ptr<const ChatTemplate> template_;  // with --chat
  std::vector<Run> runs_;
};

}  // namespace palimpsest::cli
