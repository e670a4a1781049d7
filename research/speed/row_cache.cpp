#include "research/speed/row_cache.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "palimpsest/core/error.h"
#include "research/speed/machine.h"

namespace palimpsest::bench {

void RowCache::Release::operator()(std::byte* p) const {
  mapped > 0 ? void(::munmap(p, mapped)) : std::free(p);
}

// kNewTensor, as in PyTorch: malloc, which returns pages of large tensors to the system and reuses those of small ones.
RowCache::Tensor RowCache::make(std::size_t bytes, Target target) const {
  if (target == Target::kNewTensor) {
    auto* const p = static_cast<std::byte*>(std::aligned_alloc(64, bytes));
    if (p == nullptr) fail("no memory for a tensor of {} MiB", bytes >> 20);
    return Tensor(p, Release{0});
  }
  void* const p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) fail("no memory for a tensor of {} MiB", bytes >> 20);
  ::madvise(p, bytes, MADV_HUGEPAGE);
  return Tensor(static_cast<std::byte*>(p), Release{bytes});
}

RowCache::RowCache(int heads, int tokens, std::size_t row_bytes) : heads_(heads), tokens_(tokens), row_(row_bytes) {
  const std::size_t bytes = static_cast<std::size_t>(heads) * tokens * row_bytes;
  for (Tensor* t : {&tensor_[0], &tensor_[1], &spare_}) {
    *t = make(bytes, Target::kReused);
    std::memset(t->get(), 0, bytes);
  }
}

const std::byte* RowCache::row(int tensor, int head, int token) const {
  return tensor_[tensor].get() + (static_cast<std::size_t>(head) * tokens_ + token) * row_;
}

template <class Body>
void RowCache::each_head(Team& team, const Body& body) const {
  team.run([&](int t) {
    const int first = heads_ * t / team.threads(), last = heads_ * (t + 1) / team.threads();
    for (int h = first; h < last; ++h) body(h);
  });
}

// evict(copy, head, from, to): copies the kept rows of one head to `to`.
template <class Evict>
void RowCache::rebuild(Team& team, const Step& step, Target target, int passes, const Evict& evict) {
  const int remaining = tokens_ - step.victims;
  const std::size_t all = tokens_ * row_, kept = remaining * row_, added = step.victims * row_;
  const auto copy = [&](std::byte* to, const std::byte* from, std::size_t bytes) {
    if (target == Target::kStreamed)
      stream_copy(to, from, bytes);
    else
      std::memcpy(to, from, bytes);
  };
  const bool allocates = target == Target::kNewTensor || target == Target::kNewTensorHuge;
  for (int i = 0; i < 2; ++i) {
    const std::byte* source = tensor_[i].get();
    std::size_t source_head = all;
    Tensor survivors(nullptr, Release{0});
    if (passes == 2) {
      survivors = make(heads_ * kept, target);
      each_head(team, [&](int h) { evict(copy, h, source + h * source_head, survivors.get() + h * kept); });
      tensor_[i].reset();
      source = survivors.get(), source_head = kept;
    }
    Tensor next = allocates ? make(heads_ * all, target) : std::move(spare_);
    each_head(team, [&](int h) {
      std::byte* const to = next.get() + h * all;
      if (passes == 2)
        copy(to, source + h * kept, kept);
      else
        evict(copy, h, source + h * source_head, to);
      copy(to + kept, step.new_rows[i] + h * added, added);
    });
    if (!allocates) spare_ = std::move(tensor_[i]);
    tensor_[i] = std::move(next);
  }
}

void RowCache::shift(Team& team, const Step& step, Target target, int passes) {
  const std::size_t sinks = step.sinks * row_, evicted = step.victims * row_, rest = tokens_ * row_ - sinks - evicted;
  rebuild(team, step, target, passes, [&](const auto& copy, int, const std::byte* from, std::byte* to) {
    copy(to, from, sinks);
    copy(to + sinks, from + sinks + evicted, rest);
  });
}

void RowCache::gather(Team& team, const Step& step, Target target, int passes) {
  const int remaining = tokens_ - step.victims;
  rebuild(team, step, target, passes, [&](const auto& copy, int head, const std::byte* from, std::byte* to) {
    const int* const kept = step.kept + static_cast<std::size_t>(head) * remaining;
    for (int i = 0; i < remaining;) {  // copies adjacent rows at once
      int n = 1;
      while (i + n < remaining && kept[i + n] == kept[i] + n) ++n;
      copy(to + i * row_, from + kept[i] * row_, n * row_);
      i += n;
    }
  });
}

void RowCache::slide(Team& team, const Step& step) {
  const std::size_t all = tokens_ * row_, sinks = step.sinks * row_, evicted = step.victims * row_;
  for (int i = 0; i < 2; ++i)
    each_head(team, [&](int h) {
      std::byte* const head = tensor_[i].get() + h * all;
      std::memmove(head + sinks, head + sinks + evicted, all - sinks - evicted);
      std::memcpy(head + all - evicted, step.new_rows[i] + h * evicted, evicted);
    });
}

void RowCache::overwrite(Team& team, const Step& step) {
  each_head(team, [&](int h) {
    for (int i = 0; i < 2; ++i) {
      std::byte* const head = tensor_[i].get() + h * tokens_ * row_;
      const std::byte* from = step.new_rows[i] + static_cast<std::size_t>(h) * step.victims * row_;
      const int* const slot = step.slots + static_cast<std::size_t>(h) * step.victims;
      for (int v = 0; v < step.victims; ++v, from += row_)
        std::memcpy(head + (slot[v] + moved_) % tokens_ * row_, from, row_);
    }
  });
  moved_ = (moved_ + step.victims) % tokens_;
}

}  // namespace palimpsest::bench
