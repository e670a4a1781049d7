#include "tests/fuzz/gguf_target.h"

#include <ggml.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "palimpsest/core/gguf_file.h"
#include "palimpsest/graph/decoder.h"
#include "palimpsest/model/model.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/fuzz/memory_file.h"
#include "tests/support/error_message.h"

namespace palimpsest::testing {
namespace {

// The bytes aligned like a mapped file, at the start of a page, without data of this program behind them.
std::shared_ptr<std::byte> page_aligned(std::span<const std::byte> bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::shared_ptr<std::byte> copy(
      static_cast<std::byte*>(operator new(std::max<std::size_t>(bytes.size(), 1), std::align_val_t(page))),
      [page](std::byte* p) { operator delete(p, std::align_val_t(page)); });
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  return copy;
}

void decode_a_little(const std::shared_ptr<const Model>& model) {
  Decoder decoder(model, 1);
  Cache cache(decoder.cache_options());
  const TokenId tokens[2] = {0, static_cast<TokenId>(model->hyper().vocabulary - 1)};
  cache.insert(2);
  const SequenceStep step{.cache = &cache, .tokens = tokens};
  if (decoder.step({&step, 1}).size() != static_cast<std::size_t>(model->hyper().vocabulary))
    throw std::logic_error("a step gave no logits");
}

void silence() {
  static const bool once = [] {
    ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace

LoadReport load_gguf(std::span<const std::byte> bytes, bool repack, bool vocabulary_always) {
  silence();
  LoadReport report;
  const auto attempt = [&](auto action) {
    const std::string message = error_message(action);
    if (report.complaint.empty()) report.complaint = message;
    return message.empty();
  };
  const auto copy = page_aligned(bytes);
  report.model = attempt([&] {
    const auto model = Model::from(GgufFile::parse({copy.get(), bytes.size()}, "fuzz", copy), {.repack = repack});
    decode_a_little(model);
  });
  if (report.model || vocabulary_always) {
    static MemoryFile file;
    file.write(bytes);
    report.vocabulary = attempt([&] {
      const auto vocabulary = Vocabulary::load(file.path());
      const auto tokens = vocabulary->tokenize("a b<s> \xC3\xA9", true, true);
      vocabulary->detokenize(tokens, true);
      vocabulary->has_chat_template();
    });
  }
  return report;
}

LoadReport load_split_gguf(const std::string& path, bool repack) {
  silence();
  LoadReport report;
  report.complaint = error_message([&] { decode_a_little(Model::load(path, {.repack = repack})); });
  report.model = report.complaint.empty();
  return report;
}

}  // namespace palimpsest::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  palimpsest::testing::load_gguf(std::as_bytes(std::span(data, size)), size % 2 == 0, true);
  return 0;
}
