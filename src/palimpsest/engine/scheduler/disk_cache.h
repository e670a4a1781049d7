// The folder of kept caches that left the PrefixCache's memory: one file each, shared by all servers of the folder.
//
//   KEY.KIND.TOKENS.UNITS.HASH.kv     the name. KEY: what a cache depends on besides its text (key_of). KIND: KeptKind.
//                                     UNITS, HASH: length and hash of the text's bytes
//   magic, version, byte order | key, in_prompt, tokens | a sequence's saved form (Sequence::save) | checksum
//
// Names are the index: a prompt's hash at the lengths that files of its key have finds them, without opening any. What
// is in a file decides: a text or a key that differs from its name's is an error, and so is a wrong checksum. Files are
// written to a temporary file and renamed, so no lock is needed: another server's file is there or it is not, and two
// that write the same text write the same file. The time of modification is that of the last use; it lies in the future
// for pinned ones, and in 1970 for those that a longer history continues. The oldest are removed first.
// Rationale: docs/decisions/0051-caches-on-disk.md. Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "palimpsest/core/byte_stream.h"
#include "palimpsest/core/types.h"
#include "palimpsest/engine/scheduler/prefix_cache.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct DiskCacheOptions {
  std::string folder;               // empty: none. It is created
  std::size_t max_bytes = 0;        // of all files, those of other servers included
  std::vector<std::string> scopes;  // [Request::scope] what files of a scope are known by, on all servers of the folder
  // A cache is written when it was not used for this time, earlier if memory runs short.
  std::chrono::milliseconds unused_for{10'000};
  bool skip_slow = true;  // a file is not used if reading the prompt again is estimated to be faster
  std::function<void(const std::string&)>
      on_error;  // called on the stepping thread: a file is not read, or not written
};

enum class KeptKind : char { kPrefix = 'p', kPromptEnd = 'e', kHistory = 'h' };  // the last two are histories

// A cache to be written. The spans and the cache stay valid until it is written or abandoned.
struct DiskCacheEntry {
  std::string key;
  KeptKind kind = KeptKind::kHistory;
  bool in_prompt = false;  // as in PrefixCache
  std::span<const TokenId> tokens;
  const Cache* cache = nullptr;
  std::span<const std::byte> state = {};
  std::chrono::seconds pin{0};  // that remains
};

// The bytes of its file, without the checksum.
void serialize_kept(ByteWriter& out, const DiskCacheEntry& entry);

class DiskCache {
 public:
  // Removes what killed servers left incomplete. `model`: its fingerprint(). `vocabulary`: nullptr compares texts by
  // tokens. Throws Error if the folder cannot be made or written.
  DiskCache(const DiskCacheOptions& options, std::uint64_t model, std::shared_ptr<const Vocabulary> vocabulary);

  // What a cache depends on besides its text: equal keys are equal models, methods, options and scopes.
  std::string key_of(const PrefixKey& key) const;

  struct File {
    std::string name;
    KeptKind kind = KeptKind::kHistory;
    std::size_t tokens = 0;   // of its text
    std::size_t matched = 0;  // the first tokens of the prompt that lie in it
    std::size_t bytes = 0;
  };
  // The files whose text the prompt begins with: those that match most first. Reads the folder if it has changed.
  std::vector<File> find(const std::string& key, std::span<const TokenId> prompt, bool histories);
  // Opens a file, and marks it as used. Throws Error: it is gone, not what its name says, or was written with another
  // cache than `plan` has.
  struct Head {
    bool in_prompt = false;
    std::vector<TokenId> tokens;
  };
  ByteReader open(const File& file, const std::string& key, const MethodPlan& plan, int vocabulary, Head& head);
  // It is not used again by this server, until it is replaced by a file that this server writes.
  void ignore(const std::string& name);

  std::string name_of(const DiskCacheEntry& entry) const;
  bool has(const std::string& name);  // and it is not ignored
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  // Removes the oldest files until `bytes` more have room. false: they never have.
  bool make_room(std::size_t bytes) const;
  // After `name` was written, or found: sets its time, and that of the histories of its kind that it continues.
  void mark(const std::string& name, const DiskCacheEntry& entry);

 private:
  struct Known {  // by its name
    std::string name;
    KeptKind kind;
    std::size_t tokens;
    std::uint64_t units, hash;
  };
  static bool parse(const std::string& name, std::string& key, Known& known);
  void refresh();

  std::string folder_;
  std::size_t max_bytes_;
  std::vector<std::string> scopes_;
  std::uint64_t model_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::mutex mutex_;                                           // guards the members below
  std::unordered_map<std::string, std::vector<Known>> files_;  // by key
  std::set<std::string> ignored_;
  std::filesystem::file_time_type listed_{};  // the folder's time when it was read
  bool settled_ = false;                      // a later change has a later time
};

}  // namespace palimpsest
