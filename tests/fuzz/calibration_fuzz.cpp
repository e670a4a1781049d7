// Imports damaged calibrations of others: each must be refused with an Error of one line, or give the file of a method.
#include <fmt/format.h>

#include <memory>
#include <stdexcept>

#include "palimpsest/core/error.h"
#include "palimpsest/fit/import_calibration.h"
#include "palimpsest/model/model.h"
#include "tests/fuzz/fuzz_run.h"
#include "tests/support/error_message.h"
#include "tests/support/torch_file.h"

namespace palimpsest::testing {
namespace {

// Every byte may be a number, and every fourth one the first of a longer one: opcodes, lengths, offsets.
Layout layout_of(const Bytes& bytes) {
  Layout layout;
  for (std::size_t at = 0; at + 8 <= bytes.size(); ++at) {
    layout.numbers.push_back({at, 1});
    if (at % 4 == 0) layout.numbers.push_back({at, 4});
    if (at % 16 == 0) layout.edges.push_back(at);
  }
  layout.header = bytes.size();
  return layout;
}

FuzzTarget calibrations() {
  const std::shared_ptr<Model> model = Model::synthetic("tiny");
  const HeadGeometry& geometry = model->hyper().geometry;
  const int pairs = model->hyper().rope_table(model->hyper().rope_of(0)).dims / 2;
  std::string budgets, pattern;
  for (int head = 0; head < geometry.heads(); ++head) {
    const int layer = geometry.layer_of(head), of_layer = geometry.kv_head_of(head);
    budgets += fmt::format("{}\"L{}H{}\": 0.125", head == 0 ? "{" : ",", layer, of_layer);
    pattern += fmt::format("0.25{}", of_layer + 1 == geometry.layer(layer).kv_heads ? "\n" : "\t");
  }
  FuzzTarget target{.name = "fuzz_calibration"};
  const Bytes files[] = {triattention_file(geometry.layers(), geometry.layer(0).query_heads, pairs,
                                           [](int, int, int, int pair) { return static_cast<float>(pair); }),
                         safetensors_file(R"({"w":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]}})", {1, 2}),
                         bytes_of_text(budgets + "}"), bytes_of_text(pattern)};
  for (const Bytes& file : files) target.files.emplace_back(file, layout_of(file));
  if (const auto complaint = error_message([&] { import_calibration(files[0], "a file", *model); }); !complaint.empty())
    fail("undamaged, and refused: {}", complaint);
  target.load = [model](const Bytes& bytes, std::size_t, long long) {
    FuzzReport report;
    report.complaint = error_message([&] {
      if (import_calibration(bytes, "a file", *model).content.empty()) throw std::logic_error("nothing was imported");
    });
    report.accepted = report.complaint.empty();
    return report;
  };
  return target;
}

}  // namespace
}  // namespace palimpsest::testing

int main(int count, char** arguments) {
  return palimpsest::testing::fuzz_main(count, arguments, palimpsest::testing::calibrations);
}
