// Random texts of a schema's grammar, for tests/system/schemas.py, which validates them. Needs no model.
//
//   schema_samples [--vocabulary MODEL.gguf] [--compile-only] < lines > lines
//
// A line of the input is {"id", "schema", "strict", "n", "seed", "prefix"}: `n` (20) texts, or the completion of
// `prefix` where that is given. A line of the output is {"id", "compile_ms", "rules_ms", "grammar_bytes"} and one of
//   "refused": why the schema is refused, or its grammar
//   "dropped": [what is not enforced], "answers": [texts], "cut": [prefixes of texts that did not end],
//   "stuck": [prefixes after which no character is allowed], "failed": [limits of the matcher that were reached],
//   "accepted": [for each of `texts`, whether the grammar has it],
//   "masks": {"count", "mean_us", "p99_us", "max_us"}, with --vocabulary
// Times are CPU times. Without a vocabulary a token is a byte. Texts of different lengths, with odd characters and
// escapes, with names and values of the schema itself and others close to them: whatever the grammar allows too much of
// is likely to occur.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <exception>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/text/grammar/compile.h"
#include "palimpsest/text/grammar/matcher.h"
#include "palimpsest/text/schema/compile.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest::testing {
namespace {

using Json = nlohmann::ordered_json;
// Of this program, which has one thread: other programs do not matter.
double cpu_us() {
  return static_cast<double>(std::clock()) * (1e6 / CLOCKS_PER_SEC);
}
double ms_since(double start) {
  return (cpu_us() - start) / 1000;
}

bool is_one_of(char c, std::string_view of) {
  return of.find(c) != std::string_view::npos;
}

// Strings and numbers of the schema as JSON texts, and variants that a wrong grammar takes for other values.
class Words {
 public:
  explicit Words(const Json& schema) { collect(schema); }

  bool empty() const { return words_.empty(); }
  std::string draw(std::mt19937& random) const {
    const Json& word = words_[random() % words_.size()];
    if (word.is_number_integer()) {
      const auto value = word.get<long long>();
      const unsigned which = random() % 8;
      if (which < 3 && std::abs(value) < 1LL << 60) return std::to_string(value + static_cast<long long>(which) - 1);
      return which == 3 ? word.dump() + ".5" : which == 4 ? word.dump() + "0" : word.dump();
    }
    std::string text = word.dump();
    if (!word.is_string() || text.size() < 3 || random() % 3 != 0) return text;
    switch (random() % 3) {
      case 0:  // the same string
        if (text[1] == '\\' || static_cast<unsigned char>(text[1]) >= 128) return text;
        return fmt::format("\"\\u{:04x}{}", static_cast<int>(text[1]), text.substr(2));
      case 1:
        return text.substr(0, 2) + text.substr(1);
      default:
        return text.substr(0, text.size() - 1) + "\\n\"";
    }
  }

 private:
  void collect(const Json& part) {
    if (words_.size() > 2000) return;
    if (part.is_string() || part.is_number()) words_.push_back(part);
    if (!part.is_structured()) return;
    for (const auto& [key, value] : part.items()) {
      if (part.is_object()) words_.emplace_back(key);
      if (value.is_structured() || !part.is_object() || key == "const" || value.is_number()) collect(value);
    }
  }
  std::vector<Json> words_;
};

// Whether a position of a JSON text is inside a string.
struct InString {
  bool inside = false, escaped = false;
  void read(std::string_view more) {
    for (const char c : more) {
      if (escaped)
        escaped = false;
      else if (inside && c == '\\')
        escaped = true;
      else if (c == '"')
        inside = !inside;
    }
  }
};

struct Text {
  std::string bytes;
  enum class End { kFinished, kCut, kStuck } end = End::kCut;
};

class Sampling {
 public:
  Sampling(std::shared_ptr<const GrammarRules> rules, std::shared_ptr<const TokenTexts> texts, Words words,
           std::uint32_t seed)
      : rules_(std::move(rules)), texts_(std::move(texts)), words_(std::move(words)), random_(seed) {
    TokenId last = 0;
    for (const TokenTexts::Entry& entry : texts_->entries()) last = std::max(last, entry.token);
    mask_.resize(static_cast<std::size_t>(last) + 1);
  }

  // Draws freely for `free` bytes, then closes what is open. `prefix`: allowed.
  Text draw(std::string_view prefix, std::size_t free, std::size_t max) {
    GrammarMatcher matcher(rules_, texts_);
    Text out{.bytes = std::string(prefix)};
    if (!prefix.empty() && !matcher.accept(prefix)) {
      out.end = Text::End::kStuck;
      return out;
    }
    free += prefix.size(), max += prefix.size();
    InString string;
    std::size_t read = 0;
    while (out.bytes.size() < max) {
      const bool closing = out.bytes.size() >= free;
      string.read(std::string_view(out.bytes).substr(std::exchange(read, out.bytes.size())));
      if (matcher.allows_end() && (closing || random_() % 8 == 0)) {
        out.end = Text::End::kFinished;
        return out;
      }
      if (at_word(out.bytes) && !words_.empty() && random_() % 3 == 0 && !closing) {
        const std::string word = words_.draw(random_);
        std::size_t i = 0;
        while (i < word.size()) {
          const std::size_t bytes = std::min(character_bytes(word[i]), word.size() - i);
          if (!matcher.accept(std::string_view(word).substr(i, bytes))) break;
          i += bytes;
        }
        out.bytes.append(word, 0, i);
        if (i > 0) continue;
      }
      if (closing && string.inside && !string.escaped && matcher.accept(std::string_view("\""))) {
        out.bytes += '"';
        continue;
      }
      const std::string_view token = draw_token(matcher, closing && !string.inside);
      if (token.empty()) {
        out.end = matcher.allows_end() ? Text::End::kFinished : Text::End::kStuck;
        return out;
      }
      if (!matcher.accept(token)) fail("the matcher does not accept what it allows");
      out.bytes += token;
    }
    return out;
  }

  std::vector<double>& mask_us() { return mask_us_; }

 private:
  static std::size_t character_bytes(char first) {
    const auto byte = static_cast<unsigned char>(first);
    return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
  }
  static bool at_word(std::string_view text) { return text.empty() || is_one_of(text.back(), ":,[{ \n"); }

  // How often a first byte is drawn, and its rank while closing: the highest that is allowed is drawn.
  static int weight(std::uint8_t byte) {
    if (byte == '"') return 12;
    if (is_one_of(static_cast<char>(byte), "\\}],:")) return 6;
    if (is_one_of(static_cast<char>(byte), "{[-.eEu0123456789")) return 3;
    return byte < 0x80 ? 2 : 1;
  }
  static int rank(std::uint8_t byte) {
    static constexpr std::array<std::string_view, 9> kOrder = {"}", "]", "\"", "0123456789", "ntf", ",", "[", "{", "-"};
    for (std::size_t i = 0; i < kOrder.size(); ++i)
      if (is_one_of(static_cast<char>(byte), kOrder[i])) return 20 - static_cast<int>(i);
    return byte == '\\' || byte == ' ' || byte == '\n' ? 0 : 1;
  }

  // First a byte, then a token that begins with it. Empty: none is allowed.
  std::string_view draw_token(GrammarMatcher& matcher, bool by_rank) {
    const auto start = cpu_us();
    matcher.allowed(mask_);
    mask_us_.push_back(ms_since(start) * 1000);
    for (auto& bucket : buckets_) bucket.clear();
    int sum = 0;
    for (const TokenTexts::Entry& entry : texts_->entries())
      if (mask_[static_cast<std::size_t>(entry.token)] != 0)
        buckets_[static_cast<std::uint8_t>(texts_->text(entry)[0])].push_back(&entry);
    int best = -1;
    by_rank = by_rank && random_() % 16 != 0;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      if (buckets_[byte].empty()) continue;
      sum += weight(static_cast<std::uint8_t>(byte));
      if (best < 0 || rank(static_cast<std::uint8_t>(byte)) > rank(static_cast<std::uint8_t>(best)))
        best = static_cast<int>(byte);
    }
    if (best < 0) return {};
    if (!by_rank || rank(static_cast<std::uint8_t>(best)) <= 1) {
      int left = static_cast<int>(random_() % static_cast<unsigned>(sum));
      for (best = -1; left >= 0;)
        if (++best; !buckets_[static_cast<std::size_t>(best)].empty()) left -= weight(static_cast<std::uint8_t>(best));
    }
    const auto& bucket = buckets_[static_cast<std::size_t>(best)];
    return texts_->text(*bucket[random_() % bucket.size()]);
  }

  std::shared_ptr<const GrammarRules> rules_;
  std::shared_ptr<const TokenTexts> texts_;
  Words words_;
  std::mt19937 random_;
  std::vector<std::uint8_t> mask_;
  std::vector<double> mask_us_;
  std::array<std::vector<const TokenTexts::Entry*>, 256> buckets_;
};

std::shared_ptr<const TokenTexts> all_bytes() {
  std::vector<std::string> texts(256);
  for (std::size_t i = 0; i < 256; ++i) texts[i] = std::string(1, static_cast<char>(i));
  return std::make_shared<const TokenTexts>(texts);
}

Json masks_of(std::vector<double>& us) {
  std::ranges::sort(us);
  double sum = 0;
  for (const double each : us) sum += each;
  const std::size_t count = us.size();
  return {{"count", count},
          {"mean_us", count == 0 ? 0 : sum / static_cast<double>(count)},
          {"p99_us", count == 0 ? 0 : us[count * 99 / 100]},
          {"max_us", count == 0 ? 0 : us.back()}};
}

Json answer(const Json& request, const std::shared_ptr<const TokenTexts>& texts, bool with_masks, bool compile_only) {
  Json out = {{"id", request.at("id")}};
  const auto start = cpu_us();
  std::shared_ptr<const GrammarRules> rules;
  try {
    const bool strict = request.value("strict", true);
    CompiledSchema made =
        compile_schema(request.at("schema"), {.mode = strict ? SchemaMode::kStrict : SchemaMode::kLenient});
    out["compile_ms"] = ms_since(start);
    out["dropped"] = std::move(made.dropped);
    out["grammar_bytes"] = made.grammar.size();
    const auto parsed = cpu_us();
    rules = std::make_shared<const GrammarRules>(compile_grammar(made.grammar, nullptr));
    GrammarMatcher(rules, texts);
    out["rules_ms"] = ms_since(parsed);
  } catch (const SchemaError& error) {
    out["compile_ms"] = ms_since(start);
    out["refused"] = error.path() + ": " + error.what();
    return out;
  } catch (const Error& error) {  // of the grammar
    out["compile_ms"] = ms_since(start);
    out["refused"] = std::string("the grammar: ") + error.what();
    return out;
  }
  if (compile_only) return out;
  if (request.contains("texts")) {
    out["accepted"] = Json::array();
    for (const Json& text : request["texts"]) {
      GrammarMatcher matcher(rules, texts);
      out["accepted"].push_back(matcher.accept(text.get<std::string>()) && matcher.allows_end());
    }
  }
  const auto seed = request.value("seed", 1U);
  const std::string prefix = request.value("prefix", "");
  Sampling sampling(rules, texts, Words(request.at("schema")), seed);
  for (const char* name : {"answers", "cut", "stuck", "failed"}) out[name] = Json::array();
  static constexpr std::array<std::size_t, 5> kFree = {0, 12, 60, 200, 600};
  const int count = prefix.empty() ? request.value("n", 20) : 1;
  for (int i = 0; i < count; ++i) {
    try {
      const std::size_t free = prefix.empty() ? kFree[static_cast<std::size_t>(i) % kFree.size()] : 0;
      const Text text = sampling.draw(prefix, free, request.value("max_bytes", 8000U));
      out[text.end == Text::End::kFinished ? "answers"
          : text.end == Text::End::kCut    ? "cut"
                                           : "stuck"]
          .push_back(text.bytes);
    } catch (const Error& error) {
      out["failed"].push_back(error.what());
    }
  }
  if (with_masks) out["masks"] = masks_of(sampling.mask_us());
  return out;
}

int main_of(int count, char** arguments) {
  std::shared_ptr<Vocabulary> vocabulary;
  bool compile_only = false;
  for (int i = 1; i < count; ++i) {
    const std::string_view name = arguments[i];
    if (name == "--vocabulary" && i + 1 < count)
      vocabulary = Vocabulary::load(arguments[++i]);
    else if (name == "--compile-only")
      compile_only = true;
    else
      fail("unknown argument {}: schema_samples [--vocabulary MODEL.gguf] [--compile-only] < lines", name);
  }
  const auto texts = vocabulary == nullptr ? all_bytes() : vocabulary->token_texts();
  for (std::string line; std::getline(std::cin, line);) {
    const Json out = answer(Json::parse(line), texts, vocabulary != nullptr, compile_only);
    std::cout << out.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace palimpsest::testing

int main(int count, char** arguments) {
  try {
    return palimpsest::testing::main_of(count, arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
