// Saved sessions of clients: one cache snapshot each, in one folder (--session-path), or in one folder for each API
// key.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/engine/sequence/released_sequence.h"
#include "palimpsest/server/api_error.h"

namespace palimpsest {

class Sessions {  // in one folder
 public:
  // `max_bytes`: of all files together. Removes files that a killed server left incomplete, not those that another
  // server of the same folder writes. Throws Error if `folder` is not a writable folder.
  Sessions(std::string folder, std::size_t max_bytes);

  // 1 to 64 letters, digits, '.', '_' and '-', not beginning with '.': no name can point outside of the folder.
  static bool is_name(const std::string& name);

  // Thread-safe; `name` must satisfy is_name. A session's JSON is {"id", "object", "created", "bytes"}. Only regular
  // files are sessions. All throw 503 if the folder cannot be read.
  Json list() const;
  Json save(const std::string& name, const KeptSequence& sequence);  // replaces an existing one; throws 507
  std::shared_ptr<const Snapshot> open(const std::string& name, const Model& model) const;  // throws 404, Error
  void remove(const std::string& name);                                                     // throws 404

 private:
  std::string path(const std::string& name) const;
  Json json(const std::string& name) const;
  void require(const std::string& name) const;  // throws 404, 503

  std::string folder_;
  std::size_t max_bytes_;
  mutable std::mutex mutex_;  // serializes changes to the folder
};

// The sessions of each API key. Without keys, or if they are `shared`, all are in `folder` itself.
class SessionFolders {
 public:
  // `max_bytes`: of the sessions of one key. Creates the keys' folders. Throws Error.
  SessionFolders(const std::string& folder, std::size_t max_bytes, const std::vector<std::string>& api_keys = {},
                 bool shared = false);

  // `key`: its number, from 1; 0: there are no keys.
  Sessions& of(int key) { return *all_.at(all_.size() == 1 ? 0 : static_cast<std::size_t>(key) - 1); }

  // "key-" and 32 digits of the key's SHA-256: a key has the same folder whatever other keys there are.
  static std::string folder_of(const std::string& api_key);

 private:
  std::vector<std::unique_ptr<Sessions>> all_;
};

// Those of this key; throws ApiError if there are no `folders`.
Sessions& sessions_of(SessionFolders* folders, int key);

}  // namespace palimpsest
