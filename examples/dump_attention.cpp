// What every query of a text gave every token, and the tokens' keys and values, as numpy arrays:
// dump_attention MODEL.gguf TEXT TOKENS FOLDER
//
//   attention.npy  [layers * kv_heads][tokens][tokens]   row: a query; mean over the query group
//   keys.npy       [layers * kv_heads][tokens][head_dim] un-rotated; values.npy alike
//   repeated.npy   [layers * kv_heads][tokens][1]        max weight while the model repeats the text: KVzip's score
//   model.json     the model's fingerprint and shape
//
// Policies see all of it, so three policies of this program's own write it down.
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/repeat.h"
#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/model/fingerprint.h"
#include "palimpsest/text/vocabulary.h"

using namespace palimpsest;

namespace {

struct Dump {
  const Session* session = nullptr;
  std::size_t tokens = 0, heads = 0, report_kv = 0;
  std::vector<float> attention, keys, values, repeated;
} dump;  // of the session that runs: one thread, so layers and heads come in order

class DumpWeights final : public Policy {
 public:
  Signals signals() const override { return {.attention_sum = AttentionSum{}}; }
  void score(const HeadView& head, std::span<float>) const override {
    const Cache& cache = dump.session->cache();
    const auto query = static_cast<std::size_t>(cache.table(head.table).next() - 1);
    float* row = &dump.attention[(static_cast<std::size_t>(head.table) * dump.tokens + query) * dump.tokens];
    for (std::size_t i = 0; i < head.position.size(); ++i)
      if (head.position[i] != kNoPosition) row[head.position[i]] = head.attention[i];
  }
};

class DumpBirths final : public Policy {
 public:
  Signals signals() const override { return {.keys = Keys{}, .values = Values{}, .score_on_insert = true}; }
  void score(const HeadView& head, std::span<float>) const override {
    const std::size_t at = dump.report_kv++ % dump.heads * dump.tokens + static_cast<std::size_t>(head.position[0]);
    std::ranges::copy(head.keys[0], &dump.keys[at * static_cast<std::size_t>(head.keys.width)]);
    std::ranges::copy(head.values[0], &dump.values[at * static_cast<std::size_t>(head.values.width)]);
  }
};

class DumpRepetition final : public Policy {
 public:
  Signals signals() const override { return {.attention_max = AttentionMax{}, .repeat = true}; }
  void score(const HeadView& head, std::span<float>) const override {
    float* const row = &dump.repeated[static_cast<std::size_t>(head.table) * dump.tokens];
    for (std::size_t i = 0; i < head.position.size(); ++i) {
      const Position at = head.position[i];
      if (at != kNoPosition && at < static_cast<Position>(dump.tokens)) row[at] = std::max(row[at], head.attention[i]);
    }
  }
};

template <typename T>
PolicyEntry entry(std::string_view name) {
  return {name, "", []() -> std::unique_ptr<Policy> { return std::make_unique<T>(); }};
}

void read(const std::shared_ptr<Decoder>& decoder, const std::string& policy, std::span<const TokenId> tokens) {
  SessionOptions options;
  options.method = parse_method("sparse:budget=1000000,policy=" + policy);
  options.cache_type = CacheType::kF32;
  Session session(decoder, options);
  dump.session = &session;
  for (const TokenId token : tokens) session.decode(token);
  dump.session = nullptr;
}

void read_twice(const std::shared_ptr<Decoder>& decoder, const Vocabulary& vocabulary,
                std::span<const TokenId> tokens) {
  SessionOptions options;
  options.method =
      parse_method("kvzip:budget=16,policy=dump-repetition");  // a prompt within the budget is not repeated
  options.cache_type = CacheType::kF32;
  options.repeat = repeat_instruction(vocabulary);
  Session(decoder, options).prefill(tokens);
}

void save(const std::string& path, std::span<const float> data, std::size_t a, std::size_t b, std::size_t c) {
  std::string head = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}, {}), }}", a, b, c);
  head.resize((head.size() + 11 + 63) / 64 * 64 - 11, ' ');
  head += '\n';
  std::ofstream file(path, std::ios::binary);
  file.write("\x93NUMPY\x01\x00", 8);
  file.put(static_cast<char>(head.size() & 255)).put(static_cast<char>(head.size() >> 8));
  file << head;
  file.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size_bytes()));
  if (!file) fail("{} cannot be written", path);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) fail("usage: dump_attention MODEL.gguf TEXT TOKENS FOLDER");
  register_policy(entry<DumpWeights>("dump-weights"));
  register_policy(entry<DumpBirths>("dump-births"));
  register_policy(entry<DumpRepetition>("dump-repetition"));
  std::ifstream file(argv[2]);
  const std::string text{std::istreambuf_iterator<char>(file), {}}, folder = argv[4];
  const auto vocabulary = Vocabulary::load(argv[1]);
  auto tokens = vocabulary->tokenize(text, true, false);
  if (const auto max = static_cast<std::size_t>(std::stoul(argv[3])); tokens.size() > max) tokens.resize(max);
  if (tokens.empty()) fail("{}: holds no text", argv[2]);

  const auto decoder = std::make_shared<Decoder>(Model::load(argv[1]), 1);
  const Hyperparameters& hyper = decoder->model().hyper();
  dump.tokens = tokens.size();
  if (!hyper.geometry.is_uniform()) fail("{}: layers with other heads than the others are not supported here", argv[1]);
  const LayerGeometry& layer = hyper.geometry.layer(0);
  dump.heads = static_cast<std::size_t>(hyper.geometry.heads());
  const auto key = static_cast<std::size_t>(layer.key_width), value = static_cast<std::size_t>(layer.value_width);
  dump.attention.resize(dump.heads * dump.tokens * dump.tokens);
  dump.keys.resize(dump.heads * dump.tokens * key);
  dump.values.resize(dump.heads * dump.tokens * value);
  dump.repeated.resize(dump.heads * dump.tokens);
  read(decoder, "dump-weights", tokens);
  read(decoder, "dump-births", tokens);
  read_twice(decoder, *vocabulary, tokens);
  save(folder + "/attention.npy", dump.attention, dump.heads, dump.tokens, dump.tokens);
  save(folder + "/keys.npy", dump.keys, dump.heads, dump.tokens, key);
  save(folder + "/values.npy", dump.values, dump.heads, dump.tokens, value);
  save(folder + "/repeated.npy", dump.repeated, dump.heads, dump.tokens, 1);
  std::ofstream(folder + "/model.json") << fmt::format(
      R"({{"fingerprint": {}, "layers": {}, "kv_heads": {}, "head_dim": {}, "value_dim": {}}})",
      fingerprint(decoder->model()), hyper.layers, layer.kv_heads, layer.key_width, layer.value_width);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
