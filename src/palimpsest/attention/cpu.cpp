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

enum Phase { kInsert, kRotate, kAttend, kWeigh, kPhases };

int units_of(const HeadWork& w, int phase) {
  switch (phase) {
    case kInsert:
      return w.insert_units;
    case kRotate:
      return w.rotate_units;
    case kAttend:
      return w.whole ? 1 : w.attend_units();
    default:
      return w.weights_units;
  }
}

}  // namespace

// Where heads have their arrays. In a decode step (attends only) few heads are at work at a time, so later heads take
// the places of finished ones: what they write then stays in the caches, however many heads there are. A thread takes
// whole heads, in a place of its own, but for the last few: their units go to all threads, so that all end together.
struct AttentionScratch::Impl {
  std::vector<ThreadMemory> thread;
  Floats shared;                        // of all heads or places: HeadWork::partial and what follows
  std::unique_ptr<Counter[]> attended;  // [heads] units done: attends, then weights
  std::unique_ptr<Counter[]> finished;  // [places] heads done there
  int heads = 0;
  // Units handed out, units done, threads that have left; all 0 between two calls, as the above.
  Counter next, done[kPhases], left;

  struct Listed {
    int units[kPhases] = {};
    bool by_turns = false;
    std::size_t place = 0, floats = 0;  // of one place, of all that the step needs
  };
  int threads() const { return static_cast<int>(thread.size()); }
  int places() const { return threads() + 1; }  // for heads that are not whole
  float* own_place(const Listed& l, int t) const {
    return shared.data() + static_cast<std::size_t>(places() + t) * l.place;
  }
  // Lists the heads of a step and places those that are not whole.
  Listed list(const AttentionStep& step, std::vector<HeadWork>& list) const;
};

AttentionScratch::Impl::Listed AttentionScratch::Impl::list(const AttentionStep& step,
                                                            std::vector<HeadWork>& list) const {
  list.clear();
  Listed l;
  bool none_empty = true;
  for (int s = 0; s < step.sequences; ++s) {
    for (int h = 0; h < step.shape.kv_heads; ++h) {
      list.push_back(head_work(step, s, h));
      for (int p = 0; p < kPhases; ++p) l.units[p] += units_of(list.back(), p);
      l.place = std::max(l.place, list.back().floats);
      none_empty = none_empty && list.back().attend_units() > 0;
    }
  }
  l.by_turns = none_empty && l.units[kRotate] == 0 && l.units[kWeigh] == 0;
  int turns = 0;
  for (HeadWork& w : list) {
    w.whole = l.by_turns && w.query_blocks == 1 && w.index + threads() < static_cast<int>(list.size());
    if (w.whole) {
      l.units[kAttend] -= w.attend_units() - 1;
      l.floats = static_cast<std::size_t>(places() + threads()) * l.place;
      continue;
    }
    w.turn = turns++;
    const std::size_t at = l.by_turns ? static_cast<std::size_t>(w.turn % places()) * l.place : l.floats;
    if (shared.data() != nullptr) w.place(shared.data() + at);
    l.floats = std::max(l.floats, at + (l.by_turns ? l.place : w.floats));
  }
  return l;
}

AttentionScratch::AttentionScratch() : impl_(new Impl) {}
AttentionScratch::~AttentionScratch() {
  delete impl_;
}

void AttentionScratch::reserve(const AttentionStep& step, int threads) {
  Impl& m = *impl_;
  const int heads = step.sequences * step.shape.kv_heads;
  if (static_cast<std::size_t>(threads) > m.thread.size()) {
    auto finished = std::make_unique<Counter[]>(static_cast<std::size_t>(threads) + 1);  // places(); may throw
    m.thread.resize(static_cast<std::size_t>(threads));
    m.finished = std::move(finished);
  }
  for (ThreadMemory& t : m.thread) {
    t.floats.reserve(UnitMemory::floats(step.shape));
    t.heads.reserve(static_cast<std::size_t>(heads));
  }
  if (heads > m.heads) {
    m.attended = std::make_unique<Counter[]>(static_cast<std::size_t>(heads));
    m.heads = heads;
  }
  m.shared.reserve(m.list(step, m.thread[0].heads).floats);
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
  const AttentionScratch::Impl::Listed l = m.list(step, mine.heads);
  const auto& units = l.units;
  assert(l.floats <= m.shared.size() && static_cast<int>(mine.heads.size()) <= m.heads && "reserve() first");

  int first = 0;  // of a phase's units
  int unit = m.next.add(1);
  for (int phase = 0; phase < kPhases; first += units[phase++]) {
    if (unit >= first + units[phase]) continue;
    for (int earlier = 0; earlier < phase; ++earlier) wait_for(m.done[earlier], units[earlier]);
    std::size_t head = 0;
    int before = first;  // units before those of `head`, which follows the units that this thread takes
    for (; unit < first + units[phase]; unit = m.next.add(1)) {
      while (unit - before >= units_of(mine.heads[head], phase)) before += units_of(mine.heads[head++], phase);
      HeadWork& w = mine.heads[head];
      const int n = unit - before;
      Counter& attended = m.attended[static_cast<std::size_t>(w.index)];
      Counter& finished = m.finished[static_cast<std::size_t>(w.turn % m.places())];
      switch (phase) {
        case kInsert:
          insert_tokens(w, n, mine.unit);
          break;
        case kRotate:
          rotate_keys(w, n, mine.unit);
          break;
        case kAttend:
          if (w.whole)
            w.place(m.own_place(l, thread));
          else if (l.by_turns)
            wait_for(finished, w.turn / m.places());
          // The last queries see most: the longest units go first.
          for (int i = n, end = w.whole ? w.attend_units() : n + 1; i < end; ++i)
            attend_unit(w, w.query_blocks - 1 - i / w.splits, i % w.splits, mine.unit);
          if (!w.whole && attended.add(1) < w.attend_units() - 1) break;
          attended.reset();
          if (w.splits > 1 || w.kept_queries > 0 || w.merged != nullptr) join_head(w);
          if (w.kept_queries > 0 || (w.merged != nullptr && w.received != nullptr)) tell(w);
          if (l.by_turns && !w.whole) finished.add(1);
          break;
        case kWeigh:
          weights_unit(w, n, mine.unit);
          if (attended.add(1) < w.weights_units - 1) break;
          attended.reset();
          tell(w);
          break;
      }
      m.done[phase].add(1);
    }
  }

  if (m.left.add(1) == threads - 1) {
    m.next.reset();
    for (Counter& done : m.done) done.reset();
    for (int p = 0; p < m.places(); ++p) m.finished[static_cast<std::size_t>(p)].reset();
    m.left.reset();
  }
}

std::size_t rank_tile_floats(const AttentionShape& shape, const SlotsView& slots) {
  return static_cast<std::size_t>(slots.slots) * static_cast<std::size_t>(shape.rope_dims);
}

}  // namespace palimpsest
