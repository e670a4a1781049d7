// What the compilation of one schema shares.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "palimpsest/text/schema/compile.h"
#include "palimpsest/text/schema/document.h"
#include "palimpsest/text/schema/regexes.h"

namespace palimpsest::schema {

struct Session {
  Session(const Json& root, SchemaMode mode, std::size_t work_limit)
      : document(root), work(work_limit), regexes(work), mode(mode) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // `keyword` of `schema` is not enforced: strict throws SchemaError, lenient notes it.
  void drop(const Json* schema, std::string_view keyword, const std::string& reason) {
    const std::string path = document.path_of(schema) + (keyword.empty() ? "" : ".") + std::string(keyword);
    if (mode == SchemaMode::kStrict) throw SchemaError(path, reason);
    if (seen.emplace(schema, keyword).second) dropped.push_back(path + ": " + reason);
  }

  Document document;
  Work work;
  Regexes regexes;
  const SchemaMode mode;
  std::vector<std::string> dropped;
  std::set<std::pair<const Json*, std::string>> seen;
};

}  // namespace palimpsest::schema
