// Loads damaged GGUF files: each must load or give an Error of one line. Build with
// -DPALIMPSEST_SANITIZE=address,undefined to detect more faults. clang's libFuzzer can use the same target,
// LLVMFuzzerTestOneInput in gguf_target.cpp.
#include <memory>

#include "palimpsest/core/error.h"
#include "tests/fuzz/fuzz_run.h"
#include "tests/fuzz/gguf_layout.h"
#include "tests/fuzz/gguf_split.h"
#include "tests/fuzz/gguf_target.h"
#include "tests/fuzz/gguf_valid.h"

namespace palimpsest::testing {
namespace {

FuzzTarget gguf_files() {
  FuzzTarget target{.name = "fuzz_gguf"};
  for (auto& [bytes, model] : valid_gguf_files()) {
    if (const auto report = load_gguf(bytes, true, true); report.model != model || !report.vocabulary)
      fail("undamaged file {} does not load: {}", target.files.size(), report.complaint);
    Layout layout = gguf_layout(bytes);
    target.files.emplace_back(std::move(bytes), std::move(layout));
  }
  const std::size_t last = target.files.size() - 1;  // the last two are vocabularies only
  const auto split = std::make_shared<const SplitModel>();
  for (std::size_t part = 0; part < split->parts().size(); ++part) {
    const Bytes& bytes = split->parts()[part];
    if (const auto report = split->load(part, bytes, true); !report.model)
      fail("an undamaged split model does not load: {}", report.complaint);
    target.files.emplace_back(bytes, gguf_layout(bytes));
  }
  target.load = [last, split](const Bytes& bytes, std::size_t which, long long i) {
    if (which > last) {
      const LoadReport report = split->load(which - last - 1, bytes, i % 2 == 0);
      return FuzzReport{report.model, report.complaint};
    }
    const LoadReport report = load_gguf(bytes, i % 2 == 0, i % 8 == 0 || which + 1 >= last);
    return FuzzReport{report.model || report.vocabulary, report.complaint};
  };
  return target;
}

}  // namespace
}  // namespace palimpsest::testing

int main(int count, char** arguments) {
  return palimpsest::testing::fuzz_main(count, arguments, palimpsest::testing::gguf_files);
}
