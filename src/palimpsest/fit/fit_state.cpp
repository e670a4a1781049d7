#include "palimpsest/fit/fit_state.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "palimpsest/core/new_file.h"
#include "palimpsest/core/regular_file.h"
#include "palimpsest/model/fingerprint.h"

namespace palimpsest {
namespace {

constexpr std::array<char, 8> kStateMagic = {'P', 'L', 'M', 'P', 'F', 'I', 'T', 'S'};
constexpr std::uint32_t kStateVersion = 2, kStateByteOrder = 0x01020304;

void put_state(ByteWriter& out, const FitState& state) {
  out.put(static_cast<std::uint32_t>(state.texts.size()));
  for (const auto& text : state.texts) out.array(std::span(text));
  out.put(static_cast<std::uint32_t>(state.sums ? 1 : 0));
  if (state.sums) state.sums->save(out);
  out.array(std::span(state.far));
  out.put(state.far_texts);
  out.put(static_cast<std::uint32_t>(state.results.size()));
  for (const auto& [name, result] : state.results) {
    out.text(name);
    out.put(result.asked);
    out.put(result.right);
    out.put(result.nll);
  }
}

FitState get_state(ByteReader& in, const Model& model) {
  FitState state;
  for (auto count = in.get<std::uint32_t>(); count > 0; --count) {
    state.texts.push_back(in.array<TokenId>());
    for (const TokenId token : state.texts.back())
      in.require(token >= 0 && token < model.hyper().vocabulary, "a token is outside the vocabulary");
  }
  if (in.get<std::uint32_t>() == 1) {
    state.sums = std::make_unique<FitSums>(model);
    state.sums->load(in);
    in.require(state.sums->texts() >= 0 && at(state.sums->texts()) <= state.texts.size(), "it has too few texts");
  }
  state.far = in.array<double>();
  in.require(state.far.empty() || state.far.size() == at(model.hyper().geometry.heads()), "it has another size");
  state.far_texts = in.get<int>();
  in.require(state.far_texts >= 0 && at(state.far_texts) <= state.texts.size(), "it has too few texts");
  for (auto count = in.get<std::uint32_t>(); count > 0; --count) {
    const std::string name = in.text();
    FitResult& result = state.results[name];
    result.asked = in.get<int>();
    result.right = in.get<int>();
    result.nll = in.get<double>();
  }
  return state;
}

}  // namespace

std::optional<FitState> FitStateFile::load(const Model& model, std::string& why) const {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const auto file = std::make_shared<const RegularFile>(path, "the state of a fit");
  ByteReader in(file, path + ": delete it and fit again; it is damaged");
  in.require(in.left() >= sizeof(kStateMagic) && in.get<std::array<char, 8>>() == kStateMagic,
             "it is not the state of a fit");
  if (in.get<std::uint32_t>() != kStateVersion || in.get<std::uint32_t>() != kStateByteOrder) {
    why = "was written by another version of this program";
    return std::nullopt;
  }
  in.require(in.left() > sizeof(std::uint64_t), "it ends too early");
  ByteReader all = in;
  all.skip(all.left() - sizeof(std::uint64_t));
  all.require_checksum();
  if (in.get<std::uint64_t>() != cache_fingerprint(model))
    why = "belongs to another model";
  else if (in.text() != settings)
    why = "was made from another text, or with other options";
  if (!why.empty()) return std::nullopt;
  return get_state(in, model);
}

void FitStateFile::save(const Model& model, const FitState& state) const {
  NewFile file(path);
  Checksum sum;
  std::vector<std::byte> buffer;  // sums are added in multiples of 8 bytes
  const auto flush = [&] {
    const std::size_t whole = buffer.size() / 8 * 8;
    sum.add(std::span(buffer).first(whole));
    file.write(std::span(buffer).first(whole));
    buffer.erase(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(whole));
  };
  ByteWriter out([&](std::span<const std::byte> data) {
    buffer.insert(buffer.end(), data.begin(), data.end());
    if (buffer.size() > (1U << 20)) flush();
  });
  out.bytes(std::as_bytes(std::span(kStateMagic)));
  out.put(kStateVersion);
  out.put(kStateByteOrder);
  out.put(cache_fingerprint(model));
  out.text(settings);
  put_state(out, state);
  flush();
  sum.add(buffer);
  out.put(sum.value());
  file.write(buffer);
  file.commit();
}

void FitStateFile::remove() const noexcept {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

}  // namespace palimpsest
