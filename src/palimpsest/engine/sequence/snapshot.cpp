#include "palimpsest/engine/sequence/snapshot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "palimpsest/core/byte_stream.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/new_file.h"
#include "palimpsest/core/parse.h"
#include "palimpsest/model/fingerprint.h"

namespace palimpsest {
namespace {

constexpr std::array<char, 8> kMagic = {'P', 'L', 'M', 'P', 'S', 'E', 'S', 'T'};
// Version kOfSamplers adds the states of XTC, min_tokens and Mirostat; it is written only if one of them is not 0.
constexpr std::uint32_t kVersion = 1, kOfSamplers = 2, kByteOrder = 0x01020304;
constexpr std::uint64_t kMaxDraws = std::uint64_t{1} << 40;  // of a sampler: more than years of sampling

std::uint32_t version_of(const Sampler* sampler) {
  if (sampler == nullptr) return kVersion;
  const Sampler::State s = sampler->state();
  return s.xtc_draws != 0 || s.tokens != 0 || s.mu != 0 ? kOfSamplers : kVersion;
}

void put_state(ByteWriter& out, std::uint32_t version, const Sampler::State& s) {
  out.array(std::span<const TokenId>(s.history));
  out.array(std::span<const std::int32_t>(s.grammar));
  out.put(s.draws);
  out.put(s.single_candidate);
  if (version == kVersion) return;
  out.put(s.xtc_draws);
  out.put(s.tokens);
  out.put(s.mu);
}

Sampler::State get_state(ByteReader& in, std::uint32_t version) {
  Sampler::State s;
  s.history = in.array<TokenId>();
  s.grammar = in.array<std::int32_t>();
  s.draws = in.get<std::uint64_t>();
  s.single_candidate = in.get<std::uint64_t>();
  if (version == kVersion) return s;
  s.xtc_draws = in.get<std::uint64_t>();
  s.tokens = in.get<std::uint64_t>();
  s.mu = in.get<float>();
  return s;
}

Method read_method(const std::string& text, const std::string& name) {
  const auto colon = text.find(':');
  Method method;
  method.name = text.substr(0, colon);
  const std::string_view choices =
      colon == std::string::npos ? std::string_view() : std::string_view(text).substr(colon + 1);
  try {
    for (const auto& [key, value] : parse_pairs(choices, "the method")) set_option(method, key, value);
  } catch (const Error& error) {
    fail("{}: was written by another version of this program, perhaps a newer one: {}; use that one", name,
         error.what());
  }
  return method;
}

bool same_choices(Method a, const Method& b) {
  a.name = b.name;
  return a == b;
}

}  // namespace

void serialize_snapshot(ByteWriter& out, const Model& model, const Sequence& sequence, const Sampler* sampler,
                        const SnapshotText& text) {
  out.put(kMagic);
  const std::uint32_t version = version_of(sampler);
  out.put(version);
  out.put(kByteOrder);
  out.put(cache_fingerprint(model));
  out.text(spell_out(sequence.options().method));
  out.array(std::span<const TokenId>(text.tokens));
  out.put(text.unread);
  out.put(static_cast<std::uint8_t>(sampler != nullptr));
  if (sampler != nullptr) {
    out.put(sampler->seed());
    put_state(out, version, sampler->state());
  }
  sequence.save(out);
}

bool write_snapshot(const std::string& path, const std::function<void(ByteWriter&)>& serialize, std::size_t max_bytes,
                    const std::string& name) {
  struct TooLarge {};
  ChecksummedFile file(path, name);
  std::size_t bytes = sizeof(std::uint64_t);
  std::vector<std::byte> buffer;  // most pieces are small
  const auto flush = [&] {
    file.write(buffer);
    buffer.clear();
  };
  ByteWriter out([&](std::span<const std::byte> data) {
    bytes += data.size();
    if (bytes > max_bytes) throw TooLarge();
    buffer.insert(buffer.end(), data.begin(), data.end());
    if (buffer.size() > (1 << 20)) flush();
  });
  try {
    serialize(out);
  } catch (const TooLarge&) {
    return false;
  }
  flush();
  file.commit();
  return true;
}

void save_snapshot(const std::string& path, const Session& session, const Sampler* sampler, const SnapshotText& text) {
  write_snapshot(path, [&](ByteWriter& out) {
    serialize_snapshot(out, session.decoder().model(), session.sequence(), sampler, text);
  });
}

Snapshot::Snapshot(const std::string& path, const Model& model, const std::string& name)
    : file_(std::make_shared<const RegularFile>(path, "a snapshot", name)),
      name_(name.empty() ? path : name),
      rest_(std::span<const std::byte>(), "") {
  ByteReader in(file_, name_ + " is damaged");
  if (in.left() < sizeof kMagic || in.get<std::array<char, 8>>() != kMagic)
    fail("{}: is no snapshot of this program", name_);
  const auto version = in.get<std::uint32_t>();
  if (version != kVersion && version != kOfSamplers)
    fail("{}: is a snapshot of version {}; this program reads versions {} and {}: create it again", name_, version,
         kVersion, kOfSamplers);
  if (in.get<std::uint32_t>() != kByteOrder) fail("{}: was written by a machine of another byte order", name_);
  in.require(in.left() > 8, "it ends too early");
  ByteReader all = in;
  all.skip(all.left() - 8);
  all.require_checksum();

  if (in.get<std::uint64_t>() != cache_fingerprint(model))
    fail("{}: belongs to another model than {}, or was made with other rope scaling or metadata", name_,
         name.empty() ? model.path() : "the one that is served");
  const std::string method = in.text();
  in.require(std::ranges::all_of(method, [](char c) { return c >= 32 && c < 127; }), "a method that is no text");
  method_ = read_method(method, name_);
  const auto require_known = [&](std::span<const TokenId> tokens) {
    in.require(std::ranges::all_of(tokens, [&](TokenId t) { return t >= 0 && t < model.hyper().vocabulary; }),
               "a token that the model does not know");
  };
  text_.tokens = in.array<TokenId>();
  require_known(text_.tokens);
  text_.unread = in.get<TokenId>();
  if (text_.unread != -1) require_known({&text_.unread, 1});
  has_sampler_ = in.get<std::uint8_t>() != 0;
  if (has_sampler_) {
    seed_ = in.get<std::uint32_t>();
    sampler_ = get_state(in, version);
    require_known(sampler_.history);
    in.require(std::max({sampler_.draws, sampler_.single_candidate, sampler_.xtc_draws}) <= kMaxDraws,
               "an impossible count of draws");
    in.require(std::isfinite(sampler_.mu), "an impossible state of Mirostat");
  }
  in.release();
  rest_ = in;
  require_known(in.array<TokenId>());  // of a sequence without a cache
}

void Snapshot::check(const MethodPlan& plan) const {
  if (!same_choices(method_, plan.method()))
    fail("{}: was saved with --method {}: use that method", name_, spell_out(method_));
  if (const std::string with = Sequence::mismatch(plan, rest_); !with.empty())
    fail("{}: was saved with {}", name_, with);
}

void Snapshot::resume(Sampler& sampler) const {
  if (!has_sampler_) fail("{}: was saved without a sampler", name_);
  sampler.resume(seed_, sampler_);
}

void Snapshot::load(Sequence& sequence) const {
  ByteReader in = rest_;
  sequence.load(in);
  try {
    in.require_checksum();
  } catch (...) {
    sequence.clear();
    throw;
  }
}

SnapshotText load_snapshot(const std::string& path, Session& session, Sampler* sampler) {
  session.sequence().clear();
  const Snapshot snapshot(path, session.decoder().model());
  snapshot.check(session.sequence().plan());
  if (sampler != nullptr) snapshot.resume(*sampler);
  snapshot.load(session.sequence());
  session.set_text(snapshot.text().tokens);
  return snapshot.text();
}

}  // namespace palimpsest
