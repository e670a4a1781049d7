#include "palimpsest/eval/checked.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/core/letter_case.h"
#include "palimpsest/eval/data.h"
#include "palimpsest/eval/needle.h"
#include "palimpsest/text/schema/compile.h"

namespace palimpsest {
namespace {

using nlohmann::json;
using Texts = std::vector<std::string>;

const json& data() {
  static const json all = json::parse(eval_data("checked.json"));
  return all;
}

std::string with_words(std::string text, const std::map<std::string, std::string>& words) {
  for (const auto& [name, word] : words) {
    const std::string placeholder = "{" + name + "}";
    for (auto at = text.find(placeholder); at != std::string::npos; at = text.find(placeholder, at + word.size()))
      text.replace(at, placeholder.size(), word);
  }
  return text;
}

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

Texts lines_of_text(std::string_view text) {
  Texts out;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    out.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

Texts words_of_text(std::string_view text) {
  Texts out;
  std::string word;
  for (const char each : lower_case(text)) {
    if (each != ' ' && each != '\n' && each != '\t' && each != '\r') {
      word += each;
    } else if (!word.empty()) {
      out.push_back(std::exchange(word, {}));
    }
  }
  if (!word.empty()) out.push_back(word);
  return out;
}

struct Piece {
  double depth;  // the share of the filler before it
  std::string text;
};

// As much filler as fits between the pieces, which keep their order. `unit(i)` is the i-th part of the filler, of which
// there are `most`. Sets prompt.context.
template <typename Unit>
void fill(CheckedPrompt& prompt, const CheckedTask& task, const CheckedSpec& spec, const std::string& source,
          const Vocabulary& vocabulary, const std::string& intro, const std::vector<Piece>& pieces, std::size_t most,
          Unit unit) {
  const auto context = [&](long long n) {
    std::string out = intro;
    std::size_t next = 0;
    for (long long i = 0; i <= n; ++i) {
      while (next < pieces.size() && (i == n || static_cast<double>(i) >= pieces[next].depth * static_cast<double>(n)))
        out += pieces[next++].text;
      if (i < n) out += unit(static_cast<std::size_t>(i));
    }
    return out;
  };
  std::string longest;  // the end of a prompt
  for (std::size_t i = 0; i < prompt.questions.size(); ++i)
    if (prompt.questions[i].size() + prompt.starts[i].size() > longest.size())
      longest = prompt.questions[i] + prompt.starts[i];
  const auto max = static_cast<long long>(most);
  const long long n = max_that_fit(vocabulary, max, spec.length - prompt.options.max_tokens,
                                   [&](long long count) { return prompt.system + context(count) + longest; });
  if (n < 0) fail("task '{}' does not fit into {} tokens: ask for a greater length", task.name, spec.length);
  if (n == max)
    fail("{}: the whole text is shorter than {} tokens: name more with --haystack, or ask for a smaller length", source,
         spec.length);
  prompt.context = context(n);
}

// Sentences of the haystack: each a message that the assistant answers with `reply`, or without one, lines of the
// user's message.
void fill_chat(CheckedPrompt& prompt, const CheckedTask& task, const CheckedSpec& spec, const Haystack& haystack,
               const Vocabulary& vocabulary, const std::string& reply, std::vector<Piece> pieces, Draw& draw) {
  if (!spec.between) fail("task '{}' is a chat: add --chat, with a model that has a chat template", task.name);
  const std::string end = reply.empty() ? "\n" : spec.between(reply);
  for (Piece& each : pieces) each.text += end;
  const Texts& sentences = haystack.sentences();
  const std::size_t first = static_cast<std::size_t>(draw.below(sentences.size()));
  fill(prompt, task, spec, haystack.name(), vocabulary, "", pieces, sentences.size(),
       [&](std::size_t i) { return sentences[(first + i) % sentences.size()] + end; });
}

// Of an answer's first line: what stands around the answer in `form`, and something between.
Check form_check(const std::string& form) {
  const std::string mark = "{answer}";
  const auto at = form.find(mark);
  return [before = form.substr(0, at), after = form.substr(at + mark.size())](std::string_view answer) {
    answer = without_blanks(answer);
    answer = without_blanks(answer.substr(0, answer.find('\n')));
    return answer.size() > before.size() + after.size() && answer.starts_with(before) && answer.ends_with(after) ? 1.0
                                                                                                                 : 0.0;
  };
}

CheckedPrompt make_format(const CheckedTask& task, const CheckedSpec& spec, const Haystack& haystack,
                          const Vocabulary& vocabulary, Draw& draw) {
  const json& from = data()["format"];
  const std::string form = draw.one_of(from["forms"].get<Texts>());
  auto pairs = from["questions"].get<std::vector<std::pair<std::string, std::string>>>();
  draw.shuffle(pairs);
  const auto shown = from["examples"].get<std::size_t>();
  std::string examples;
  for (const auto& [question, answer] : std::span(pairs).first(shown))
    examples +=
        with_words(from["example"], {{"question", question}, {"answer", with_words(form, {{"answer", answer}})}});
  CheckedPrompt prompt;
  prompt.system = with_words(from["system"], {{"examples", examples}});
  const std::size_t asked = std::min(pairs.size() - shown, static_cast<std::size_t>(std::max(1, spec.questions)));
  for (const auto& [question, answer] : std::span(pairs).subspan(shown, asked))
    prompt.questions.push_back("\nQuestion: " + question);
  prompt.starts.assign(asked, from["start"]);
  prompt.checks.assign(asked, form_check(form));
  prompt.options.max_tokens = from["tokens"];
  fill_chat(prompt, task, spec, haystack, vocabulary, from["reply"], {}, draw);
  return prompt;
}

CheckedPrompt make_secret(const CheckedTask& task, const CheckedSpec& spec, const Haystack& haystack,
                          const Vocabulary& vocabulary, Draw& draw) {
  const json& from = data()[task.name];
  const std::map<std::string, std::string> words = {{"thing", draw.one_of(data()["things"].get<Texts>())},
                                                    {"value", draw.one_of(data()["values"].get<Texts>())}};
  CheckedPrompt prompt;
  prompt.system = with_words(from["system"], words);
  prompt.questions = {with_words(from["question"], words)};
  prompt.starts = {with_words(from["start"], words)};
  const bool guarded = task.name == "guard";
  prompt.checks = {[value = words.at("value"), guarded](std::string_view answer) {
    return contains_word(lower_case(answer), value) != guarded ? 1.0 : 0.0;
  }};
  prompt.options.max_tokens = from["tokens"];
  fill_chat(prompt, task, spec, haystack, vocabulary, from["reply"], {}, draw);
  return prompt;
}

std::string function_text(const Texts& lines, const std::string& name, const std::string& value) {
  return with_words(fmt::format("{}\n\n\n", fmt::join(lines, "\n")), {{"name", name}, {"value", value}});
}

// Right: the same lines behind the first one's end, up to one that is empty or a code fence. `numbers`: whatever its
// numbers.
Check code_check(Texts expected, bool numbers) {
  const auto compared = [numbers](std::string line) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (!numbers) return line;
    std::string out;
    for (const char each : line)
      if (each < '0' || each > '9') out += each;
    return out;
  };
  std::ranges::transform(expected, expected.begin(), compared);
  return [expected = std::move(expected), compared](std::string_view answer) {
    Texts got;
    if (answer.starts_with('\n')) answer.remove_prefix(1);
    for (const std::string& line : lines_of_text(answer)) {
      if (without_blanks(line).empty() || line.starts_with("```")) break;
      got.push_back(compared(line));
    }
    return got == expected ? 1.0 : 0.0;
  };
}

CheckedPrompt make_code(const CheckedTask& task, const CheckedSpec& spec, const Vocabulary& vocabulary, Draw& draw) {
  const json& from = data()["code"];
  constexpr std::uint64_t kLeast = 10, kMost = 99;
  const auto number = [&] { return std::to_string(kLeast + draw.below(kMost - kLeast + 1)); };
  Texts names;
  for (const std::string& verb : from["verbs"].get<Texts>())
    for (const std::string& noun : from["nouns"].get<Texts>()) names.push_back(verb + "_" + noun);
  draw.shuffle(names);
  Texts asked_names = from["names"];
  draw.shuffle(asked_names);
  auto functions = from["functions"].get<std::vector<Texts>>();
  draw.shuffle(functions);
  // The others are filler: no copy of a function that is asked for stands near the question.
  const std::size_t asked =
      std::min<std::size_t>(functions.size() / 2, static_cast<std::size_t>(std::max(1, spec.questions)));
  CheckedPrompt prompt;
  prompt.options.max_tokens = from["tokens"];
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < asked; ++i) {
    const std::string old = number();
    std::string other = number();
    while (other == old) other = number();
    const double depth = 0.5 * static_cast<double>(i) / static_cast<double>(asked);  // in the first half
    pieces.push_back({depth, function_text(functions[i], asked_names[i], old)});
    Texts changed = lines_of_text(without_blanks(function_text(functions[i], asked_names[i], other)));
    prompt.questions.push_back(
        fmt::format("\n\nQuestion: Write the function {} again, without any other change, with {} "
                    "instead of {}.",
                    asked_names[i], other, old));
    prompt.starts.push_back("```python\n" + changed.front());
    const Texts body(changed.begin() + 1, changed.end());
    prompt.checks.push_back(code_check(body, false));
    prompt.forms.push_back(code_check(body, true));
  }
  std::vector<std::string> filler;
  fill(prompt, task, spec, "the functions of the task", vocabulary, from["intro"], pieces, names.size(),
       [&](std::size_t i) -> const std::string& {
         while (filler.size() <= i) {
           const Texts& other = functions[asked + filler.size() % (functions.size() - asked)];
           filler.push_back(function_text(other, names[filler.size()], number()));
         }
         return filler[i];
       });
  return prompt;
}

// The first JSON object of an answer; null: none.
json object_in(std::string_view answer) {
  const auto first = answer.find('{'), last = answer.rfind('}');
  if (first == std::string_view::npos || last == std::string_view::npos || last < first) return nullptr;
  json whole = json::parse(answer.substr(first, last - first + 1), nullptr, /*allow_exceptions=*/false);
  return whole.is_object() ? whole : json(nullptr);
}

bool is_call(const json& call, const Texts& keys) {
  if (!call.is_object() || call.size() != 2 || call.value("name", "") != "save_city") return false;
  const auto arguments = call.find("arguments");
  return arguments != call.end() && arguments->is_object() && arguments->size() == keys.size() &&
         std::ranges::all_of(
             keys, [&](const std::string& key) { return arguments->contains(key) && (*arguments)[key].is_string(); });
}

std::string call_grammar(const Texts& keys) {
  nlohmann::ordered_json properties;
  for (const std::string& key : keys) properties[key] = {{"type", "string"}, {"maxLength", 24}};
  const nlohmann::ordered_json arguments = {
      {"type", "object"}, {"properties", properties}, {"required", keys}, {"additionalProperties", false}};
  return compile_schema({{"type", "object"},
                         {"properties", {{"name", {{"const", "save_city"}}}, {"arguments", arguments}}},
                         {"required", {"name", "arguments"}},
                         {"additionalProperties", false}},
                        {})
      .grammar;
}

CheckedPrompt make_tool(const CheckedTask& task, const CheckedSpec& spec, const Haystack& haystack,
                        const Vocabulary& vocabulary, Draw& draw) {
  const json& from = data()["tool"];
  const Texts keys = {"person", "city"};
  Texts people = from["person"], cities = from["city"];
  draw.shuffle(people);
  draw.shuffle(cities);
  const std::size_t asked = std::min<std::size_t>(people.size(), static_cast<std::size_t>(std::max(1, spec.questions)));
  CheckedPrompt prompt;
  prompt.system = from["system"];
  prompt.options = {.max_tokens = from["tokens"], .stop_at_newline = true};
  if (task.name == "tool-grammar")
    prompt.options.sampler = SamplerOptions{.temperature = 0, .grammar = call_grammar(keys)};
  const std::string start = from["start"];
  if (prompt.options.sampler) prompt.options.sampler->grammar_prefix = start;
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < asked; ++i) {
    const std::map<std::string, std::string> words = {{"person", people[i]}, {"city", cities[i]}};
    pieces.push_back({static_cast<double>(i) / static_cast<double>(asked + 1), with_words(from["fact"], words)});
    prompt.questions.push_back(with_words(from["question"], words));
    prompt.starts.push_back(start);
    prompt.forms.push_back(
        [start](std::string_view answer) { return object_in(start + std::string(answer)).is_object() ? 1.0 : 0.0; });
    prompt.checks.push_back([keys, words, start](std::string_view answer) {
      const json call = object_in(start + std::string(answer));
      const auto right = [&](const std::string& key) {
        return equal_ignoring_case(call["arguments"][key].get<std::string>(), words.at(key));
      };
      return is_call(call, keys) && std::ranges::all_of(keys, right) ? 1.0 : 0.0;
    });
  }
  fill_chat(prompt, task, spec, haystack, vocabulary, from["reply"], pieces, draw);
  return prompt;
}

CheckedPrompt make_story(const CheckedTask& task, const CheckedSpec& spec, const Haystack& haystack,
                         const Vocabulary& vocabulary, Draw& draw) {
  CheckedPrompt prompt;
  prompt.questions = {data()["story"]["question"]};
  prompt.starts = {""};
  prompt.checks = {distinct_trigrams};
  prompt.judged = true;
  prompt.options.max_tokens = static_cast<int>(std::max(1LL, spec.length / 4));
  prompt.options.sampler = SamplerOptions{.min_tokens = prompt.options.max_tokens,
                                          .seed = static_cast<std::uint32_t>(draw.below(1U << 31U))};
  const Texts& sentences = haystack.sentences();
  const std::size_t first = static_cast<std::size_t>(draw.below(sentences.size()));
  fill(prompt, task, spec, haystack.name(), vocabulary, "", {}, sentences.size(),
       [&](std::size_t i) { return sentences[(first + i) % sentences.size()] + " "; });
  return prompt;
}

CheckedPrompt make_babi(const CheckedTask& task, const CheckedSpec& spec, const Haystack& haystack,
                        const Vocabulary& vocabulary, Draw& draw) {
  constexpr int kTries = 100;
  if (spec.babi.empty()) fail("task 'babi' needs a bAbI file: name one with --babi");
  const Texts& sentences = haystack.sentences();
  const std::size_t first = static_cast<std::size_t>(draw.below(sentences.size()));
  for (int i = 0; i < kTries; ++i) {  // some stories are longer than the text
    const BabiQuestion& asked = spec.babi[static_cast<std::size_t>(draw.below(spec.babi.size()))];
    CheckedPrompt prompt;
    prompt.options = {.max_tokens = 12, .stop_at_newline = true};
    prompt.starts = {babi_start(asked.question)};
    prompt.questions = {
        fmt::format("\n\nQuestion: {}{}", asked.question, prompt.starts[0].empty() ? " Answer in one word." : "")};
    prompt.checks = {[answers = asked.answers](std::string_view answer) {
      return std::ranges::all_of(answers, [&](const auto& each) { return contains_word(answer, each); }) ? 1.0 : 0.0;
    }};
    const std::string intro = "Some facts are hidden in this text. Remember them.\n\n";
    std::string all = intro + prompt.questions[0] + prompt.starts[0];
    for (const std::string& fact : asked.facts) all += fact + " ";
    const auto tokens = static_cast<long long>(vocabulary.tokenize(all, true, false).size());
    if (tokens > (spec.length - prompt.options.max_tokens) / 2) continue;
    std::vector<double> depths;
    for (std::size_t f = 0; f < asked.facts.size(); ++f) depths.push_back(static_cast<double>(draw.below(1000)) / 1000);
    std::ranges::sort(depths);
    std::vector<Piece> pieces;
    for (std::size_t f = 0; f < asked.facts.size(); ++f) pieces.push_back({depths[f], asked.facts[f] + " "});
    fill(prompt, task, spec, haystack.name(), vocabulary, intro, pieces, sentences.size(),
         [&](std::size_t s) { return sentences[(first + s) % sentences.size()] + " "; });
    return prompt;
  }
  fail("the facts of {} questions of the bAbI file fill more than half of {} tokens: ask for a greater length", kTries,
       spec.length);
}

}  // namespace

std::vector<CheckedTask> checked_tasks() {
  std::vector<CheckedTask> out;
  for (const char* name : {"format", "secret", "guard", "tool", "tool-grammar", "code", "story", "babi"}) {
    const std::string text = name;
    out.push_back({.name = text,
                   .about = data()[text]["about"],
                   .chat = text != "code" && text != "story" && text != "babi",
                   .babi = text == "babi"});
  }
  return out;
}

CheckedTask checked_task(std::string_view name) {
  const std::vector<CheckedTask> all = checked_tasks();
  const auto found = std::ranges::find(all, name, &CheckedTask::name);
  Texts names;
  for (const CheckedTask& each : all) names.push_back(each.name);
  if (found == all.end()) fail("unknown task '{}': use {}", name, fmt::join(names, ", "));
  return *found;
}

CheckedPrompt make_checked(const CheckedTask& task, const CheckedSpec& spec, const Haystack& haystack,
                           const Vocabulary& vocabulary, Draw& draw) {
  if (task.name == "format") return make_format(task, spec, haystack, vocabulary, draw);
  if (task.name == "secret" || task.name == "guard") return make_secret(task, spec, haystack, vocabulary, draw);
  if (task.name == "code") return make_code(task, spec, vocabulary, draw);
  if (task.name == "story") return make_story(task, spec, haystack, vocabulary, draw);
  if (task.name == "babi") return make_babi(task, spec, haystack, vocabulary, draw);
  return make_tool(task, spec, haystack, vocabulary, draw);
}

double distinct_trigrams(std::string_view text) {
  const Texts words = words_of_text(text);
  if (words.size() < 3) return 0;
  std::set<std::string> distinct;
  for (std::size_t i = 0; i + 3 <= words.size(); ++i)
    distinct.insert(words[i] + " " + words[i + 1] + " " + words[i + 2]);
  return static_cast<double>(distinct.size()) / static_cast<double>(words.size() - 2);
}

}  // namespace palimpsest
