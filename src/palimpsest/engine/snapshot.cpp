#include "palimpsest/engine/snapshot.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "palimpsest/core/byte_stream.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/mapped_file.h"
#include "palimpsest/model/weights.h"

namespace palimpsest {
namespace {

constexpr std::array<char, 8> kMagic = {'P', 'L', 'M', 'P', 'S', 'E', 'S', 'T'};
constexpr std::uint32_t kVersion = 1, kByteOrder = 0x01020304;

// In the manner of FNV-1a, over words of eight bytes: a guard against damage, not against an enemy.
class Checksum {
 public:
  void add(std::span<const std::byte> data) {
    for (const std::byte b : data) {
      word_ |= static_cast<std::uint64_t>(b) << (8 * filled_);
      if (++filled_ == 8) mix();
    }
  }
  std::uint64_t value() {
    if (filled_ > 0) mix();
    return hash_;
  }

 private:
  void mix() {
    hash_ = (hash_ ^ word_) * 0x100000001B3u;
    hash_ ^= hash_ >> 29;
    word_ = 0;
    filled_ = 0;
  }
  std::uint64_t hash_ = 0xCBF29CE484222325u, word_ = 0;
  int filled_ = 0;
};

// Of the model's file: its metadata and the places of its tensors, and a row of some of them.
std::uint64_t fingerprint(const Model& model) {
  const GgufFile& file = model.weights().file;
  Checksum sum;
  for (const GgufTensor& t : file.tensors()) {
    sum.add(std::as_bytes(std::span(t.name)));
    sum.add(std::as_bytes(std::span(t.ne)));
    sum.add({t.data, std::min<std::size_t>(t.bytes, 64)});
  }
  return sum.value();
}

// A file beside the one that is meant, which takes its place when it is whole.
class NewFile {
 public:
  explicit NewFile(const std::string& path)
      : path_(path),
        beside_(path + ".new." + std::to_string(::getpid())),
        file_(::open(beside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
    if (file_ < 0) broken();
  }
  ~NewFile() {
    if (file_ >= 0) ::close(file_);
    if (!done_) ::unlink(beside_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::span<const std::byte> data) {
    while (!data.empty()) {
      const ssize_t written = ::write(file_, data.data(), data.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) broken();
      data = data.subspan(static_cast<std::size_t>(written));
    }
  }
  void commit() {
    if (::fsync(file_) != 0 || ::rename(beside_.c_str(), path_.c_str()) != 0) broken();
    done_ = true;
    const auto folder = std::filesystem::absolute(path_).parent_path();
    if (const int f = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); f >= 0) {
      ::fsync(f);  // the name, too
      ::close(f);
    }
  }

 private:
  [[noreturn]] void broken() const {
    fail("{}: cannot be written ({}): is there room, and may this user write there?", path_, std::strerror(errno));
  }
  std::string path_, beside_;
  int file_;
  bool done_ = false;
};

void put_state(ByteWriter& out, const Sampler::State& s) {
  out.array(std::span<const TokenId>(s.prompt));
  out.array(std::span<const TokenId>(s.sampled));
  out.put(s.draws);
  out.put(s.certain);
}

Sampler::State get_state(ByteReader& in) {
  Sampler::State s;
  s.prompt = in.array<TokenId>();
  s.sampled = in.array<TokenId>();
  s.draws = in.get<std::uint64_t>();
  s.certain = in.get<std::uint64_t>();
  return s;
}

}  // namespace

void save_snapshot(const std::string& path, const Session& session, const Sampler* sampler, const SnapshotText& text) {
  if (!session.cache().options().pages)
    fail("a snapshot holds the pages of the CPU's own path: leave --portable and --device out");
  NewFile file(path);
  Checksum sum;
  std::vector<std::byte> buffer;  // many small pieces
  const auto flush = [&] {
    sum.add(buffer);
    file.write(buffer);
    buffer.clear();
  };
  ByteWriter out([&](std::span<const std::byte> data) {
    buffer.insert(buffer.end(), data.begin(), data.end());
    if (buffer.size() > (1 << 20)) flush();
  });
  out.put(kMagic);
  out.put(kVersion);
  out.put(kByteOrder);
  out.put(fingerprint(session.decoder().model()));
  out.text(spell_out(session.method()));
  out.array(std::span<const TokenId>(text.tokens));
  out.put(text.unread);
  out.put(static_cast<std::uint8_t>(sampler != nullptr));
  if (sampler != nullptr) {
    out.put(sampler->seed());
    put_state(out, sampler->state());
  }
  session.sequence().save(out);
  flush();
  const std::uint64_t checksum = sum.value();
  file.write(std::as_bytes(std::span(&checksum, 1)));
  file.commit();
}

SnapshotText load_snapshot(const std::string& path, Session& session, Sampler* sampler) {
  if (!session.cache().options().pages)
    fail("a snapshot holds the pages of the CPU's own path: leave --portable and --device out");
  const MappedFile file(path);
  const auto all = file.bytes();
  if (all.size() < sizeof kMagic || std::memcmp(all.data(), kMagic.data(), sizeof kMagic) != 0)
    fail("{}: is no snapshot of this program", path);
  ByteReader in(all, path + " is damaged");
  static_cast<void>(in.get<std::array<char, 8>>());
  if (const auto version = in.get<std::uint32_t>(); version != kVersion)
    fail("{}: is a snapshot of version {}; this program reads version {}: make it anew", path, version, kVersion);
  if (in.get<std::uint32_t>() != kByteOrder) fail("{}: was written by a machine of another byte order", path);
  in.require(all.size() > 8 + sizeof kMagic, "it ends too early");
  Checksum sum;
  sum.add(all.first(all.size() - 8));
  std::uint64_t checksum = 0;
  std::memcpy(&checksum, all.data() + all.size() - 8, 8);
  in.require(sum.value() == checksum, "its checksum is another: it was cut off or changed; use an older snapshot");

  if (in.get<std::uint64_t>() != fingerprint(session.decoder().model()))
    fail("{}: belongs to another model than {}", path, session.decoder().model().path());
  if (const std::string method = in.text(); method != spell_out(session.method()))
    fail("{}: was made with --method {}: give that", path, method);
  SnapshotText text;
  text.tokens = in.array<TokenId>();
  text.unread = in.get<TokenId>();
  if (in.get<std::uint8_t>() != 0) {
    const auto seed = in.get<std::uint32_t>();
    const Sampler::State state = get_state(in);
    if (sampler != nullptr) sampler->resume(seed, state);
  } else if (sampler != nullptr) {
    fail("{}: was made without a sampler", path);
  }
  session.sequence().load(in);
  in.require(in.bytes(8).size() == 8 && in.at_end(), "there is something after its end");
  return text;
}

}  // namespace palimpsest
