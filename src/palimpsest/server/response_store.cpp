#include "palimpsest/server/response_store.h"

#include <utility>

#include "palimpsest/server/fields.h"

namespace palimpsest {

void ResponseStore::put(const std::string& id, int scope, const Json& messages) {
  Stored one{.id = id, .scope = scope, .messages = dump(messages)};
  if (one.messages.size() > max_bytes_) return;
  const std::lock_guard lock(mutex_);
  bytes_ += one.messages.size();
  stored_.push_front(std::move(one));
  by_id_[id] = stored_.begin();
  while (bytes_ > max_bytes_ || stored_.size() > kMaxResponses) drop_last();
}

Json ResponseStore::get(const std::string& id, int scope) {
  std::string messages;
  {
    const std::lock_guard lock(mutex_);
    const auto at = by_id_.find(id);
    if (at == by_id_.end() || at->second->scope != scope)
      throw ApiError(404, "invalid_request_error",
                     shortened(fmt::format("there is no response '{}': it was not stored, or dropped since; send the "
                                           "earlier items in 'input'",
                                           id)),
                     "previous_response_id", "previous_response_not_found");
    stored_.splice(stored_.begin(), stored_, at->second);
    messages = at->second->messages;
  }
  return parse_json(messages);
}

std::size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::size_t ResponseStore::size() const {
  const std::lock_guard lock(mutex_);
  return stored_.size();
}

void ResponseStore::drop_last() {
  bytes_ -= stored_.back().messages.size();
  by_id_.erase(stored_.back().id);
  stored_.pop_back();
}

}  // namespace palimpsest
