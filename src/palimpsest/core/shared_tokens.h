// Tokens that do not change. Copies share them: the answers to one prompt hold it once.
#pragma once

#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

class SharedTokens {
 public:
  SharedTokens() = default;
  SharedTokens(std::vector<TokenId> tokens)  // NOLINT: implicit
      : tokens_(std::make_shared<const std::vector<TokenId>>(std::move(tokens))) {}
  SharedTokens(std::initializer_list<TokenId> tokens) : SharedTokens(std::vector(tokens)) {}

  const TokenId* data() const { return tokens_ == nullptr ? nullptr : tokens_->data(); }
  std::size_t size() const { return tokens_ == nullptr ? 0 : tokens_->size(); }
  bool empty() const { return size() == 0; }
  const TokenId* begin() const { return data(); }
  const TokenId* end() const { return data() + size(); }

 private:
  std::shared_ptr<const std::vector<TokenId>> tokens_;
};

}  // namespace palimpsest
