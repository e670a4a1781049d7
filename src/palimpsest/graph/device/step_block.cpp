#include "palimpsest/graph/device/step_block.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

constexpr std::size_t kRpcMessage = 320;        // bytes that an RPC server is sent with each part
constexpr std::size_t kGpuMessage = 64 * 1024;  // bytes that a GPU is sent in the time that a message takes
constexpr std::size_t kWordsCost = 3;           // messages that take as long as one of words and its operator
constexpr std::size_t kWord = 4;                // parts are of whole words, which every device copies
constexpr std::size_t kLine = 64 * kWord;       // compared at once
constexpr std::size_t kMinWords = 1024, kMaxSlack = 4;

// Words in a message for so many changes: a few sizes, since each has a graph of its own.
std::size_t words_for(std::size_t changes) {
  return std::bit_ceil(std::max(kMinWords, changes));
}

}  // namespace

StepBlock::Sending StepBlock::sending_of(ggml_backend_t backend) {
  ggml_backend_dev_t const device = ggml_backend_get_device(backend);
  return is_cpu(device) || is_rpc(device) ? Sending::kParts : Sending::kWords;
}

StepBlock::StepBlock(ggml_backend_t backend, std::size_t max_tensors, Sending sending)
    : backend_(backend),
      sending_(sending),
      message_(sending == Sending::kParts ? kRpcMessage : kGpuMessage),
      context_(ggml_init({(max_tensors + 1) * ggml_tensor_overhead(), nullptr, true})) {
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
  copy_.resize(of_inputs);
}

void StepBlock::set(const ggml_tensor* tensor, std::span<const std::byte> contents, std::size_t offset) {
  assert(offset + contents.size() <= ggml_nbytes(tensor) && offset % kWord == 0);
  const auto to = static_cast<std::size_t>(static_cast<const std::byte*>(tensor->data) -
                                           static_cast<const std::byte*>(whole_->data)) +
                  offset;
  for (std::size_t line = 0; line < contents.size(); line += kLine) {
    const std::size_t end = std::min(line + kLine, contents.size());
    if (std::memcmp(&contents[line], &copy_[to + line], end - line) == 0) continue;
    for (std::size_t at = line; at < end; at += kWord)
      if (std::memcmp(&contents[at], &copy_[to + at], std::min(kWord, end - at)) != 0)
        changed_.push_back(static_cast<std::int32_t>((to + at) / kWord));
    std::memcpy(&copy_[to + line], &contents[line], end - line);
  }
}

void StepBlock::put(const ggml_tensor* tensor, std::size_t offset, const void* element, std::size_t bytes) {
  const auto to = static_cast<std::size_t>(static_cast<const std::byte*>(tensor->data) -
                                           static_cast<const std::byte*>(whole_->data)) +
                  offset;
  if (std::memcmp(&copy_[to], element, bytes) == 0) return;
  std::memcpy(&copy_[to], element, bytes);
  changed_.push_back(static_cast<std::int32_t>(to / kWord));
}

std::vector<StepBlock::Part> StepBlock::changed_parts() {
  std::ranges::sort(changed_);
  const auto twice = std::ranges::unique(changed_);
  changed_.erase(twice.begin(), twice.end());
  std::vector<Part> parts;
  for (const std::int32_t word : changed_) {
    const std::size_t first = static_cast<std::size_t>(word) * kWord;
    if (parts.empty() || first >= parts.back().end + message_)
      parts.push_back({first, first + kWord});
    else
      parts.back().end = first + kWord;
  }
  return parts;
}

void StepBlock::send() {
  const std::vector<Part> parts = changed_parts();
  std::size_t cost = 0;
  for (const Part& part : parts) cost += message_ + part.end - part.first;
  const std::size_t cost_of_words = kWordsCost * message_ + 2 * kWord * words_for(changed_.size());
  if (sending_ == Sending::kParts || cost <= cost_of_words || !send_words())
    for (const Part& part : parts)
      ggml_backend_tensor_set(whole_, &copy_[part.first], part.first, part.end - part.first);
  changed_.clear();
}

bool StepBlock::send_words() {
  const std::size_t count = words_for(changed_.size());
  if ((count > words_.count || kMaxSlack * count < words_.count) && !make_words(count)) {
    sending_ = Sending::kParts;
    return false;
  }
  changed_.resize(words_.count, changed_.back());  // the last one again and again
  message_of_words_.resize(2 * words_.count * kWord);
  std::memcpy(message_of_words_.data(), changed_.data(), changed_.size() * kWord);
  std::byte* word = message_of_words_.data() + changed_.size() * kWord;
  for (const std::int32_t place : changed_)
    word = std::copy_n(&copy_[static_cast<std::size_t>(place) * kWord], kWord, word);
  ggml_backend_tensor_set(words_.message, message_of_words_.data(), 0, message_of_words_.size());
  if (ggml_backend_graph_compute(backend_, words_.graph) != GGML_STATUS_SUCCESS)
    fail("device {} failed to take a step's inputs", ggml_backend_name(backend_));
  return true;
}

// Words are copied as f32, whatever they are.
bool StepBlock::make_words(std::size_t count) {
  constexpr std::size_t kTensors = 8;
  words_ = {};
  words_.context.reset(
      ggml_init({kTensors * ggml_tensor_overhead() + ggml_graph_overhead_custom(kTensors, false), nullptr, true}));
  if (!words_.context) fail("no memory for a step's inputs");
  ggml_context* c = words_.context.get();
  const auto n = static_cast<std::int64_t>(count);
  words_.message = ggml_new_tensor_1d(c, GGML_TYPE_I32, 2 * n);
  words_.buffer.reset(ggml_backend_alloc_ctx_tensors(c, backend_));
  if (!words_.buffer) return false;
  auto* const base = static_cast<std::byte*>(words_.message->data);
  ggml_tensor* const places = ggml_new_tensor_1d(c, GGML_TYPE_I32, n);
  ggml_tensor* const words = ggml_new_tensor_2d(c, GGML_TYPE_F32, 1, n);
  ggml_tensor* const all = ggml_new_tensor_2d(c, GGML_TYPE_F32, 1, static_cast<std::int64_t>(copy_.size() / kWord));
  bool placed = ggml_backend_tensor_alloc(words_.buffer.get(), places, base) == GGML_STATUS_SUCCESS;
  placed = placed && ggml_backend_tensor_alloc(words_.buffer.get(), words, base + count * kWord) == GGML_STATUS_SUCCESS;
  placed = placed && ggml_backend_tensor_alloc(buffer_.get(), all, whole_->data) == GGML_STATUS_SUCCESS;
  ggml_tensor* const changed = ggml_set_rows(c, all, words, places);
  if (!placed || !ggml_backend_supports_op(backend_, changed)) return false;
  if (ggml_backend_view_init(changed) != GGML_STATUS_SUCCESS) return false;
  words_.graph = ggml_new_graph_custom(c, kTensors, false);
  ggml_build_forward_expand(words_.graph, changed);
  words_.count = count;
  return true;
}

}  // namespace palimpsest
