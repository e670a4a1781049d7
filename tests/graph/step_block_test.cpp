#include "palimpsest/graph/device/step_block.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace palimpsest::testing {
namespace {

std::vector<std::int32_t> contents_of(const ggml_tensor* t) {
  std::vector<std::int32_t> contents(ggml_nbytes(t) / sizeof(std::int32_t));
  ggml_backend_tensor_get(t, contents.data(), 0, ggml_nbytes(t));
  return contents;
}

void expect_what_was_set(StepBlock::Sending sending) {
  const ggml_backend_ptr backend = make_backend(find_device("cpu"), 1);
  StepBlock block(backend.get(), 3, sending);
  std::array<ggml_tensor*, 3> tensors = {block.add(GGML_TYPE_I32, {700, 1, 1, 1}),
                                         block.add(GGML_TYPE_I32, {3, 1, 1, 1}),
                                         block.add(GGML_TYPE_F16, {256, 2, 1, 300})};
  block.place();
  std::mt19937 random(1);
  std::array<std::vector<std::int32_t>, 3> all;
  for (std::size_t i = 0; i < 3; ++i) all[i].resize(ggml_nbytes(tensors[i]) / 4);
  for (int round = 0; round < 100; ++round) {  // few changes, many, all
    for (std::size_t i = 0; i < 3; ++i) {
      for (unsigned changes = random() % (round % 3 == 0 ? 2000 : 5); changes > 0; --changes)
        all[i][random() % all[i].size()] = static_cast<std::int32_t>(random());
      if (round % 50 == 0)
        for (std::int32_t& each : all[i]) each = static_cast<std::int32_t>(random());
      block.set(tensors[i], std::as_bytes(std::span(all[i])));
    }
    block.send();
    for (std::size_t i = 0; i < 3; ++i) ASSERT_EQ(contents_of(tensors[i]), all[i]);
  }
}

TEST(StepBlock, TensorsHaveWhatWasSetLast) {
  expect_what_was_set(StepBlock::Sending::kParts);
}

TEST(StepBlock, ManyChangesGoAsOneMessageOfWords) {
  expect_what_was_set(StepBlock::Sending::kWords);
}

// What another writes to the device stays where nothing changes: that is not sent again.
TEST(StepBlock, SendsOnlyWhatChanged) {
  const ggml_backend_ptr backend = make_backend(find_device("cpu"), 1);
  StepBlock block(backend.get(), 3);
  ggml_tensor* const t = block.add(GGML_TYPE_I32, {1000, 1, 1, 1});
  block.place();
  const std::vector<std::int32_t> mark(1000, -7);
  ggml_backend_tensor_set(t, mark.data(), 0, 4000);
  std::vector<std::int32_t> contents(1000);
  contents[10] = 1, contents[20] = 2, contents[900] = 3;
  block.set(t, std::as_bytes(std::span(contents)));
  block.send();
  const auto read = contents_of(t);
  for (std::size_t i = 0; i < 1000; ++i) {
    const bool sent = (i >= 10 && i <= 20) || i == 900;  // 10 to 20 together
    EXPECT_EQ(read[i], sent ? contents[i] : -7) << i;
  }
}

}  // namespace
}  // namespace palimpsest::testing
