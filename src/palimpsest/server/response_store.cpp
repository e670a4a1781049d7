#include "palimpsest/server/response_store.h"

#include <utility>

namespace palimpsest {

void ResponseStore::put(const std::string& id, int scope, const Json& items, const Json& response) {
  Stored one{.id = id, .scope = scope, .items = dump(items), .response = dump(response)};
  if (one.bytes() > max_bytes_) return;
  const std::lock_guard lock(mutex_);
  bytes_ += one.bytes();
  stored_.push_front(std::move(one));
  by_id_[id] = stored_.begin();
  while (bytes_ > max_bytes_ || stored_.size() > kMaxResponses) drop(std::prev(stored_.end()));
}

Json ResponseStore::items(const std::string& id, int scope, const char* field) {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    text = find(id, scope, field).items;
  }
  return Json::parse(text);
}

Json ResponseStore::response(const std::string& id, int scope) {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    text = find(id, scope, "response_id").response;
  }
  return Json::parse(text);
}

void ResponseStore::remove(const std::string& id, int scope) {
  const std::lock_guard lock(mutex_);
  find(id, scope, "response_id");
  drop(by_id_.at(id));
}

std::size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::size_t ResponseStore::size() const {
  const std::lock_guard lock(mutex_);
  return stored_.size();
}

// And makes it the most recently used one.
ResponseStore::Stored& ResponseStore::find(const std::string& id, int scope, const char* field) {
  const auto at = by_id_.find(id);
  if (at == by_id_.end() || at->second->scope != scope)
    throw ApiError(
        404, "invalid_request_error",
        shortened(fmt::format("there is no response '{}': it was not stored, or dropped since; send the "
                              "earlier items in 'input'",
                              id)),
        field,
        field == std::string_view("previous_response_id") ? "previous_response_not_found" : "response_not_found");
  stored_.splice(stored_.begin(), stored_, at->second);
  return *at->second;
}

void ResponseStore::drop(std::list<Stored>::iterator at) {
  bytes_ -= at->bytes();
  by_id_.erase(at->id);
  stored_.erase(at);
}

}  // namespace palimpsest
