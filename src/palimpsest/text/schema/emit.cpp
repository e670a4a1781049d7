#include "palimpsest/text/schema/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "palimpsest/text/grammar/rules.h"

namespace palimpsest::schema {
namespace {

using Kind = Alternative::Kind;

constexpr std::size_t kBlock = 64;            // repetitions that one block has
constexpr std::size_t kMaxCounted = 20'000;   // (properties, count) pairs of one object
constexpr const char* kShared = "any-json-";  // prefix of rules for any value
constexpr std::uint32_t kFirstPlain = ' ';

std::string literal_of(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else if (byte < 0x20 || byte == 0x7F)
      out += fmt::format("\\x{:02X}", byte);
    else
      out += c;
  }
  return out + "\"";
}

std::string alternatives_of(const std::vector<std::string>& all) {
  std::string out;
  for (const std::string& each : all) out += (out.empty() ? "" : " | ") + each;
  return out;
}

std::string in_brackets(const CharSet& set) {
  std::string out = "[";
  const auto put = [&](std::uint32_t c) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    out += plain         ? std::string(1, static_cast<char>(c))
           : c < 0x100   ? fmt::format("\\x{:02X}", c)
           : c < 0x10000 ? fmt::format("\\u{:04X}", c)
                         : fmt::format("\\U{:08X}", c);
  };
  for (const Interval& each : set) {
    put(each.first);
    if (each.last == each.first) continue;
    if (each.last > each.first + 1) out += '-';
    put(each.last);
  }
  return out + "]";
}

class Emitter {
 public:
  Emitter(const Nodes& nodes, const std::string& prefix) : nodes_(nodes), prefix_(prefix) {}

  std::string write() {
    const std::string root = node(0);
    while (!open_.empty()) {
      const std::size_t next = open_.back();
      open_.pop_back();
      rule(name("n", next), alternatives(next));
    }
    return prefix_ + "root ::= " + root + "\n" + out_;
  }

 private:
  std::string name(const char* kind, std::size_t number) const { return fmt::format("{}{}{}", prefix_, kind, number); }
  std::string fresh() { return name("r", count_++); }

  void rule(const std::string& called, const std::string& body) {
    out_ += called + " ::= " + body + "\n";
    if (out_.size() > kMaxGrammarBytes - 1000) throw TooComplex("the schema's grammar is too large: make it smaller");
  }
  std::string rule(const std::string& body) {
    if (body.starts_with(prefix_ + "r") && body.find_first_of(" {*") == std::string::npos)
      return body;  // a rule already
    const auto [at, made] = rules_.try_emplace(body, "");
    if (made) {
      at->second = fresh();
      rule(at->second, body);
    }
    return at->second;
  }

  // Shared rules, written when they are first used.
  std::string shared(const char* called, const char* body) {
    const std::string full = kShared + std::string(called);
    if (written_.insert(full).second) rule(full, body);
    return full;
  }
  std::string comma() { return shared("comma", R"("," " "?)"); }
  std::string colon() { return shared("colon", R"(":" " "?)"); }
  std::string hex() { return shared("hex", "[0-9a-fA-F]"); }
  // A character beyond the first 128 as an escape. Surrogates are in pairs.
  std::string escaped_wide() {
    const std::string h = hex();
    return shared("wide",
                  fmt::format(R"("\\u" ("00" [89a-fA-F] {0} | "0" [1-9a-fA-F] {0} {0} | [1-9a-cA-CefEF] {0} {0} {0})"
                              R"( | [dD] [0-7] {0} {0} | [dD] [89abAB] {0} {0} "\\u" [dD] [c-fC-F] {0} {0}))",
                              h)
                      .c_str());
  }
  std::string any_character() {
    const std::string h = hex();
    return shared(
        "char",
        fmt::format(
            R"([^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" (("0" | [1-9a-cA-CefEF]) {0} {0} {0} | [dD] [0-7] {0} {0})"
            R"( | [dD] [89abAB] {0} {0} "\\u" [dD] [c-fC-F] {0} {0})))",
            h)
            .c_str());
  }
  std::string any_string() {
    const std::string c = any_character();
    return shared("string", fmt::format(R"("\"" {}* "\"")", c).c_str());
  }
  std::string integer() { return shared("integer", R"("-"? ("0" | [1-9] [0-9]{0,15}))"); }
  std::string number() {
    return shared("number", R"("-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,15})? ([eE] [+-]? [0-9]{1,2})?)");
  }
  std::string any_array() {
    return shared("array", fmt::format(R"("[" ({0}value ({1} {0}value)*)? "]")", kShared, comma()).c_str());
  }
  std::string any_object() {
    const std::string pair = fmt::format("{} {} {}value", any_string(), colon(), kShared);
    return shared("object", fmt::format(R"("{{" ({0} ({1} {0})*)? "}}")", pair, comma()).c_str());
  }
  std::string any_value() {
    const std::string full = kShared + std::string("value");
    if (written_.insert(full).second) {
      const std::string body = fmt::format(R"({} | {} | {} | {} | "true" | "false" | "null")", any_object(),
                                           any_array(), any_string(), number());
      rule(full, body);
    }
    return full;
  }

  std::string node(std::size_t index) {
    if (nodes_.any[index]) return any_value();
    if (seen_.insert(index).second) open_.push_back(index);
    return rule_of(nodes_, index, prefix_);
  }

  std::string alternatives(std::size_t index) {
    std::vector<std::string> all;
    for (const Alternative& each : nodes_.alternatives[index]) {
      std::string text = alternative(each);
      if (std::ranges::find(all, text) == all.end()) all.push_back(std::move(text));
    }
    return alternatives_of(all);
  }

  std::string alternative(const Alternative& one) {
    switch (one.kind) {
      case Kind::kText: {
        std::vector<std::string> all;
        for (const std::string& text : one.texts) all.push_back(literal_of(text));
        return alternatives_of(all);
      }
      case Kind::kString:
        return string(one.string);
      case Kind::kNumber:
        return number();
      case Kind::kInteger:
        return integer();
      case Kind::kDigits:
        return automaton(one.digits, false);
      case Kind::kAnyArray:
        any_value();
        return any_array();
      case Kind::kAnyObject:
        any_value();
        return any_object();
      case Kind::kArray:
        return array(one);
      case Kind::kSubset:
        return subset(one);
      case Kind::kObject:
        return object(one);
    }
    return "";
  }

  // `unit` n times.
  std::string exactly(const std::string& unit, std::size_t n) {
    if (n == 0) return "";
    if (n == 1) return unit;
    if (n <= kBlock) return fmt::format("{}{{{}}}", unit, n);
    std::string block = unit;
    std::size_t size = 1;
    while (n / size > kBlock) {
      block = rule(fmt::format("{}{{{}}}", block, kBlock));
      size *= kBlock;
    }
    const std::string rest = exactly(unit, n % size);
    return exactly(block, n / size) + (rest.empty() ? "" : " " + rest);
  }

  // `unit` at most n times. A chain of blocks: a rule for each repetition would be long, and a grammar of all ways to
  // write n as a sum of powers of two ambiguous.
  std::string at_most(const std::string& unit, std::size_t n) {
    if (n == 0) return "";
    if (n == kUnbounded) return unit + "*";
    if (n <= kBlock) return fmt::format("{}{{0,{}}}", unit, n);
    std::size_t size = kBlock;
    while (n / size >= kBlock) size *= kBlock;
    const std::string block = rule(exactly(unit, size)), part = rule(at_most(unit, size - 1));
    const std::string last = at_most(unit, n % size);
    std::string chain = rule(last.empty() ? "\"\"" : last);
    for (std::size_t i = 0; i < n / size; ++i) chain = rule(fmt::format("{} {} | {}", block, chain, part));
    return chain;
  }

  std::string repeated(const std::string& unit, std::size_t min, std::size_t max) {
    const std::string first = exactly(unit, min);
    const std::string rest = at_most(unit, max == kUnbounded ? max : max - min);
    return first + (first.empty() || rest.empty() ? "" : " ") + rest;
  }

  // The characters of a set, as they are written in a JSON string.
  std::string characters(const CharSet& set) {
    if (set == all_characters()) return any_character();
    std::vector<std::string> all;
    CharSet plain;
    for (const Interval& each : set) {
      Interval part = each;
      part.first = std::max(part.first, kFirstPlain);
      if (part.first <= part.last) plain.push_back(part);
    }
    plain = intersection_of(plain, complement_of(char_set({{'"', '"'}, {'\\', '\\'}})));
    if (!plain.empty()) all.push_back(in_brackets(plain));
    if (contains(set, '"')) all.emplace_back(R"("\\\"")");
    if (contains(set, '\\')) all.emplace_back(R"("\\\\")");
    std::string brief, low, high;
    for (std::uint32_t c = 0; c < kFirstPlain; ++c) {
      if (!contains(set, c)) continue;
      const std::size_t at = std::string_view("\b\f\n\r\t").find(static_cast<char>(c));
      if (at != std::string_view::npos)
        brief += "bfnrt"[at];
      else
        (c < 16 ? low : high) += "0123456789abcdef"[c % 16];
    }
    if (!brief.empty()) all.push_back(fmt::format(R"("\\" [{}])", brief));
    if (!low.empty()) all.push_back(fmt::format(R"("\\u000" [{}])", low));
    if (!high.empty()) all.push_back(fmt::format(R"("\\u001" [{}])", high));
    if (intersection_of(set, char_set({{0x80, 0x10FFFF}})) == char_set({{0x80, 0x10FFFF}}))
      all.push_back(escaped_wide());
    if (all.size() == 1 && all[0].size() < 40) return all[0];
    return rule(alternatives_of(all));
  }

  std::string string(const Text& text) {
    if (text.dfa != nullptr) return automaton(text.dfa, true);
    if (text.any()) return any_string();
    if (text.max == 0) return R"("\"\"")";
    return rule(fmt::format(R"("\"" {} "\"")", repeated(characters(text.set), text.min, text.max)));
  }

  std::string automaton(const std::shared_ptr<const Dfa>& dfa, bool in_quotes) {
    const auto [at, made] = automata_.try_emplace(dfa.get(), "");
    if (made) at->second = written_automaton(*dfa, in_quotes);
    return at->second;
  }

  // A rule for each state that is not passed in a line. Strings are between quotes.
  std::string written_automaton(const Dfa& dfa, bool in_quotes) {
    const std::size_t states = dfa.states();
    std::vector<std::map<std::int32_t, std::vector<Interval>>> edges(states);
    std::vector<std::size_t> incoming(states);
    std::vector<CharSet> sets;
    for (std::uint32_t c = 0; c < dfa.alphabet.count; ++c) sets.push_back(dfa.alphabet.characters_of(c));
    for (std::size_t i = 0; i < states; ++i) {
      for (std::uint32_t c = 0; c < dfa.alphabet.count; ++c) {
        const std::int32_t to = dfa.step(static_cast<std::int32_t>(i), c);
        if (to < 0 || sets[c].empty()) continue;
        auto& all = edges[i][to];
        all.insert(all.end(), sets[c].begin(), sets[c].end());
      }
      for (const auto& [to, set] : edges[i]) ++incoming[static_cast<std::size_t>(to)];
    }
    const std::size_t number = count_++;
    const auto called = [&](std::size_t state) { return fmt::format("{}d{}-{}", prefix_, number, state); };
    const auto inner = [&](std::size_t state) {  // written where its only predecessor is
      return state != 0 && incoming[state] == 1 && !dfa.accepts[state] && edges[state].size() == 1 &&
             static_cast<std::size_t>(edges[state].begin()->first) != state;
    };
    const auto step = [&](const std::vector<Interval>& intervals) {
      const CharSet set = char_set(intervals);
      return in_quotes ? characters(set) : in_brackets(set);
    };
    for (std::size_t i = 0; i < states; ++i) {
      if (inner(i)) continue;
      std::vector<std::string> all;
      for (const auto& [to, set] : edges[i]) {
        std::string text = step(set);
        auto at = static_cast<std::size_t>(to);
        while (inner(at)) {
          text += " " + step(edges[at].begin()->second);
          at = static_cast<std::size_t>(edges[at].begin()->first);
        }
        all.push_back(edges[at].empty() ? text + (in_quotes ? R"( "\"")" : "") : text + " " + called(at));
      }
      if (dfa.accepts[i]) all.emplace_back(in_quotes ? R"("\"")" : R"("")");
      if (i == 0 || !edges[i].empty()) rule(called(i), alternatives_of(all));
    }
    return in_quotes ? fmt::format(R"("\"" {})", called(0)) : called(0);
  }

  std::string array(const Alternative& one) {
    const std::size_t known = std::min(one.prefix.size(), one.max);
    std::string tail;  // after the known items
    std::string rest = one.rest == kNoNode ? "" : node(one.rest);
    if (!rest.empty() && one.max > known) {
      if (known > 0) {
        const std::string unit = rule(comma() + " " + rest);
        tail = repeated(unit, one.min > known ? one.min - known : 0, one.max == kUnbounded ? one.max : one.max - known);
      } else {
        const std::string unit = rule(comma() + " " + rest);
        tail =
            rest + " " + repeated(unit, one.min > 1 ? one.min - 1 : 0, one.max == kUnbounded ? one.max : one.max - 1);
        if (one.min == 0) tail = "(" + tail + ")?";
        return fmt::format(R"("[" {} "]")", tail);
      }
    }
    for (std::size_t i = known; i-- > 0;) {
      const std::string item = node(one.prefix[i]);
      tail = i == 0 ? item + " " + tail : comma() + " " + item + " " + tail;
      if (i >= one.min) tail = "(" + tail + ")?";
      if (i > 0 && i % 16 == 0) tail = rule(tail);  // brackets are not nested deeply
    }
    return fmt::format(R"("[" {} "]")", tail);
  }

  // Texts in their order, each at most once, min to max of them. State: the next text and how many there are.
  std::string subset(const Alternative& one) {
    const std::size_t size = one.texts.size();
    std::map<std::pair<std::size_t, std::size_t>, std::string> known;
    const auto cap = [&](std::size_t count) {  // counts that do not differ
      return one.max >= size ? std::min(count, std::max<std::size_t>(one.min, 1)) : count;
    };
    for (std::size_t i = size + 1; i-- > 0;)
      for (std::size_t count = 0; count <= std::min(i, cap(i)); ++count) {
        if (known.size() > kMaxCounted) throw TooComplex("the array has too many combinations");
        std::vector<std::string> all;
        if (count >= one.min && i == size) all.emplace_back("\"\"");
        if (i < size && count < one.max) {
          const auto next = known.find({i + 1, cap(count + 1)});
          if (next != known.end())
            all.push_back((count > 0 ? comma() + " " : "") + literal_of(one.texts[i]) + " " + next->second);
        }
        if (i < size)
          if (const auto next = known.find({i + 1, count}); next != known.end()) all.push_back(next->second);
        if (!all.empty()) known[{i, count}] = rule(alternatives_of(all));
      }
    return fmt::format(R"("[" {} "]")", known.at({0, 0}));
  }

  // Properties in their order. State: the next property, and how many there are, as far as it matters.
  std::string object(const Alternative& one) {
    const std::size_t size = one.properties.size();
    std::vector<std::string> extra_all;
    for (const Extra& each : one.extras) extra_all.push_back(string(each.key) + " " + colon() + " " + node(each.node));
    const std::string extra = extra_all.empty() ? "" : rule(alternatives_of(extra_all));
    const bool bounded = one.max < (extra.empty() ? size : kUnbounded);
    const auto cap = [&](std::size_t count) {
      return bounded ? count : std::min(count, std::max<std::size_t>(one.min, 1));
    };
    std::map<std::size_t, std::string> next;  // by count
    const std::size_t most = bounded ? std::min(size, one.max) : cap(size);
    if ((most + 1) * (size + 1) > kMaxCounted) throw TooComplex("the object has too many combinations");
    for (std::size_t count = 0; count <= most; ++count) {
      std::string end;
      if (extra.empty() || count >= one.max) {
        if (count < one.min) continue;
        end = "\"}\"";
      } else {
        if (count + 1 < one.min) continue;
        const std::string unit = rule(comma() + " " + extra);
        const std::size_t left = one.max == kUnbounded ? kUnbounded : one.max - count;
        const bool needed = count < one.min;
        if (count == 0) {
          const std::string more = extra + " " + repeated(unit, 0, left == kUnbounded ? left : left - 1);
          end = needed ? more + " \"}\"" : "(" + more + ")? \"}\"";
        } else {
          end = repeated(unit, needed ? 1 : 0, left) + " \"}\"";
        }
      }
      next[count] = end;
    }
    for (std::size_t i = size; i-- > 0;) {
      const Property& property = one.properties[i];
      const std::string pair = literal_of(Json(property.name).dump(-1, ' ', false, Json::error_handler_t::replace)) +
                               " " + colon() + " " + node(property.node);
      std::map<std::size_t, std::string> current;
      for (std::size_t count = 0; count <= std::min(i, cap(i)); ++count) {
        std::vector<std::string> all;
        if (!bounded || count < one.max)
          if (const auto with = next.find(cap(count + 1)); with != next.end())
            all.push_back((count > 0 ? comma() + " " : "") + pair + " " + with->second);
        if (!property.required)
          if (const auto without = next.find(count); without != next.end()) all.push_back(without->second);
        if (!all.empty()) current[count] = all.size() == 1 && all[0].size() < 200 ? all[0] : rule(alternatives_of(all));
      }
      next = std::move(current);
    }
    const auto start = next.find(0);
    if (start == next.end()) throw TooComplex("the object has no valid number of properties");
    return "\"{\" " + start->second;
  }

  const Nodes& nodes_;
  const std::string prefix_;
  std::string out_;
  std::size_t count_ = 0;
  std::map<std::string, std::string> rules_;
  std::map<const Dfa*, std::string> automata_;
  std::set<std::string> written_;
  std::set<std::size_t> seen_;
  std::vector<std::size_t> open_;
};

}  // namespace

std::string rule_of(const Nodes& nodes, std::size_t node, const std::string& prefix) {
  return nodes.any[node] ? kShared + std::string("value") : fmt::format("{}n{}", prefix, node);
}

std::string grammar_of(const Nodes& nodes, const std::string& prefix) {
  return Emitter(nodes, prefix).write();
}

}  // namespace palimpsest::schema
