#include "palimpsest/engine/scheduler/disk_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <string_view>
#include <system_error>

#include "palimpsest/core/error.h"
#include "palimpsest/core/new_file.h"
#include "palimpsest/core/sha256.h"
#include "palimpsest/engine/sequence/sequence.h"

namespace palimpsest {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr std::array<char, 8> kKeptMagic = {'P', 'L', 'M', 'P', 'K', 'E', 'P', 'T'};
constexpr std::uint32_t kKeptVersion = 1, kKeptByteOrder = 0x01020304;
constexpr std::string_view kKeptSuffix = ".kv";

// FNV-1a over the bytes of a text. Bytes that differ in splitting into tokens only are the same; a control token, or
// any if there is no vocabulary, is a byte that no text has, and its number.
class TextHash {
 public:
  explicit TextHash(const Vocabulary* vocabulary) : vocabulary_(vocabulary) {}

  // Calls at(units, hash, at the token's end) after each byte.
  template <typename At>
  void add(TokenId token, At at) {
    std::string bytes;
    if (vocabulary_ != nullptr && !vocabulary_->is_control(token)) {
      bytes = vocabulary_->piece(token, true);
    } else {
      bytes = '\xff';
      for (int i = 0; i < 4; ++i) bytes += static_cast<char>(static_cast<std::uint32_t>(token) >> (8 * i));
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      hash_ = (hash_ ^ static_cast<unsigned char>(bytes[i])) * 0x100000001B3u;
      at(++units_, hash_, i + 1 == bytes.size());
    }
  }
  std::uint64_t units() const { return units_; }
  std::uint64_t hash() const { return hash_; }

 private:
  const Vocabulary* vocabulary_;
  std::uint64_t units_ = 0, hash_ = 0xCBF29CE484222325u;
};

template <typename Number>
bool read_number(std::string_view text, Number& out, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return error == std::errc() && end == text.data() + text.size();
}

void set_time(const std::string& path, std::chrono::system_clock::time_point time) {
  timespec both[2] = {};
  both[0].tv_sec = both[1].tv_sec = std::chrono::system_clock::to_time_t(time);
  both[0].tv_nsec = both[1].tv_nsec = (time.time_since_epoch() % 1s) / 1ns;
  ::utimensat(AT_FDCWD, path.c_str(), both, 0);  // it may be gone, or another user's
}

struct Listed {
  std::string name;
  std::size_t bytes;
  fs::file_time_type used;
};

std::vector<Listed> kept_files(const std::string& folder) {
  std::vector<Listed> all;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().string();
    if (!name.ends_with(kKeptSuffix)) continue;
    std::error_code gone;
    const auto bytes = at->file_size(gone);
    if (gone) continue;
    const auto used = at->last_write_time(gone);
    if (!gone) all.push_back({std::move(name), bytes, used});
  }
  return all;
}

}  // namespace

DiskCache::DiskCache(const DiskCacheOptions& options, std::uint64_t model, std::shared_ptr<const Vocabulary> vocabulary)
    : folder_(options.folder),
      max_bytes_(options.max_bytes),
      scopes_(options.scopes),
      model_(model),
      vocabulary_(std::move(vocabulary)) {
  std::error_code error;
  if (fs::create_directory(folder_, error)) fs::permissions(folder_, fs::perms::owner_all, error);
  if (!fs::is_directory(folder_, error) || ::access(folder_.c_str(), R_OK | W_OK | X_OK) != 0)
    fail("{}: cannot hold kept caches: must be a folder that this user may write", folder_);
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error))
    if (NewFile::is_temporary(at->path().filename().string())) NewFile::remove_abandoned(at->path().string());
}

std::string DiskCache::key_of(const PrefixKey& key) const {
  const LayerGeometry& layer = key.cache.geometry.layer_geometry(0);
  const auto scope = static_cast<std::size_t>(key.scope);
  return sha256_hex(fmt::format("{} {:016x} {} {} {} {} {} {} {}", kKeptVersion, model_, key.chunk,
                                static_cast<int>(key.rotation), key.cache.page_size, static_cast<int>(layer.key_type),
                                static_cast<int>(layer.value_type), spell_out(key.method),
                                scope < scopes_.size() ? scopes_[scope] : fmt::format("{}", key.scope)))
      .substr(0, 32);
}

bool DiskCache::parse(const std::string& name, std::string& key, Known& known) {
  std::vector<std::string_view> parts;
  for (std::string_view rest = name; parts.size() < 7;) {
    const auto dot = rest.find('.');
    parts.push_back(rest.substr(0, dot));
    if (dot == std::string_view::npos) break;
    rest.remove_prefix(dot + 1);
  }
  if (parts.size() != 6 || parts[5] != kKeptSuffix.substr(1) || parts[1].size() != 1) return false;
  const auto kind = static_cast<KeptKind>(parts[1].front());
  if (kind != KeptKind::kPrefix && kind != KeptKind::kPromptEnd && kind != KeptKind::kHistory) return false;
  key = parts[0];
  known = {.name = name, .kind = kind, .tokens = 0, .units = 0, .hash = 0};
  return read_number(parts[2], known.tokens) && read_number(parts[3], known.units) &&
         read_number(parts[4], known.hash, 16) && known.tokens > 0;
}

std::string DiskCache::name_of(const DiskCacheEntry& entry) const {
  TextHash text(vocabulary_.get());
  for (const TokenId token : entry.tokens) text.add(token, [](auto...) {});
  return fmt::format("{}.{}.{}.{}.{:016x}{}", entry.key, static_cast<char>(entry.kind), entry.tokens.size(),
                     text.units(), text.hash(), kKeptSuffix);
}

// With the mutex. The times of a folder are coarse: it is read again until its last change is a while ago.
void DiskCache::refresh() {
  std::error_code error;
  const auto changed = fs::last_write_time(folder_, error);
  if (!error && settled_ && changed == listed_) return;
  files_.clear();
  listed_ = changed;
  settled_ = !error && changed + 2s < fs::file_time_type::clock::now();
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    std::string key;
    Known known;
    if (parse(at->path().filename().string(), key, known)) files_[key].push_back(std::move(known));
  }
}

std::vector<DiskCache::File> DiskCache::find(const std::string& key, std::span<const TokenId> prompt, bool histories) {
  std::vector<Known> known;
  {
    const std::lock_guard lock(mutex_);
    refresh();
    if (const auto of_key = files_.find(key); of_key != files_.end())
      for (const Known& each : of_key->second)
        if ((histories || each.kind == KeptKind::kPrefix) && !ignored_.contains(each.name)) known.push_back(each);
  }
  std::vector<File> found;
  if (known.empty()) return found;
  std::ranges::sort(known, {}, &Known::units);
  auto next = known.begin();
  TextHash text(vocabulary_.get());
  for (std::size_t i = 0; i < prompt.size() && next != known.end(); ++i)
    text.add(prompt[i], [&](std::uint64_t units, std::uint64_t hash, bool whole) {
      for (; next != known.end() && next->units == units; ++next) {
        struct stat status {};
        if (next->hash != hash || ::stat(path(next->name).c_str(), &status) != 0) continue;
        found.push_back({.name = next->name,
                         .kind = next->kind,
                         .tokens = next->tokens,
                         .matched = whole ? i + 1 : i,
                         .bytes = static_cast<std::size_t>(status.st_size)});
      }
    });
  std::ranges::stable_sort(found, std::greater(), &File::matched);
  return found;
}

ByteReader DiskCache::open(const File& file, const std::string& key, const MethodPlan& plan, int vocabulary,
                           Head& head) {
  ByteReader in(std::make_shared<const RegularFile>(path(file.name), "a kept cache", file.name),
                file.name + " is damaged");
  std::error_code error;
  const auto used = fs::last_write_time(path(file.name), error);
  if (!error && used < fs::file_time_type::clock::now()) set_time(path(file.name), std::chrono::system_clock::now());
  in.require(in.left() > sizeof kKeptMagic && in.get<std::array<char, 8>>() == kKeptMagic, "it is no kept cache");
  in.require(in.get<std::uint32_t>() == kKeptVersion && in.get<std::uint32_t>() == kKeptByteOrder,
             "it was written by another program");
  in.require(in.text() == key, "it is another's than its name says");
  head.in_prompt = in.get<std::uint8_t>() != 0;
  head.tokens = in.array<TokenId>();
  in.require(std::ranges::all_of(head.tokens, [&](TokenId t) { return t >= 0 && t < vocabulary; }),
             "it has a token that the model does not know");
  in.require(head.tokens.size() == file.tokens, "it has another text than its name says");
  if (const std::string with = Sequence::mismatch(plan, in); !with.empty())
    fail("{}: was saved with {}", file.name, with);
  return in;
}

void serialize_kept(ByteWriter& out, const DiskCacheEntry& entry) {
  out.put(kKeptMagic);
  out.put(kKeptVersion);
  out.put(kKeptByteOrder);
  out.text(entry.key);
  out.put(static_cast<std::uint8_t>(entry.in_prompt));
  out.array(entry.tokens);
  Sequence::save(out, *entry.cache, entry.state);
}

void DiskCache::ignore(const std::string& name) {
  const std::lock_guard lock(mutex_);
  ignored_.insert(name);
}

bool DiskCache::has(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return !ignored_.contains(name) && ::access(path(name).c_str(), R_OK) == 0;
}

bool DiskCache::make_room(std::size_t bytes) const {
  if (bytes > max_bytes_) return false;
  std::vector<Listed> all = kept_files(folder_);
  std::ranges::sort(all, {}, &Listed::used);
  std::size_t total = bytes;
  for (const Listed& each : all) total += each.bytes;
  for (auto oldest = all.begin(); total > max_bytes_ && oldest != all.end(); ++oldest) {
    ::unlink(path(oldest->name).c_str());  // another server may have been faster
    total -= oldest->bytes;
  }
  return true;
}

void DiskCache::mark(const std::string& name, const DiskCacheEntry& entry) {
  set_time(path(name), std::chrono::system_clock::now() + entry.pin);
  {
    const std::lock_guard lock(mutex_);
    ignored_.erase(name);
  }
  if (entry.kind == KeptKind::kPrefix) return;
  for (const File& shorter : find(entry.key, entry.tokens, true))
    if (shorter.kind == entry.kind && shorter.name != name) set_time(path(shorter.name), {});
}

}  // namespace palimpsest
