// Positions of the tokens in a list of slots; kNoPosition for an empty slot. A slot table and the kernels store them in
// 32 bits, relative to a base that advances with the text. Tokens 2^30 or more behind the base saturate; a list sorted
// by slot has their positions:
//
//   slot                0         1   2   3        base 2^30 + 100
//   relative   saturated        -95   -   7
//   saturated  {slot 0: 3}                         positions 3, 2^30 + 5, none, 2^30 + 107
//
// Also wraps a plain array of positions. Reading an entry costs a few instructions.
#pragma once

#include <algorithm>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <ranges>
#include <span>

#include "palimpsest/core/types.h"

namespace palimpsest {

inline constexpr std::int32_t kEmptySlot = INT32_MAX;  // relative position of a slot that holds no token

struct SaturatedToken {
  int slot = 0;
  Position position = 0;
};

class PositionView {
 public:
  static constexpr std::int32_t kSaturated = INT32_MIN / 2;

  PositionView() = default;
  PositionView(std::span<const std::int32_t> relative, Position base, std::span<const SaturatedToken> saturated)
      : relative_(relative.data()), size_(relative.size()), base_(base), saturated_(saturated) {}
  template <std::convertible_to<std::span<const Position>> Array>
  PositionView(const Array& positions)  // a plain array
      : plain_(std::span<const Position>(positions).data()), size_(std::span<const Position>(positions).size()) {}

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Position operator[](std::size_t slot) const {
    if (plain_ != nullptr) return plain_[slot];
    const std::int32_t relative = relative_[slot];
    if (relative == kSaturated) [[unlikely]]
      return saturated_at(slot);
    return relative == kEmptySlot ? kNoPosition : base_ + relative;
  }

  // A slot table's array; nullptr for a plain array.
  const std::int32_t* relative() const { return relative_; }
  Position base() const { return base_; }
  std::span<const SaturatedToken> saturated() const { return saturated_; }  // sorted by slot

  class Iterator;
  Iterator begin() const;
  Iterator end() const;

 private:
  Position saturated_at(std::size_t slot) const {
    return std::ranges::lower_bound(saturated_, static_cast<int>(slot), {}, &SaturatedToken::slot)->position;
  }

  const Position* plain_ = nullptr;
  const std::int32_t* relative_ = nullptr;
  std::size_t size_ = 0;
  Position base_ = 0;
  std::span<const SaturatedToken> saturated_ = {};
};

// May outlive its view: holds a copy, which owns nothing.
class PositionView::Iterator {
 public:
  using value_type = Position;
  using reference = Position;
  using pointer = void;
  using difference_type = std::ptrdiff_t;
  using iterator_category = std::input_iterator_tag;  // because dereferencing returns a value
  using iterator_concept = std::random_access_iterator_tag;

  Iterator() = default;
  Iterator(const PositionView& view, difference_type at) : view_(view), at_(at) {}

  Position operator*() const { return view_[static_cast<std::size_t>(at_)]; }
  Position operator[](difference_type n) const { return view_[static_cast<std::size_t>(at_ + n)]; }
  Iterator& operator++() { return ++at_, *this; }
  Iterator& operator--() { return --at_, *this; }
  Iterator operator++(int) { return {view_, at_++}; }
  Iterator operator--(int) { return {view_, at_--}; }
  Iterator& operator+=(difference_type n) { return at_ += n, *this; }
  Iterator& operator-=(difference_type n) { return at_ -= n, *this; }
  friend Iterator operator+(const Iterator& i, difference_type n) { return {i.view_, i.at_ + n}; }
  friend Iterator operator+(difference_type n, const Iterator& i) { return i + n; }
  friend Iterator operator-(const Iterator& i, difference_type n) { return {i.view_, i.at_ - n}; }
  friend difference_type operator-(const Iterator& a, const Iterator& b) { return a.at_ - b.at_; }
  friend bool operator==(const Iterator& a, const Iterator& b) { return a.at_ == b.at_; }
  friend auto operator<=>(const Iterator& a, const Iterator& b) { return a.at_ <=> b.at_; }

 private:
  PositionView view_;
  difference_type at_ = 0;
};

inline PositionView::Iterator PositionView::begin() const {
  return {*this, 0};
}
inline PositionView::Iterator PositionView::end() const {
  return {*this, static_cast<std::ptrdiff_t>(size_)};
}

}  // namespace palimpsest

template <>
inline constexpr bool std::ranges::enable_borrowed_range<palimpsest::PositionView> = true;
