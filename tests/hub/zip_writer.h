// Writes zip archives for tests: members are stored, or deflated in blocks without compression.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace palimpsest::testing {

inline std::uint32_t crc32_of(const std::string& bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
  }
  return ~crc;
}

inline std::string little_endian(std::uint64_t number, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(number >> 8 * i & 0xFF);
  return out;
}

// RFC 1951, 3.2.4
inline std::string deflated(const std::string& bytes) {
  std::string out;
  for (std::size_t at = 0; at == 0 || at < bytes.size(); at += 0xFFFF) {
    const std::string block = bytes.substr(at, 0xFFFF);
    out += at + 0xFFFF >= bytes.size() ? '\1' : '\0';
    out += little_endian(block.size(), 2) + little_endian(~block.size(), 2) + block;
  }
  return out;
}

inline std::string zip_of(const std::vector<std::pair<std::string, std::string>>& members, bool deflate = true,
                          const std::string& comment = {}) {
  std::string out, directory;
  for (const auto& [name, bytes] : members) {
    const std::string data = deflate ? deflated(bytes) : bytes;
    const std::string common = little_endian(20, 2) + little_endian(0, 2) + little_endian(deflate ? 8 : 0, 2) +
                               little_endian(0, 4) + little_endian(crc32_of(bytes), 4) + little_endian(data.size(), 4) +
                               little_endian(bytes.size(), 4) + little_endian(name.size(), 2) + little_endian(0, 2);
    directory += "PK\1\2" + little_endian(20, 2) + common + little_endian(0, 2) + little_endian(0, 2) +
                 little_endian(0, 2) + little_endian(0, 4) + little_endian(out.size(), 4) + name;
    out += "PK\3\4" + common + name + data;
  }
  const std::size_t offset = out.size();
  out += directory + "PK\5\6" + little_endian(0, 4) + little_endian(members.size(), 2) +
         little_endian(members.size(), 2) + little_endian(directory.size(), 4) + little_endian(offset, 4) +
         little_endian(comment.size(), 2) + comment;
  return out;
}

}  // namespace palimpsest::testing
