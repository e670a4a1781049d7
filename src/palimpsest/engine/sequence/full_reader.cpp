#include "palimpsest/engine/sequence/full_reader.h"

#include "palimpsest/core/error.h"
#include "palimpsest/evict/method_plan.h"

namespace palimpsest {
namespace {

CacheOptions options_of(const Decoder& decoder) {
  CacheOptions options = decoder.cache_options();
  options.page_size = 64;
  return options;
}

}  // namespace

WeightRows::WeightRows(const HeadGeometry& geometry)
    : geometry_(geometry), rows_(at(geometry.max_kv_heads())), pointers_(at(geometry.heads())) {}

float* const* WeightRows::of_step(std::size_t slots) {
  for (auto& row : rows_) row.resize(slots);
  for (std::size_t head = 0; head < pointers_.size(); ++head)
    pointers_[head] = rows_[at(geometry_.kv_head_of(static_cast<int>(head)))].data();
  return pointers_.data();
}

void FullReader::check(const Decoder& decoder, std::string_view task) {
  if (!decoder.cache_options().pages)
    fail("{} on the CPU's fast path only: leave out --portable, --device and --rpc", task);
}

FullReader::FullReader(Decoder& decoder, std::string_view task)
    : decoder_((check(decoder, task), decoder)),
      cache_(options_of(decoder)),
      rule_(attention_rule(Method(), decoder.model().hyper().positions())) {}

void FullReader::read(std::span<const TokenId> tokens, const std::function<void(SequenceStep&)>& request) {
  cache_.insert(static_cast<int>(tokens.size()));
  SequenceStep step{.cache = &cache_, .rule = rule_, .tokens = tokens};
  request(step);
  decoder_.step({&step, 1});
}

}  // namespace palimpsest
