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

// Waits for other threads' units. They were handed out before ours, so their threads are running, or preempted: after
// some spins, yield.
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

void report_weights(const HeadStep& w) {
  if (w.step->on_weights != nullptr) w.step->on_weights(w.step->context, w.step->layer, w.sequence, w.kv_head);
}

// All units of a head whose drafts have no slots, and no patches yet. With weights each query waits for the one before,
// as in steps of their own; without (policies by new keys) all attend together.
void attend_in_order(HeadStep& w, const UnitMemory& memory) {
  const LayerStep& step = *w.step;
  const int all = w.tokens->count, count = w.kept_queries > 0 ? 1 : all;
  const auto find = [&](int query) { w.patches = step.find_patches(step.context, step, w.sequence, w.kv_head, query); };
  for (int first = 0; first < all; first += count) {
    w.first_query = first;
    w.queries = count;
    for (int query = std::max(1, first); query < first + count; ++query) find(query);
    for (int split = 0; split < w.splits; ++split) attend_unit(w, 0, split, memory);
    if (w.splits > 1 || w.kept_queries > 0) reduce_head(w);
  }
  if (w.kept_queries > 0) report_weights(w);
}

struct ThreadMemory {
  Floats floats;
  UnitMemory unit{};
};

enum Phase { kInsert, kRotate, kAttend, kWeigh, kPhases };

int units_of(const HeadPlan& w, int phase) {
  switch (phase) {
    case kInsert:
      return w.insert_units;
    case kRotate:
      return w.rotate_units;
    case kAttend:
      return w.whole || w.in_order ? 1 : w.attend_units();
    default:
      return w.weights_units;
  }
}

// What a plan depends on besides the counts of its heads.
struct PlanShape {
  int sequences, kv_heads, group, head_dim, value_dim, threads;
  bool alibi;
  CacheType key_type;
  bool operator==(const PlanShape&) const = default;
};

PlanShape shape_of(const LayerStep& step, int threads) {
  const AttentionShape& s = step.shape;
  return {.sequences = step.sequences,
          .kv_heads = s.kv_heads,
          .group = s.group(),
          .head_dim = s.head_dim,
          .value_dim = s.value_dim,
          .threads = threads,
          .alibi = s.alibi != nullptr,
          .key_type = step.cache[0].key_type};
}

// How a layer's heads are cut into units and where their arrays are. Layers with equal counts share a plan; a step with
// equal counts reuses the last one's.
struct Plan {
  PlanShape shape{};
  std::vector<HeadCounts> counts;
  std::vector<HeadPlan> heads;
  int units[kPhases] = {};
  bool interleaved = false;
  std::size_t arena = 0, floats = 0;  // of one arena; of the whole step

  bool fits(const LayerStep& step, const PlanShape& of) const {
    if (counts.empty() || !(shape == of)) return false;
    std::size_t i = 0;
    for (int s = 0; s < step.sequences; ++s)
      for (int h = 0; h < step.shape.kv_heads; ++h)
        if (!(counts[i++] == counts_of(step, s, h))) return false;
    return true;
  }
  void make(const LayerStep& step, const PlanShape& of, int arenas);
};

std::size_t floats_of(const LayerStep& step, const HeadPlan& plan) {
  HeadStep w = head_step(step, plan);
  w.set_arena(nullptr);
  return w.floats;
}

void Plan::make(const LayerStep& step, const PlanShape& of, int arenas) {
  *this = Plan{of, std::move(counts), std::move(heads)};
  counts.clear();  // fits nothing, if there is no memory for the new ones
  heads.clear();
  const auto all = static_cast<std::size_t>(step.sequences) * static_cast<std::size_t>(step.shape.kv_heads);
  heads.reserve(all);
  counts.reserve(all);
  bool all_attend = true;
  for (int s = 0; s < step.sequences; ++s) {
    for (int h = 0; h < step.shape.kv_heads; ++h) {
      counts.push_back(counts_of(step, s, h));
      heads.push_back(plan_head(step, s, h));
      for (int p = 0; p < kPhases; ++p) units[p] += units_of(heads.back(), p);
      arena = std::max(arena, floats_of(step, heads.back()));
      all_attend = all_attend && heads.back().attend_units() > 0;
    }
  }
  interleaved = all_attend && units[kRotate] == 0 && units[kWeigh] == 0;
  int next_order = 0;
  for (HeadPlan& p : heads) {
    const bool last = p.index + of.threads >= static_cast<int>(heads.size());
    const int units_before = units_of(p, kAttend);
    p.whole = interleaved && p.query_blocks == 1 && (!last || p.in_order);
    if (p.whole) {
      units[kAttend] += units_of(p, kAttend) - units_before;
      floats = static_cast<std::size_t>(arenas + of.threads) * arena;
      continue;
    }
    p.order = next_order++;
    p.offset = interleaved ? static_cast<std::size_t>(p.order % arenas) * arena : floats;
    floats = std::max(floats, p.offset + (interleaved ? arena : floats_of(step, p)));
  }
}

}  // namespace

// Memory of the heads' arrays. In a decode step (attend units only) few heads are in progress at a time, so later heads
// reuse the arenas of finished ones: the arrays stay in the CPU caches, however many heads there are. A thread takes
// whole heads, with an arena of its own, except for the last few: their units are split among all threads, to balance
// the end.
struct AttentionScratch::Impl {
  std::vector<ThreadMemory> thread;
  Floats shared;                        // all arenas or all heads' arrays: HeadStep::partial and what follows
  std::unique_ptr<Counter[]> attended;  // [heads] units done: attends, then weights
  std::unique_ptr<Counter[]> finished;  // [arenas] heads done in each
  int heads = 0;
  // Units handed out, units done, threads that have returned; all 0 between two calls, like the counters above.
  Counter next, done[kPhases], returned;

  std::vector<Plan> plans;   // [layers]; unused where a layer shares an earlier layer's plan
  std::vector<int> plan_of;  // [layers] index of the plan that the layer uses

  int threads() const { return static_cast<int>(thread.size()); }
  int arenas() const { return threads() + 1; }  // for heads that are not whole
  const Plan& plan(int layer) const {
    return plans[static_cast<std::size_t>(plan_of[static_cast<std::size_t>(layer)])];
  }
  void plan(const LayerStep& step);
  // Head `index` of the plan, with its arrays.
  HeadStep work(const LayerStep& step, const Plan& plan, std::size_t index, int t) const {
    HeadStep w = head_step(step, plan.heads[index]);
    w.set_arena(shared.data() +
                (w.whole ? static_cast<std::size_t>(arenas() + t) * plan.arena : plan.heads[index].offset));
    return w;
  }
};

// A layer that needs its own plan builds it at its own index. No earlier layer uses that index; later layers check
// again in their own call.
void AttentionScratch::Impl::plan(const LayerStep& step) {
  const auto layer = static_cast<std::size_t>(step.layer);
  if (layer >= plans.size()) plans.resize(layer + 1);
  while (plan_of.size() < plans.size()) plan_of.push_back(static_cast<int>(plan_of.size()));
  const PlanShape shape = shape_of(step, threads());
  const auto fits = [&](std::size_t l) { return plans[static_cast<std::size_t>(plan_of[l])].fits(step, shape); };
  if (layer > 0 && fits(layer - 1)) {
    plan_of[layer] = plan_of[layer - 1];
  } else if (!fits(layer)) {
    plan_of[layer] = step.layer;
    plans[layer].make(step, shape, arenas());
  }
}

AttentionScratch::AttentionScratch() : impl_(new Impl) {}
AttentionScratch::~AttentionScratch() {
  delete impl_;
}

void AttentionScratch::reserve(const LayerStep& step, int threads) {
  Impl& m = *impl_;
  const int heads = step.sequences * step.shape.kv_heads;
  if (static_cast<std::size_t>(threads) > m.thread.size()) {
    auto finished = std::make_unique<Counter[]>(static_cast<std::size_t>(threads) + 1);
    m.thread.resize(static_cast<std::size_t>(threads));
    m.finished = std::move(finished);
  }
  for (ThreadMemory& t : m.thread) t.floats.reserve(UnitMemory::floats(step.shape));
  if (heads > m.heads) {
    m.attended = std::make_unique<Counter[]>(static_cast<std::size_t>(heads));
    m.heads = heads;
  }
  m.plan(step);
  m.shared.reserve(m.plan(step.layer).floats);
}

std::size_t AttentionScratch::bytes() const {
  std::size_t floats = impl_->shared.size();
  for (const ThreadMemory& t : impl_->thread) floats += t.floats.size();
  return floats * sizeof(float) + static_cast<std::size_t>(impl_->heads) * sizeof(Counter);
}

void attention_cpu(const LayerStep& step, AttentionScratch& scratch, int thread, int threads) {
  AttentionScratch::Impl& m = *scratch.impl_;
  assert(thread < threads && static_cast<std::size_t>(threads) <= m.thread.size() && "reserve() first");
  ThreadMemory& mine = m.thread[static_cast<std::size_t>(thread)];
  mine.unit.cut(step.shape, mine.floats.data());

  assert(static_cast<std::size_t>(step.layer) < m.plan_of.size() && "reserve() first");
  const Plan& plan = m.plan(step.layer);
  const auto& units = plan.units;
  assert(plan.fits(step, shape_of(step, m.threads())) && plan.floats <= m.shared.size() && "reserve() first");

  int first = 0;  // of the phase's units
  int unit = m.next.add(1);
  for (int phase = 0; phase < kPhases; first += units[phase++]) {
    if (unit >= first + units[phase]) continue;
    for (int earlier = 0; earlier < phase; ++earlier) wait_for(m.done[earlier], units[earlier]);
    std::size_t head = 0, current = SIZE_MAX;
    int before = first;  // units before those of `head`, which follows the units that this thread takes
    HeadStep w{};
    for (; unit < first + units[phase]; unit = m.next.add(1)) {
      while (unit - before >= units_of(plan.heads[head], phase)) before += units_of(plan.heads[head++], phase);
      if (current != head) w = m.work(step, plan, head, thread);
      current = head;
      const int n = unit - before;
      Counter& attended = m.attended[static_cast<std::size_t>(w.index)];
      Counter& finished = m.finished[static_cast<std::size_t>(w.order % m.arenas())];
      switch (phase) {
        case kInsert:
          insert_tokens(w, n, mine.unit);
          break;
        case kRotate:
          rotate_keys(w, n, mine.unit);
          break;
        case kAttend:
          if (w.in_order) {
            attend_in_order(w, mine.unit);
            break;
          }
          if (!w.whole && plan.interleaved) wait_for(finished, w.order / m.arenas());
          // The last queries see the most slots: the longest units go first.
          for (int i = n, end = w.whole ? w.attend_units() : n + 1; i < end; ++i)
            attend_unit(w, w.query_blocks - 1 - i / w.splits, i % w.splits, mine.unit);
          if (!w.whole && attended.add(1) < w.attend_units() - 1) break;
          attended.reset();
          if (w.splits > 1 || w.kept_queries > 0 || w.merged != nullptr) reduce_head(w);
          if (w.kept_queries > 0 || (w.merged != nullptr && w.received != nullptr)) report_weights(w);
          if (plan.interleaved && !w.whole) finished.add(1);
          break;
        case kWeigh:
          weights_unit(w, n, mine.unit);
          if (attended.add(1) < w.weights_units - 1) break;
          attended.reset();
          report_weights(w);
          break;
      }
      m.done[phase].add(1);
    }
  }

  if (m.returned.add(1) == threads - 1) {
    m.next.reset();
    for (Counter& done : m.done) done.reset();
    for (int p = 0; p < m.arenas(); ++p) m.finished[static_cast<std::size_t>(p)].reset();
    m.returned.reset();
  }
}

std::size_t rank_tile_floats(const AttentionShape& shape, const SlotsView& slots) {
  return static_cast<std::size_t>(slots.slots) * static_cast<std::size_t>(shape.rope_dims);
}

}  // namespace palimpsest
