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
