// Saved sessions of clients: one cache snapshot each, in one folder (--session-path).
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/engine/released_sequence.h"
#include "palimpsest/server/api_error.h"

namespace palimpsest {

class Sessions {
 public:
  // `max_bytes`: of all files together. Removes files that a killed server left incomplete, not those that another
  // server of the same folder writes. Throws Error if `folder` is not a writable folder.
  Sessions(std::string folder, std::size_t max_bytes);

  // 1 to 64 letters, digits, '.', '_' and '-', not beginning with '.': no name can point outside of the folder.
  static bool is_name(const std::string& name);

  // Thread-safe; `name` must satisfy is_name. A session's JSON is {"id", "object", "created", "bytes"}.
  Json list() const;
  Json save(const std::string& name, const KeptSequence& sequence);  // replaces an existing one; throws 507
  std::shared_ptr<const Snapshot> open(const std::string& name, const Model& model) const;  // throws 404, Error
  void remove(const std::string& name);                                                     // throws 404

 private:
  std::string path(const std::string& name) const;
  Json json(const std::string& name) const;

  std::string folder_;
  std::size_t max_bytes_;
  mutable std::mutex mutex_;  // serializes changes to the folder
};

}  // namespace palimpsest
