// The messages of answered responses, which later requests continue by previous_response_id.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>

#include "palimpsest/server/api_error.h"

namespace palimpsest {

// Thread safe. Holds at most `max_bytes` of messages (as JSON text) and kMaxResponses; the least recently used response
// is dropped first.
class ResponseStore {
 public:
  static constexpr std::size_t kMaxResponses = 10'000;

  explicit ResponseStore(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  // `scope`: number of the API key; other keys cannot continue it. Does nothing if it alone exceeds the limit.
  void put(const std::string& id, int scope, const Json& messages);
  // A list of messages. Throws ApiError (404).
  Json get(const std::string& id, int scope);
  std::size_t bytes() const;
  std::size_t size() const;

 private:
  struct Stored {
    std::string id;
    int scope = 0;
    std::string messages;
  };
  void drop_last();

  const std::size_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Stored> stored_;  // most recently used first
  std::unordered_map<std::string, std::list<Stored>::iterator> by_id_;
  std::size_t bytes_ = 0;
};

}  // namespace palimpsest
