// Answered responses, which later requests read, and continue by previous_response_id.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>

#include "palimpsest/server/api_error.h"

namespace palimpsest {

// Thread safe. Holds at most `max_bytes` (as JSON text) and kMaxResponses; the least recently used response
// is dropped first.
class ResponseStore {
 public:
  static constexpr std::size_t kMaxResponses = 10'000;

  explicit ResponseStore(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  // `scope`: number of the API key; other keys cannot continue it. Does nothing if it alone exceeds the limit.
  // `items`: of the input and the output, a list; `response`: the answer's object.
  void put(const std::string& id, int scope, const Json& items, const Json& response);
  // Throw ApiError (404). `field`: what named the response, for the error.
  Json items(const std::string& id, int scope, const char* field);
  Json response(const std::string& id, int scope);
  void remove(const std::string& id, int scope);
  std::size_t bytes() const;
  std::size_t size() const;

 private:
  struct Stored {
    std::string id;
    int scope = 0;
    std::string items, response;
    std::size_t bytes() const { return items.size() + response.size(); }
  };
  Stored& find(const std::string& id, int scope, const char* field);
  void drop(std::list<Stored>::iterator at);

  const std::size_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Stored> stored_;  // most recently used first
  std::unordered_map<std::string, std::list<Stored>::iterator> by_id_;
  std::size_t bytes_ = 0;
};

}  // namespace palimpsest
