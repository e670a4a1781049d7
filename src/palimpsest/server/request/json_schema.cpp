#include "palimpsest/server/request/json_schema.h"

#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/server/log.h"

namespace palimpsest {
namespace {

constexpr std::size_t kCachedSchemas = 256, kCachedBytes = std::size_t{16} << 20;  // of texts and grammars
constexpr std::size_t kMaxLogged = 20;

// Least recently used first out. Thread-safe.
class SchemaCache {
 public:
  using Value = std::shared_ptr<const CompiledSchema>;

  Value find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(key);
    if (at == entries_.end()) return nullptr;
    order_.splice(order_.begin(), order_, at->second);
    return at->second->second;
  }
  void insert(const std::string& key, Value value) {
    const std::lock_guard lock(mutex_);
    if (entries_.contains(key)) return;
    bytes_ += key.size() + value->grammar.size();
    order_.emplace_front(key, std::move(value));
    entries_.emplace(order_.front().first, order_.begin());
    while (order_.size() > kCachedSchemas || bytes_ > kCachedBytes) {
      const auto& [last, compiled] = order_.back();
      bytes_ -= last.size() + compiled->grammar.size();
      entries_.erase(last);
      order_.pop_back();
    }
  }

 private:
  std::mutex mutex_;
  std::list<std::pair<std::string, Value>> order_;
  std::unordered_map<std::string_view, std::list<std::pair<std::string, Value>>::iterator> entries_;
  std::size_t bytes_ = 0;
};

SchemaCache& schema_cache() {
  static SchemaCache cache;
  return cache;
}

void log_dropped(const CompiledSchema& schema, const std::string& where) {
  if (schema.dropped.empty()) return;
  Json& list = log_fields()["schema_dropped"];
  for (const std::string& each : schema.dropped)
    if (list.size() < kMaxLogged)
      list.push_back(each.starts_with('.') || each.starts_with('[') || each.starts_with(':') ? where + each
                                                                                             : where + ": " + each);
}

}  // namespace

std::shared_ptr<const CompiledSchema> compiled_schema(const Json& schema, const std::string& where,
                                                      const SchemaOptions& options) {
  const bool strict = options.mode == SchemaMode::kStrict;
  const std::string key = std::string(strict           ? "s"
                                      : options.object ? "o"
                                                       : "l") +
                          options.prefix + "\n" + schema.dump(-1, ' ', false, Json::error_handler_t::replace);
  auto out = schema_cache().find(key);
  if (out == nullptr) {
    try {
      out = std::make_shared<const CompiledSchema>(compile_schema(schema, options));
    } catch (const SchemaError& error) {
      fail_field(where + error.path(), "{}{}: {}", where, error.path(), error.what());
    }
    schema_cache().insert(key, out);
  }
  log_dropped(*out, where);
  return out;
}

}  // namespace palimpsest
