#include "palimpsest/fit/zip_entries.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;

class Archive {
 public:
  Archive(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  // Little-endian.
  template <typename T>
  T number(std::size_t at) const {
    T value = 0;
    const auto from = part(at, sizeof value);
    for (std::size_t i = 0; i < sizeof value; ++i)
      value = static_cast<T>(value | static_cast<T>(static_cast<T>(from[i]) << (8 * i)));
    return value;
  }
  std::span<const std::byte> part(std::size_t at, std::size_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) damaged("ends too early");
    return bytes_.subspan(at, size);
  }
  // Of the end record, which a comment may follow.
  std::size_t end() const {
    constexpr std::size_t kMaxComment = 65535;
    if (bytes_.size() < kEndBytes) damaged("ends too early");
    const std::size_t last = bytes_.size() - kEndBytes, first = last - std::min(last, kMaxComment);
    for (std::size_t at = last + 1; at-- > first;)
      if (number<std::uint32_t>(at) == kEnd) return at;
    damaged("it has no list of its files");
  }
  [[noreturn]] void damaged(const char* how) const { fail("{} is damaged: {}", name_, how); }
  [[noreturn]] void unsupported(const char* what) const {
    fail("{}: {}: write it again with torch.save()", name_, what);
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& name_;
};

}  // namespace

std::map<std::string, std::span<const std::byte>> zip_entries(std::span<const std::byte> archive,
                                                              const std::string& name) {
  const Archive in(archive, name);
  const std::size_t end = in.end();
  const int count = in.number<std::uint16_t>(end + 10);
  std::size_t at = in.number<std::uint32_t>(end + 16);
  if (count == UINT16_MAX || at == UINT32_MAX) in.unsupported("an archive of 4 GiB or of 65,535 files is not read");
  std::map<std::string, std::span<const std::byte>> out;
  for (int i = 0; i < count; ++i) {
    if (in.number<std::uint32_t>(at) != kCentral) in.damaged("its list of files is none");
    const int flags = in.number<std::uint16_t>(at + 8), method = in.number<std::uint16_t>(at + 10);
    const std::size_t size = in.number<std::uint32_t>(at + 24), characters = in.number<std::uint16_t>(at + 28);
    const std::size_t local = in.number<std::uint32_t>(at + 42);
    const auto letters = in.part(at + kCentralBytes, characters);
    if ((flags & 1) != 0) in.unsupported("an encrypted file is not read");
    if (method != 0 || in.number<std::uint32_t>(at + 20) != size) in.unsupported("a compressed file is not read");
    if (size == UINT32_MAX || local == UINT32_MAX) in.unsupported("a file of 4 GiB is not read");
    if (in.number<std::uint32_t>(local) != kLocal) in.damaged("a file is not where its list says");
    const std::size_t data =
        local + kLocalBytes + in.number<std::uint16_t>(local + 26) + in.number<std::uint16_t>(local + 28);
    out[std::string(reinterpret_cast<const char*>(letters.data()), letters.size())] = in.part(data, size);
    at += kCentralBytes + characters + in.number<std::uint16_t>(at + 30) + in.number<std::uint16_t>(at + 32);
  }
  return out;
}

}  // namespace palimpsest
