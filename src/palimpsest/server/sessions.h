// Caches that clients asked to keep: one snapshot each, in one folder of the server's (--session-path).
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/engine/lent_sequence.h"
#include "palimpsest/server/api_error.h"

namespace palimpsest {

class Sessions {
 public:
  // `most_bytes`: of all files together. What a server that was killed left half written is removed. Throws Error if
  // the folder is none, or cannot be written.
  Sessions(std::string folder, std::size_t max_bytes);

  // 1 to 64 letters, digits, '.', '_' and '-', of which the first is no '.': so no name leads out of the folder.
  static bool is_name(const std::string& name);

  // From any thread; `name` must be one. What the clients see of a session: {"id", "object", "created", "bytes"}.
  Json list() const;
  Json save(const std::string& name, const KeptSequence& sequence);  // in the place of an older one; throws 507
  std::shared_ptr<const Snapshot> open(const std::string& name, const Model& model) const;  // throws 404, Error
  void remove(const std::string& name);                                                     // throws 404

 private:
  std::string path(const std::string& name) const;
  Json json(const std::string& name) const;

  std::string folder_;
  std::size_t max_bytes_;
  mutable std::mutex mutex_;  // of the folder's contents, for those who change it
};

}  // namespace palimpsest
