#include "palimpsest/fit/recall.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "palimpsest/core/error.h"
#include "palimpsest/eval/needle.h"
#include "palimpsest/text/chat_template.h"

namespace palimpsest {
namespace {

struct FactKind {
  std::string_view question, begin;  // {}: a name; a fact is `begin`, a space, a value and a full stop
  std::array<std::string_view, 10> values;
};

constexpr std::array<FactKind, kRecallFacts> kFacts = {
    FactKind{"In which city does {} live?",
             "{} lives in the city of",
             {"Lisbon", "Vienna", "Dublin", "Prague", "Naples", "Geneva", "Madrid", "Boston", "Cairo", "Tokyo"}},
    FactKind{"Which work does {} do?",
             "{} works as a",
             {"baker", "dentist", "teacher", "plumber", "lawyer", "painter", "carpenter", "pilot", "tailor", "nurse"}},
    FactKind{"Which animal does {} keep?",
             "At home {} keeps a",
             {"parrot", "goat", "rabbit", "turtle", "monkey", "pony", "hamster", "snake", "lizard", "pigeon"}},
    FactKind{"Which instrument does {} play?",
             "Every evening {} plays the",
             {"violin", "piano", "flute", "guitar", "trumpet", "harp", "cello", "banjo", "clarinet", "accordion"}},
};
constexpr std::array<std::string_view, 16> kNames = {"Martha", "Edward", "Helen",  "Robert",  "Samuel", "Laura",
                                                     "Daniel", "Sophie", "Victor", "Barbara", "Philip", "Teresa",
                                                     "Andrew", "Monica", "Oliver", "Judith"};
constexpr std::string_view kIntro = "Read the following text. You will be asked about details of it.\n\n";

std::string with_name(std::string_view text, std::string_view name) {
  return fmt::format(fmt::runtime(text), name);
}

// Context and question in the chat template, cut where the question begins.
Prompt in_template(const Vocabulary& vocabulary, const ChatTemplate* chat, const std::string& context,
                   const std::vector<std::string>& questions, const std::vector<std::string>& begins) {
  std::string before = context;
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    if (chat == nullptr) {
      rest.push_back(fmt::format("\n\nQuestion: {}\nAnswer: ", questions[i]));
      continue;
    }
    const std::string mark = "\x01";  // where the question begins
    const std::string whole = chat->text({{"user", context + mark + "\n\n" + questions[i]}});
    const auto at = whole.find(mark);
    if (at == std::string::npos) fail("the model's chat template omits the user's text");
    before = whole.substr(0, at);
    rest.push_back(whole.substr(at + mark.size()));
  }
  return tokenize_prompt(vocabulary, before, rest, begins, /*special=*/chat != nullptr);
}

}  // namespace

std::vector<RecallPrompt> recall_prompts(const std::shared_ptr<const Vocabulary>& vocabulary, const Haystack& haystack,
                                         int count, int tokens) {
  const auto chat = vocabulary->has_chat_template() ? ChatTemplate::load(vocabulary, "") : nullptr;
  const std::vector<std::string>& sentences = haystack.sentences();
  const auto length = [&](const std::string& text) {
    return static_cast<int>(vocabulary->tokenize(text, false, false).size());
  };
  std::vector<RecallPrompt> out;
  Draw draw(1);
  for (int context = 0; context < count; ++context) {
    std::vector<std::string_view> names(kNames.begin(), kNames.end());
    draw.shuffle(names);
    RecallPrompt prompt;
    std::vector<std::string> facts, questions, begins;
    int room = tokens - length(std::string(kIntro));
    for (std::size_t kind = 0; kind < kFacts.size(); ++kind) {
      const std::string_view value = kFacts[kind].values[draw.below(kFacts[kind].values.size())];
      begins.push_back(with_name(kFacts[kind].begin, names[kind]));
      questions.push_back(with_name(kFacts[kind].question, names[kind]));
      facts.push_back(fmt::format("{} {}. ", begins.back(), value));
      prompt.answers.emplace_back(value);
      room -= length(facts.back());
    }
    if (room < tokens / 2) fail("a text of {} tokens is too short to hide {} facts in it", tokens, kRecallFacts);
    // Sentences from a start of this context's own; a fact before the one that passes its place.
    std::string text(kIntro);
    std::size_t next = at(context) * sentences.size() / at(count), fact = 0;
    for (int used = 0; used < room; ++next) {
      const std::string sentence = sentences[next % sentences.size()] + " ";
      used += std::max(1, length(sentence));
      if (used >= room) break;
      if (fact < facts.size() && used * 2 * kRecallFacts >= room * (2 * static_cast<int>(fact) + 1))
        text += facts[fact++];
      text += sentence;
    }
    while (fact < facts.size()) text += facts[fact++];
    prompt.prompt = in_template(*vocabulary, chat.get(), text, questions, begins);
    out.push_back(std::move(prompt));
  }
  return out;
}

int count_right(const RecallPrompt& prompt, const std::vector<QuestionAnswer>& answers) {
  int right = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) right += contains_word(answers[i].text, prompt.answers[i]) ? 1 : 0;
  return right;
}

}  // namespace palimpsest
