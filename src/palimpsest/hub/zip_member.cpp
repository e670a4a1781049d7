#include "palimpsest/hub/zip_member.h"

#include <fmt/format.h>
#ifdef PALIMPSEST_ZLIB
#include <zlib.h>
#endif

#include <algorithm>
#include <memory>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/core/regular_file.h"

namespace palimpsest {

#ifdef PALIMPSEST_ZLIB
namespace {

constexpr std::size_t kEndSize = 22, kEntrySize = 46, kLocalSize = 30;
constexpr std::uint32_t kEndSign = 0x06054b50, kEntrySign = 0x02014b50, kLocalSign = 0x04034b50;
constexpr std::size_t kPiece = std::size_t{256} << 10;
constexpr std::uint32_t kStored = 0, kDeflated = 8;

// Little-endian numbers of a record.
class Record {
 public:
  Record(const RegularFile& file, std::size_t offset, std::size_t size) : bytes_(size) { file.read(offset, bytes_); }
  explicit Record(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  std::uint32_t u16(std::size_t at) const { return u8(at) | u8(at + 1) << 8; }
  std::uint32_t u32(std::size_t at) const { return u16(at) | u16(at + 2) << 16; }
  std::string text(std::size_t at, std::size_t size) const {
    return {reinterpret_cast<const char*>(bytes_.data()) + at, size};
  }
  std::size_t size() const { return bytes_.size(); }

 private:
  std::uint32_t u8(std::size_t at) const { return static_cast<std::uint32_t>(bytes_[at]); }
  std::vector<std::byte> bytes_;
};

struct Member {
  std::uint32_t method = 0, crc = 0;
  std::size_t packed = 0, size = 0, offset = 0;  // offset: of the local header
};

[[noreturn]] void damaged(const std::string& archive) {
  fail("{}: is not a whole zip archive: remove it, and pull the model again", archive);
}

Member find_member(const RegularFile& file, const std::string& archive, const std::string& name) {
  // The end record is followed by a comment of at most 64 KiB.
  if (file.size() < kEndSize) damaged(archive);
  const std::size_t tail = std::min<std::size_t>(file.size(), kEndSize + 0xFFFF);
  const Record end(file, file.size() - tail, tail);
  std::size_t at = tail - kEndSize;
  while (end.u32(at) != kEndSign)
    if (at-- == 0) damaged(archive);
  const std::size_t size = end.u32(at + 12), offset = end.u32(at + 16);
  if (size == 0xFFFFFFFF || offset == 0xFFFFFFFF) fail("{}: zip archives above 4 GiB are not supported", archive);
  if (offset > file.size() || size > file.size() - offset) damaged(archive);
  const Record directory(file, offset, size);
  for (std::size_t i = 0; i + kEntrySize <= directory.size();) {
    if (directory.u32(i) != kEntrySign) damaged(archive);
    const std::size_t length = directory.u16(i + 28);
    if (i + kEntrySize + length > directory.size()) damaged(archive);
    if (directory.text(i + kEntrySize, length) == name)
      return {.method = directory.u16(i + 10),
              .crc = directory.u32(i + 16),
              .packed = directory.u32(i + 20),
              .size = directory.u32(i + 24),
              .offset = directory.u32(i + 42)};
    i += kEntrySize + length + directory.u16(i + 30) + directory.u16(i + 32);
  }
  fail("{}: has no member {}: the source has another file now", archive, name);
}

}  // namespace

bool has_unzip() {
  return true;
}

std::uint64_t unzip_member(const std::string& archive, const std::string& member,
                           const std::function<void(std::string_view)>& sink) {
  const RegularFile file(archive, "a zip archive");
  const Member found = find_member(file, archive, member);
  if (found.offset > file.size() || file.size() - found.offset < kLocalSize) damaged(archive);
  const Record local(file, found.offset, kLocalSize);
  if (local.u32(0) != kLocalSign || (found.method != kStored && found.method != kDeflated)) damaged(archive);
  std::size_t at = found.offset + kLocalSize + local.u16(26) + local.u16(28), left = found.packed;
  if (at > file.size() || left > file.size() - at) damaged(archive);

  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> ended(&stream, &inflateEnd);
  std::vector<std::byte> packed(kPiece), plain(kPiece);
  std::size_t size = 0;
  uLong crc = crc32(0, nullptr, 0);
  const auto hand_over = [&](const std::byte* data, std::size_t count) {
    if (count > found.size - size) damaged(archive);  // more than announced
    size += count;
    crc = crc32(crc, reinterpret_cast<const Bytef*>(data), static_cast<uInt>(count));
    sink({reinterpret_cast<const char*>(data), count});
  };
  int state = Z_OK;
  while (left > 0 && state == Z_OK) {
    const std::size_t count = std::min(left, kPiece);
    file.read(at, std::span(packed).first(count));
    at += count, left -= count;
    if (found.method == kStored) {
      hand_over(packed.data(), count);
      continue;
    }
    stream.next_in = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_in = static_cast<uInt>(count);
    do {
      stream.next_out = reinterpret_cast<Bytef*>(plain.data());
      stream.avail_out = static_cast<uInt>(kPiece);
      state = inflate(&stream, Z_NO_FLUSH);
      if (state == Z_BUF_ERROR) state = Z_OK;  // needs more input
      if (state != Z_OK && state != Z_STREAM_END) damaged(archive);
      hand_over(plain.data(), kPiece - stream.avail_out);
    } while (state == Z_OK && stream.avail_out == 0);
  }
  if (size != found.size || crc != found.crc) damaged(archive);
  return size;
}
#else
bool has_unzip() {
  return false;
}

std::uint64_t unzip_member(const std::string& archive, const std::string& member,
                           const std::function<void(std::string_view)>&) {
  fail("{}: this build has no zlib, which unpacks {}: unpack it with another program, and name the file with -m",
       archive, member);
}
#endif

}  // namespace palimpsest
