#include "palimpsest/engine/snapshot.h"

#include <array>
#include <cstring>

#include "palimpsest/core/byte_stream.h"
#include "palimpsest/core/checksum.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/new_file.h"
#include "palimpsest/model/fingerprint.h"

namespace palimpsest {
namespace {

constexpr std::array<char, 8> kMagic = {'P', 'L', 'M', 'P', 'S', 'E', 'S', 'T'};
constexpr std::uint32_t kVersion = 1, kByteOrder = 0x01020304;

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

// All but the checksum.
void put(ByteWriter& out, const Model& model, const Sequence& sequence, const Sampler* sampler,
         const SnapshotText& text) {
  if (!sequence.cache().options().pages)
    fail("a snapshot holds the pages of the CPU's own path: leave --portable and --device out");
  out.put(kMagic);
  out.put(kVersion);
  out.put(kByteOrder);
  out.put(fingerprint(model));
  out.text(spell_out(sequence.options().method));
  out.array(std::span<const TokenId>(text.tokens));
  out.put(text.unread);
  out.put(static_cast<std::uint8_t>(sampler != nullptr));
  if (sampler != nullptr) {
    out.put(sampler->seed());
    put_state(out, sampler->state());
  }
  sequence.save(out);
}

}  // namespace

void save_snapshot(const std::string& path, const Session& session, const Sampler* sampler, const SnapshotText& text) {
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
  put(out, session.decoder().model(), session.sequence(), sampler, text);
  flush();
  const std::uint64_t checksum = sum.value();
  file.write(std::as_bytes(std::span(&checksum, 1)));
  file.commit();
}

std::vector<std::byte> pack_snapshot(const Model& model, const Sequence& sequence, const Sampler* sampler,
                                     const SnapshotText& text) {
  std::vector<std::byte> bytes;
  bytes.reserve(sequence.cache().bytes_in_use() + 4096);
  ByteWriter out([&](std::span<const std::byte> data) { bytes.insert(bytes.end(), data.begin(), data.end()); });
  put(out, model, sequence, sampler, text);
  return bytes;
}

void write_snapshot(const std::string& path, std::span<const std::byte> packed) {
  NewFile file(path);
  file.write(packed);
  Checksum sum;
  sum.add(packed);
  const std::uint64_t checksum = sum.value();
  file.write(std::as_bytes(std::span(&checksum, 1)));
  file.commit();
}

Snapshot::Snapshot(const std::string& path, const Model& model, const std::string& name)
    : file_(path), name_(name.empty() ? path : name), rest_({}, "") {
  const auto all = file_.bytes();
  if (all.size() < sizeof kMagic || std::memcmp(all.data(), kMagic.data(), sizeof kMagic) != 0)
    fail("{}: is no snapshot of this program", name_);
  ByteReader in(all, name_ + " is damaged");
  static_cast<void>(in.get<std::array<char, 8>>());
  if (const auto version = in.get<std::uint32_t>(); version != kVersion)
    fail("{}: is a snapshot of version {}; this program reads version {}: make it anew", name_, version, kVersion);
  if (in.get<std::uint32_t>() != kByteOrder) fail("{}: was written by a machine of another byte order", name_);
  in.require(all.size() > 8 + sizeof kMagic, "it ends too early");
  Checksum sum;
  sum.add(all.first(all.size() - 8));
  std::uint64_t checksum = 0;
  std::memcpy(&checksum, all.data() + all.size() - 8, 8);
  in.require(sum.value() == checksum, "its checksum is another: it was cut off or changed; use an older snapshot");

  if (in.get<std::uint64_t>() != fingerprint(model))
    fail("{}: belongs to another model than {}", name_, name.empty() ? model.path() : "the one that is served");
  method_ = in.text();
  text_.tokens = in.array<TokenId>();
  text_.unread = in.get<TokenId>();
  in.require(text_.unread >= -1 && text_.unread < model.hyper().vocabulary, "a token that the model does not know");
  has_sampler_ = in.get<std::uint8_t>() != 0;
  if (has_sampler_) {
    seed_ = in.get<std::uint32_t>();
    sampler_ = get_state(in);
  }
  rest_ = in;
}

void Snapshot::check(const MethodPlan& plan) const {
  if (!plan.cache().pages) fail("a snapshot holds the pages of the CPU's own path: leave --portable and --device out");
  if (method_ != spell_out(plan.method())) fail("{}: was made with --method {}: give that", name_, method_);
  if (!Sequence::accepts(plan, rest_)) fail("{}: was made with a cache of another shape, type or page size", name_);
}

void Snapshot::resume(Sampler& fresh) const {
  if (!has_sampler_) fail("{}: was made without a sampler", name_);
  fresh.resume(seed_, sampler_);
}

void Snapshot::load(Sequence& sequence) const {
  ByteReader in = rest_;
  sequence.load(in);
  in.require(in.bytes(8).size() == 8 && in.at_end(), "there is something after its end");
}

SnapshotText load_snapshot(const std::string& path, Session& session, Sampler* sampler) {
  session.sequence().clear();
  const Snapshot snapshot(path, session.decoder().model());
  snapshot.check(session.sequence().plan());
  if (sampler != nullptr) snapshot.resume(*sampler);
  snapshot.load(session.sequence());
  return snapshot.text();
}

}  // namespace palimpsest
