// What the compilation of one schema shares.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "palimpsest/text/schema/document.h"
#include "palimpsest/text/schema/mode.h"
#include "palimpsest/text/schema/regexes.h"

namespace palimpsest::schema {

// min to max characters of `set`; or, with `dfa`, the texts of the automaton.
struct Text {
  CharSet set = all_characters();
  std::size_t min = 0, max = kUnbounded;
  std::shared_ptr<const Dfa> dfa = nullptr;
  bool empty() const { return dfa != nullptr ? dfa->empty() : max < min || (min > 0 && set.empty()); }
  bool any() const { return dfa == nullptr && min == 0 && max == kUnbounded && set == all_characters(); }
};

inline constexpr std::size_t kMaxDropped = 20;  // that are listed

struct Session {
  Session(const Json& root, SchemaMode mode, std::size_t work_limit, bool coarse = false)
      : document(root), work(work_limit), regexes(work), mode(mode), coarse(coarse) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // `keyword` of `schema` is not enforced: strict throws SchemaError, lenient notes it.
  void drop(const Json* schema, std::string_view keyword, const std::string& reason) {
    if (mode == SchemaMode::kLenient && dropped.size() >= kMaxDropped) return;
    const std::string path = document.path_of(schema) + (keyword.empty() ? "" : ".") + std::string(keyword);
    if (mode == SchemaMode::kStrict) throw SchemaError(path, reason);
    if (seen.emplace(schema, keyword).second) dropped.push_back(path + ": " + reason);
  }

  Document document;
  Work work;
  Regexes regexes;
  const SchemaMode mode;
  const bool coarse;  // lenient: without the keywords that need large automata
  std::vector<std::string> dropped;
  // Automata of strings and numbers by what they are made of: the same constraints are often met again.
  std::map<std::string, Text> texts;
  std::map<std::string, std::shared_ptr<const Dfa>> numbers;
  std::set<std::pair<const Json*, std::string>> seen;
};

}  // namespace palimpsest::schema
