#include "palimpsest/eval/asker.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/eval/likelihood.h"
#include "palimpsest/text/chat_template.h"
#include "palimpsest/text/sampler.h"
#include "palimpsest/text/text_stream.h"

namespace palimpsest {
namespace {

double milliseconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since).count();
}

// The number of tokens of a question that are read after the end of its prompt.
std::size_t after_the_end(const Prompt& prompt, std::size_t question) {
  const std::size_t start = question < prompt.starts.size() ? prompt.starts[question] : 0;
  return std::min(std::max<std::size_t>(1, start), prompt.questions[question].size());
}

std::size_t alike(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// Reads the whole chunks of the context, up to `context` tokens, as chunks of a longer prompt. Returns the number of
// tokens read.
std::size_t read_whole_chunks(Session& session, std::span<const TokenId> prompt, std::size_t context) {
  const auto chunk = static_cast<std::size_t>(session.options().chunk);
  std::size_t read = 0;
  if (context < chunk || prompt.size() <= chunk) return 0;
  session.prefill(prompt, [&](long long done, long long) {
    read = static_cast<std::size_t>(done);
    return read + chunk <= context && read + chunk < prompt.size();
  });
  return read;
}

}  // namespace

Prompt tokenize_prompt(const Vocabulary& vocabulary, const std::string& context, std::span<const std::string> questions,
                       std::span<const std::string> starts, bool special) {
  Prompt prompt;
  prompt.context = vocabulary.tokenize(context, /*add_bos=*/true, special);
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const std::string start = i < starts.size() ? starts[i] : "";
    const std::vector<TokenId> asked = vocabulary.tokenize(context + questions[i], true, special);
    prompt.questions.push_back(vocabulary.tokenize(context + questions[i] + start, true, special));
    prompt.starts.push_back(prompt.questions.back().size() - alike(asked, prompt.questions.back()));
    prompt.context.resize(alike(prompt.context, asked));
  }
  const auto shared = static_cast<std::ptrdiff_t>(prompt.context.size());
  for (auto& question : prompt.questions) {
    question.erase(question.begin(), question.begin() + shared);
    if (question.empty()) fail("a question without a token: nothing is asked");
  }
  return prompt;
}

Prompt question_prompt(const Vocabulary& vocabulary, const ChatTemplate* chat, const std::string& context,
                       std::span<const std::string> questions, std::span<const std::string> starts,
                       const std::string& system) {
  if (chat == nullptr) {
    std::vector<std::string> spaced;  // after "Answer:"
    for (const std::string& start : starts) spaced.push_back(start.empty() ? "" : "\nAnswer: " + start);
    return tokenize_prompt(vocabulary, system.empty() ? context : system + "\n\n" + context, questions, spaced);
  }
  std::vector<std::string> rest;
  std::string begin;
  for (const std::string& question : questions) {
    const std::string mark = "\x01";  // marks the end of the context
    std::vector<ChatMessage> messages = {{"user", context + mark + question}};
    if (!system.empty()) messages.insert(messages.begin(), {"system", system});
    const std::string whole = chat->text(messages);
    const auto at = whole.find(mark);
    if (at == std::string::npos) fail("the chat template omits the user's text: name another with --chat-template");
    begin = whole.substr(0, at);
    rest.push_back(whole.substr(at + mark.size()));
  }
  return tokenize_prompt(vocabulary, begin, rest, starts, /*special=*/true);
}

Asker::Asker(std::shared_ptr<Decoder> decoder, std::shared_ptr<Vocabulary> vocabulary, const SessionOptions& options)
    : vocabulary_(std::move(vocabulary)), session_(std::move(decoder), options) {}

QuestionAnswer Asker::answer(std::span<const float> logits, const AnswerOptions& options) {
  QuestionAnswer out;
  TextStream text(*vocabulary_);
  bool ended = false;  // by a newline
  std::optional<Sampler> sampler;
  if (options.sampler) sampler.emplace(*options.sampler, vocabulary_.get(), static_cast<int>(logits.size()));
  const auto start = std::chrono::steady_clock::now();
  while (static_cast<int>(out.tokens.size()) < options.max_tokens) {
    const TokenId token = sampler ? sampler->sample(logits) : top_two(logits).best;
    if (out.tokens.empty()) out.first_nll = negative_log_likelihood(logits, token);
    if (vocabulary_->is_end(token)) break;
    out.tokens.push_back(token);
    out.text += text.put(token);
    const auto word = out.text.find_first_not_of(" \n\t");
    if (options.stop_at_newline && word != std::string::npos)
      if (const auto end = out.text.find('\n', word); end != std::string::npos) {
        out.text.resize(end);
        ended = true;
        break;
      }
    if (static_cast<int>(out.tokens.size()) < options.max_tokens) logits = session_.decode(token);
  }
  if (!ended) out.text += text.finish();
  out.ms = milliseconds(start);
  return out;
}

std::size_t Asker::read_context(const Prompt& prompt, QuestionSeen seen) {
  session_.clear();
  if (!session_.method().cache || prompt.context.empty()) return 0;
  if (seen == QuestionSeen::kAfter) {
    session_.prefill(prompt.context);
    return prompt.context.size();
  }
  // Methods that repeat the prompt need it whole.
  if (prompt.questions.size() == 1 || session_.sequence().repeats()) return 0;
  std::vector<TokenId> whole(prompt.context);
  whole.insert(whole.end(), prompt.questions.front().begin(), prompt.questions.front().end());
  whole.resize(whole.size() - after_the_end(prompt, 0));
  // The queries of a policy's window are a prompt's last ones: each question reads its own.
  const auto& window = session_.sequence().plan().signals().attention_window;
  const std::size_t last = window ? static_cast<std::size_t>(window->queries) : 1;
  std::size_t shortest = prompt.questions.front().size();
  for (std::size_t q = 0; q < prompt.questions.size(); ++q)
    shortest = std::min(shortest, prompt.questions[q].size() - after_the_end(prompt, q));
  const std::size_t all = prompt.context.size() + shortest;
  return read_whole_chunks(session_, whole, std::min(prompt.context.size(), all - std::min(all, last)));
}

std::vector<QuestionAnswer> Asker::ask(const Prompt& prompt, QuestionSeen seen, const AnswerOptions& options) {
  std::vector<QuestionAnswer> answers;
  std::unique_ptr<Cache> kept;
  std::vector<std::byte> state;  // of the sequence, with `kept`
  bool in_prompt = false;
  std::size_t read = 0;
  long long before = 0;  // Cache::dropped()
  for (std::size_t q = 0; q < prompt.questions.size(); ++q) {
    const std::vector<TokenId>& question = prompt.questions[q];
    const auto start = std::chrono::steady_clock::now();
    if (kept) {
      session_.sequence().continue_from(*kept, state, in_prompt);
    } else {
      before = session_.cache().dropped();
      read = read_context(prompt, seen);
      if (read > 0 && prompt.questions.size() > 1) {
        kept = session_.sequence().cache().fork();
        state = session_.sequence().state();
        in_prompt = session_.sequence().in_prompt();
      }
    }
    std::vector<TokenId> rest(prompt.context.begin() + static_cast<std::ptrdiff_t>(read), prompt.context.end());
    rest.insert(rest.end(), question.begin(), question.end());
    const bool compressed = seen == QuestionSeen::kAfter && read > 0;
    const std::size_t in_prompt_end =
        compressed ? 0 : rest.size() - std::min(after_the_end(prompt, q), rest.size() - 1);
    std::span<const float> logits;
    if (in_prompt_end > 0) logits = session_.prefill(std::span(rest).first(in_prompt_end));
    for (const TokenId token : std::span(rest).subspan(in_prompt_end)) logits = session_.decode(token);
    const double prompt_ms = milliseconds(start);
    QuestionAnswer& made = answers.emplace_back(answer(logits, options));
    made.prompt_ms = prompt_ms;
    made.prompt_tokens = static_cast<long long>(prompt.context.size() + question.size());
    made.evicted = session_.cache().evicted_since(before);
  }
  return answers;
}

}  // namespace palimpsest
