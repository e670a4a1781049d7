#include "palimpsest/attention/cpu.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <memory>
#include <thread>
#include <vector>

#include "palimpsest/attention/work.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace palimpsest {
namespace {

struct Free {
  void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
};

// Floats at a cache line; grows only.
class Floats {
 public:
  void reserve(std::size_t count) {
    if (count <= size_) return;
    data_.reset(static_cast<float*>(::operator new[](count * sizeof(float), std::align_val_t{64})));
    size_ = count;
  }
  float* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  std::unique_ptr<float[], Free> data_;
  std::size_t size_ = 0;
};

struct alignas(64) Counter {
  std::atomic<int> value{0};
  int add(int n) { return value.fetch_add(n, std::memory_order_acq_rel); }
  void reset() { value.store(0, std::memory_order_release); }
};

// Waits for other threads' units: they were handed out before ours, so their threads are at work (or were put aside
// by the system, which is why we give way in the end).
void wait_for(const Counter& counter, int count) {
  for (int spins = 0; counter.value.load(std::memory_order_acquire) < count; ++spins) {
    if (spins >= 4096) {
      std::this_thread::yield();
      continue;
    }
#if defined(__x86_64__)
    _mm_pause();
#endif
  }
}

void tell(const HeadWork& w) {
  if (w.step->received != nullptr) w.step->received(w.step->context, w.step->layer, w.sequence, w.kv_head);
}

struct ThreadMemory {
  Floats floats;
  UnitMemory unit{};
  std::vector<HeadWork> heads;
};

}  // namespace

struct AttentionScratch::Impl {
  std::vector<ThreadMemory> thread;
  Floats shared;                        // of all heads: HeadWork::partial and what follows
  std::unique_ptr<Counter[]> attended;  // [heads] units done: attends, then weights
  int heads = 0;
  // Units handed out, inserts and attends done, threads that have left; all 0 between two calls.
  Counter next, inserts_done, attends_done, left;
};

AttentionScratch::AttentionScratch() : impl_(new Impl) {}
AttentionScratch::~AttentionScratch() {
  delete impl_;
}

void AttentionScratch::reserve(const AttentionStep& step, int threads) {
  Impl& m = *impl_;
  const int heads = step.sequences * step.shape.kv_heads;
  if (static_cast<std::size_t>(threads) > m.thread.size()) m.thread.resize(static_cast<std::size_t>(threads));
  for (ThreadMemory& t : m.thread) {
    t.floats.reserve(UnitMemory::floats(step.shape));
    t.heads.reserve(static_cast<std::size_t>(heads));
  }
  if (heads > m.heads) {
    m.attended = std::make_unique<Counter[]>(static_cast<std::size_t>(heads));
    m.heads = heads;
  }
  std::size_t floats = 0;
  for (int s = 0; s < step.sequences; ++s)
    for (int h = 0; h < step.shape.kv_heads; ++h) floats += head_work(step, s, h, nullptr).floats;
  m.shared.reserve(floats);
}

std::size_t AttentionScratch::bytes() const {
  std::size_t floats = impl_->shared.size();
  for (const ThreadMemory& t : impl_->thread) floats += t.floats.size();
  return floats * sizeof(float) + static_cast<std::size_t>(impl_->heads) * sizeof(Counter);
}

void attention_cpu(const AttentionStep& step, AttentionScratch& scratch, int thread, int threads) {
  AttentionScratch::Impl& m = *scratch.impl_;
  assert(thread < threads && static_cast<std::size_t>(threads) <= m.thread.size() && "reserve() first");
  ThreadMemory& mine = m.thread[static_cast<std::size_t>(thread)];
  mine.unit.cut(step.shape, mine.floats.data());

  // Every thread makes the same list for itself: cheaper than waiting for one who does.
  mine.heads.clear();
  int inserts = 0, attends = 0, weights = 0;
  std::size_t floats = 0;
  for (int s = 0; s < step.sequences; ++s) {
    for (int h = 0; h < step.shape.kv_heads; ++h) {
      mine.heads.push_back(head_work(step, s, h, m.shared.data() + floats));
      const HeadWork& w = mine.heads.back();
      floats += w.floats;
      inserts += w.insert_units;
      attends += w.attend_units();
      weights += w.weights_units;
    }
  }
  assert(floats <= m.shared.size() && static_cast<int>(mine.heads.size()) <= m.heads && "reserve() first");

  // Units in the order: all inserts, all attends, all weights. `head` follows the units that this thread takes.
  std::size_t head = 0;
  int before = 0;  // units of this kind in heads before `head`
  const auto find = [&](int unit, auto count) {
    while (unit - before >= count(mine.heads[head])) before += count(mine.heads[head++]);
    return unit - before;
  };
  const auto next_kind = [&] { head = 0, before = 0; };

  int unit = m.next.add(1);
  for (; unit < inserts; unit = m.next.add(1)) {
    const int n = find(unit, [](const HeadWork& w) { return w.insert_units; });
    insert_tokens(mine.heads[head], n, mine.unit);
    m.inserts_done.add(1);
  }
  next_kind();
  if (unit < inserts + attends) wait_for(m.inserts_done, inserts);
  for (; unit < inserts + attends; unit = m.next.add(1)) {
    const int n = find(unit - inserts, [](const HeadWork& w) { return w.attend_units(); });
    const HeadWork& w = mine.heads[head];
    // The last queries see most: the longest units go first.
    attend_unit(w, w.query_blocks - 1 - n / w.splits, n % w.splits, mine.unit);
    Counter& attended = m.attended[static_cast<std::size_t>(w.index)];
    if (attended.add(1) == w.attend_units() - 1) {
      attended.reset();
      if (w.splits > 1 || w.kept_queries > 0) join_head(w);
      if (w.kept_queries > 0) tell(w);
    }
    m.attends_done.add(1);
  }
  next_kind();
  if (unit < inserts + attends + weights) wait_for(m.attends_done, attends);
  for (; unit < inserts + attends + weights; unit = m.next.add(1)) {
    const int n = find(unit - inserts - attends, [](const HeadWork& w) { return w.weights_units; });
    const HeadWork& w = mine.heads[head];
    weights_unit(w, n, mine.unit);
    Counter& weighed = m.attended[static_cast<std::size_t>(w.index)];
    if (weighed.add(1) < w.weights_units - 1) continue;
    weighed.reset();
    tell(w);
  }

  if (m.left.add(1) == threads - 1) {
    m.next.reset();
    m.inserts_done.reset();
    m.attends_done.reset();
    m.left.reset();
  }
}

}  // namespace palimpsest
