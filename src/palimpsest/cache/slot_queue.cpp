#include <algorithm>
#include <bit>
#include <cassert>

#include "palimpsest/cache/slots.h"

namespace palimpsest {

std::size_t SlotQueue::ring_size(std::size_t entries) {
  return entries == 0 ? 0 : std::max<std::size_t>(64, std::bit_ceil(entries));
}

void SlotQueue::shrink() {
  const std::size_t entries = ring_size(static_cast<std::size_t>(size_));
  if (entries < ring_.size()) resize(entries);
}

void SlotQueue::grow() {
  reserve(ring_.size() + 1);
}

void SlotQueue::reserve(std::size_t entries) {
  if (entries > ring_.size()) resize(ring_size(entries));
}

void SlotQueue::resize(std::size_t ring) {
  std::vector<int> other(ring);
  for (int i = 0; i < size_; ++i) other[static_cast<std::size_t>(i)] = (*this)[i];
  ring_ = std::move(other);
  head_ = 0;
}

void SlotQueue::release() {
  std::vector<int>().swap(ring_);
  clear();
}

void SlotQueue::push_back(int slot) {
  if (size_ == static_cast<int>(ring_.size())) grow();
  ring_[static_cast<std::size_t>(wrap(head_ + size_))] = slot;
  ++size_;
}

void SlotQueue::push_front(int slot) {
  if (size_ == static_cast<int>(ring_.size())) grow();
  head_ = head_ == 0 ? static_cast<int>(ring_.size()) - 1 : head_ - 1;
  ring_[static_cast<std::size_t>(head_)] = slot;
  ++size_;
}

int SlotQueue::pop_front() {
  assert(size_ > 0);
  const int slot = ring_[static_cast<std::size_t>(head_)];
  head_ = wrap(head_ + 1);
  --size_;
  return slot;
}

}  // namespace palimpsest
