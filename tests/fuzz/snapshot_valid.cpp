#include "tests/fuzz/snapshot_valid.h"

#include <cstring>
#include <random>

#include "palimpsest/cache/formats/formats.h"
#include "palimpsest/core/cache_type.h"
#include "palimpsest/engine/sequence/snapshot.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/fuzz/memory_file.h"
#include "tests/support/scorer_file.h"

namespace palimpsest::testing {
namespace {

constexpr int kVocabulary = 64;

std::shared_ptr<Decoder> decoder_of(const std::string& shape, int head_dim) {
  SyntheticShape s = parse_synthetic(shape);
  s.vocabulary = kVocabulary;
  s.layers = 2;
  s.width = s.feed_forward = 32;
  s.query_heads = 4;
  s.kv_heads = shape == "tiny" ? 2 : 4;
  s.head_dim = shape == "tiny" ? head_dim : 8;
  if (s.window_period > 0) {
    s.kv_heads_of = {2, 1};
    s.window_head_dim = 4;
    s.window_period = 2;
  }
  s.context = 256;
  return std::make_shared<Decoder>(Model::from(make_synthetic(s)), 1);
}

// Each piece written to a snapshot is a field: a number, or a count and then its array.
class Recorder {
 public:
  explicit Recorder(std::size_t page_bytes) : page_bytes_(page_bytes) {}

  void add(std::span<const std::byte> piece) {
    const std::size_t at = bytes_.size(), size = piece.size();
    bytes_.insert(bytes_.end(), piece.begin(), piece.end());
    layout_.edges.push_back(at);
    const std::uint64_t count = std::exchange(count_, 0);
    const int number = pieces_++;
    if (number < 4) return;  // magic, version, byte order, model: damage always gives the same complaint
    if (count > 0 && size > 0 && size % count == 0 && number == 5) {
      layout_.texts.push_back({at, size});  // the method
    } else if (count > 0 && size > 0 && size % count == 0) {
      const std::size_t each = std::min<std::size_t>(size / count, 8);
      for (std::size_t i = 0; i + each <= size; i += each) layout_.numbers.push_back({at + i, each});
    } else if (size <= 8 && size > 0) {
      layout_.numbers.push_back({at, size});
      if (size == 8) std::memcpy(&count_, piece.data(), 8);
    } else if (size == page_bytes_ && first_page_ == 0) {
      first_page_ = at;
    }
  }
  void finish(ValidSnapshot& to) {
    layout_.edges.push_back(bytes_.size());
    layout_.header = first_page_ == 0 ? bytes_.size() : first_page_;
    to.bytes = std::move(bytes_);
    to.layout = std::move(layout_);
  }

 private:
  std::size_t page_bytes_;
  Bytes bytes_;
  Layout layout_;
  std::uint64_t count_ = 0;  // the last piece if it may be the count of an array
  int pieces_ = 0;
  std::size_t first_page_ = 0;
};

ValidSnapshot snapshot_of(const std::string& shape, const std::string& method, CacheTypes type) {
  const bool bytes = !kv_format(type.key).elementwise() || !kv_format(type.value).elementwise();
  ValidSnapshot out{.name = shape + " " + method + " " + name_of(type),
                    .decoder = decoder_of(shape, bytes ? 32 : 8),
                    .options = {},
                    .bytes = {},
                    .layout = {}};
  out.options.method = parse_method(method);
  if (method.starts_with("learned") || method.starts_with("temporal")) {
    static MemoryFile learned, temporal;
    const std::string policy = out.options.method.policy;
    out.options.method.scorer = (policy == "learned" ? learned : temporal).path();
    write_scorer(out.options.method.scorer, policy_model(out.decoder->model(), {}), 1, policy);
  }
  out.options.cache_type = type;
  out.options.page_size = 16;
  out.options.chunk = 24;
  Session session(out.decoder, out.options);
  SamplerOptions how;
  how.repeat_penalty = 1.1F;
  how.seed = 1;  // the files are the same in every run
  Sampler sampler(how, nullptr, kVocabulary);
  std::mt19937 random(3);
  std::vector<TokenId> prompt(44);
  for (TokenId& token : prompt) sampler.accept(token = static_cast<TokenId>(random() % kVocabulary));
  SnapshotText text{.tokens = prompt, .unread = sampler.sample(session.prefill(prompt))};
  for (int i = 0; i < 13; ++i) text.unread = sampler.sample(session.decode(text.unread));
  Recorder recorder(session.cache().bytes_in_use() == 0 ? 0 : page_bytes(session.cache().view(0)));
  ByteWriter writer([&](std::span<const std::byte> piece) { recorder.add(piece); });
  serialize_snapshot(writer, out.decoder->model(), session.sequence(), &sampler, text);
  recorder.finish(out);
  return out;
}

}  // namespace

std::vector<ValidSnapshot> valid_snapshots() {
  using enum CacheType;
  std::vector<ValidSnapshot> all;
  for (const auto& [method, type] :
       std::vector<std::pair<const char*, CacheType>>{{"full", kF32},
                                                      {"streaming:budget=24", kF16},
                                                      {"streaming:budget=32,every=8", kQ8_0},
                                                      {"streaming:budget=24,mechanism=shift", kF32},
                                                      {"streaming:budget=24,rerotate=cached-half", kF16},
                                                      {"h2o:budget=24,positions=cache", kF32},
                                                      {"h2o:budget=24,mechanism=gather,positions=cache", kF16},
                                                      {"compact-shift:budget=24", kF32},
                                                      {"sparse:budget=24", kBF16},
                                                      {"random:budget=40", kF32},
                                                      {"window-recompute:budget=24", kF32},
                                                      {"paged-eviction:budget=64", kF16},
                                                      {"paged-eviction:budget=64,positions=cache", kQ8_0},
                                                      {"knorm:budget=24,mechanism=append", kF32},
                                                      {"keydiff:budget=24", kF16},
                                                      {"tova:budget=24", kF32},
                                                      {"tova:budget=24,positions=cache", kQ8_0},
                                                      {"snapkv:budget=24,recent=8", kF16},
                                                      {"scissorhands:budget=24", kF32},
                                                      {"lagkv:budget=40", kF32},
                                                      {"r-kv:budget=24,every=4", kF32},
                                                      {"expected-attention:budget=24,every=4", kF32},
                                                      {"kvzip:budget=24,schedule=prompt+step,recent=8", kF32},
                                                      {"pyramidkv:budget=40,recent=8,schedule=prompt+step", kF16},
                                                      {"adakv:budget=24,recent=8,schedule=prompt+step", kF32},
                                                      {"ems:budget=24,recent=4,tau=0.1", kF32},
                                                      {"ems:budget=24,recent=4,tau=0,gamma=2,schedule=step", kQ8_0},
                                                      {"ems:budget=24,recent=4,tau=0.1,merge-position=own", kF16},
                                                      {"cam:budget=24", kF32},
                                                      {"learned:budget=40", kF16},
                                                      {"temporal:budget=40", kF32}})
    all.push_back(snapshot_of("tiny", method, type));
  all.push_back(snapshot_of("tiny", "h2o:budget=24", {kQ8_0, kF16}));
  all.push_back(snapshot_of("tiny", "h2o:budget=24", {kQ4, kQ2}));
  all.push_back(snapshot_of("tiny", "streaming:budget=24", {kQ2, kQ3}));
  all.push_back(snapshot_of("tiny-bloom", "h2o:budget=24,positions=cache", kF16));  // distances by rank
  all.push_back(snapshot_of("tiny-gpt2", "h2o:budget=24", kF32));                   // learned positions
  all.push_back(snapshot_of("tiny-gemma4", "h2o:budget=24", kF16));                 // heads of two widths
  return all;
}

}  // namespace palimpsest::testing
