#include "palimpsest/graph/device/step_block.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

constexpr std::size_t kMessage = 320;  // bytes that an RPC server is sent with each part
constexpr std::size_t kWord = 4;       // parts are of whole words, which every device copies

}  // namespace

StepBlock::StepBlock(ggml_backend_t backend, std::size_t max_tensors)
    : backend_(backend), context_(ggml_init({(max_tensors + 1) * ggml_tensor_overhead(), nullptr, true})) {
  if (!context_) fail("no memory for a step's inputs");
}

ggml_tensor* StepBlock::add(ggml_type type, const std::array<std::int64_t, 4>& shape) {
  assert(!buffer_);
  tensors_.push_back(ggml_new_tensor(context_.get(), type, static_cast<int>(shape.size()), shape.data()));
  return tensors_.back();
}

ggml_tensor* StepBlock::add_result(ggml_type type, std::int64_t elements) {
  assert(!buffer_);
  results_.push_back(ggml_new_tensor_1d(context_.get(), type, elements));
  return results_.back();
}

// The smallest first: those that change in each step. Results last: they have no copy.
void StepBlock::place() {
  std::ranges::stable_sort(tensors_, {}, [](const ggml_tensor* t) { return ggml_nbytes(t); });
  ggml_backend_buffer_type_t const type = ggml_backend_get_default_buffer_type(backend_);
  const std::size_t alignment = std::max(kWord, ggml_backend_buft_get_alignment(type));
  std::size_t bytes = 0, of_inputs = 0;
  std::vector<std::size_t> offsets;
  for (const auto* tensors : {&tensors_, &results_}) {
    for (const ggml_tensor* t : *tensors) {
      offsets.push_back(bytes);
      bytes += (ggml_backend_buft_get_alloc_size(type, t) + alignment - 1) / alignment * alignment;
    }
    if (tensors == &tensors_) of_inputs = bytes;
  }
  if (bytes == 0) return;
  tensors_.insert(tensors_.end(), results_.begin(), results_.end());
  buffer_.reset(ggml_backend_buft_alloc_buffer(type, bytes));
  if (!buffer_)
    fail("no memory on device {} for a step's inputs; give a smaller --budget", ggml_backend_name(backend_));
  ggml_backend_buffer_clear(buffer_.get(), 0);
  auto* const base = static_cast<std::byte*>(ggml_backend_buffer_get_base(buffer_.get()));
  whole_ = ggml_new_tensor_1d(context_.get(), GGML_TYPE_I8, static_cast<std::int64_t>(bytes));
  bool placed = ggml_backend_tensor_alloc(buffer_.get(), whole_, base) == GGML_STATUS_SUCCESS;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    placed = placed && ggml_backend_tensor_alloc(buffer_.get(), tensors_[i], base + offsets[i]) == GGML_STATUS_SUCCESS;
  if (!placed) fail("device {} cannot hold a step's inputs", ggml_backend_name(backend_));
  now_.resize(of_inputs);
  sent_.resize(of_inputs);
}

void StepBlock::set(const ggml_tensor* tensor, std::span<const std::byte> contents, std::size_t offset) {
  assert(offset + contents.size() <= ggml_nbytes(tensor));
  const auto first = static_cast<const std::byte*>(tensor->data) - static_cast<const std::byte*>(whole_->data);
  std::memcpy(now_.data() + first + offset, contents.data(), contents.size());
}

void StepBlock::send() {
  const auto differs = [&](std::size_t at) { return std::memcmp(&now_[at], &sent_[at], kWord) != 0; };
  for (std::size_t first = 0; first < now_.size(); first += kWord) {
    if (!differs(first)) continue;
    std::size_t end = first + kWord;  // after the last change of this part
    for (std::size_t at = end; at < now_.size() && at < end + kMessage; at += kWord)
      if (differs(at)) end = at + kWord;
    ggml_backend_tensor_set(whole_, &now_[first], first, end - first);
    std::memcpy(&sent_[first], &now_[first], end - first);
    first = end - kWord;
  }
}

}  // namespace palimpsest
