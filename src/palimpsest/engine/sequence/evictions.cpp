#include "palimpsest/engine/sequence/evictions.h"

#include <algorithm>
#include <chrono>

#include "palimpsest/attention/read_rows.h"
#include "palimpsest/core/error.h"
#include "palimpsest/engine/mechanism/merge.h"
#include "palimpsest/engine/mechanism/query_statistics.h"
#include "palimpsest/engine/mechanism/rerotate.h"

namespace palimpsest {
namespace {

// The ridges of mechanism match. Its reference queries are few, and of one place in the text: with ridges of 1e-2 they
// are fitted well, and other queries worse than by dropping alone (research/results/match.md).
constexpr FitOptions kFit{.bias_ridge = 10, .value_ridge = 1};

// SmolLM2: the KL divergence from keys that were not moved hardly grows up to here (docs/results/edits.md, "Moved
// keys"); with a higher limit, `edits_bench --moves 64` gave twice as much at 16 moves and a lost text at 64.
constexpr int kMovesOfFourBits = 8;

// Of keys that are rounded at each move. q3 loses with two roundings what q4 does with nine, q2 more with the first.
int max_key_moves(const KvFormat& keys) {
  return keys.bits() > 4 ? kMovesOfFourBits : keys.bits() > 3 ? 1 : 0;
}

class Timer {
 public:
  explicit Timer(double& ms) : ms_(ms) {}
  ~Timer() { ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  double& ms_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A head's keys and values, from pages or a device; empty: not asked for.
void read_rows(const Cache& cache, int head, std::span<float> keys, std::span<float> values) {
  if (CacheStorage* const device = cache.storage())
    return device->read_head(head, cache.table(head).slots(), keys, values);
  const LayerView view = cache.view(cache.geometry().layer_of(head));
  if (!keys.empty()) read_keys(view, cache.head(head), keys.data());
  if (!values.empty()) read_values(view, cache.head(head), values.data());
}

}  // namespace

Evictions::Evictions(const Hyperparameters& hyper, const MethodPlan& plan, Cache& cache, Evictor& evictor,
                     std::shared_ptr<Workers> workers)
    : plan_(plan),
      cache_(cache),
      evictor_(evictor),
      workers_(std::move(workers)),
      scores_(hyper),
      merges_(plan.method().how().merges),
      changes_kept_(plan.method().how().changes_kept()),
      drops_apart_(changes_kept_ || !plan.method().how().reuses_slots) {
  if (!plan.rule().rotated_at_rank && !plan.signals().query_moments &&
      !(changes_kept_ && plan.rule().rotation == Rotation::kOnWrite))
    return;
  for (int i = 0; i < hyper.layers; ++i) {
    rope_of_.push_back(static_cast<std::size_t>(hyper.rope_of(i)));
    frequencies_.emplace_back(hyper.rope_table(hyper.rope_of(i)));
  }
}

void Evictions::decide(int coming, Phase phase, TableRange tables) {
  const Timer timer(times_.evict_ms);
  // Tokens outside a layer's window are dropped first: the policy need not score them.
  const Victims& outside = evictor_.out_of_window(cache_, coming, phase);
  if (plan_.method().splits_at_decisions() && compact(coming, phase)) evictor_.out_of_window(cache_, coming, phase);
  if (!outside.empty() && (drops_apart_ || evictor_.decides_beside(cache_, coming, phase)))
    drop_and_insert({.tables = tables});
  if (plan_.signals().at_decision()) score_tables(coming, phase, tables);
  if (!evictor_.plan(cache_, coming, phase, tables).empty() && drops_apart_) drop_and_insert({.tables = tables});
}

int Evictions::room_for_drafts() const {
  int room = evictor_.room_for_out_of_window(cache_);
  for (int t = 0; t < cache_.tables(); ++t) {
    // A page that this step's drop empties is given back if one token comes: drafts would take its slots instead.
    if (evictor_.dropped(t) > 0) return 1;
    const int free = cache_.table(t).free_slots();
    room = std::min(room, free == 0 ? cache_.options().page_size : free);
  }
  return room;
}

void Evictions::commit(int insert, Position at, TableRange tables) {
  const CacheChange change = {.insert = insert, .at = at, .tables = tables};
  if (evictor_.outside().empty() && evictor_.victims().empty()) {
    if (insert > 0) cache_.prepare(change).commit();
    evictor_.committed();
    return;
  }
  const Timer timer(times_.evict_ms);
  drop_and_insert(change);
}

void Evictions::drop_and_insert(CacheChange change) {
  const Victims &outside = evictor_.outside(), &victims = evictor_.victims();
  if (changes_kept_) cache_.make_exclusive();
  const auto drop_of = [](const Victims& of) {
    return of.empty() ? std::span<const std::vector<int>>() : std::span<const std::vector<int>>(of.drop);
  };
  change.drop = drop_of(victims);
  change.out_of_window = drop_of(outside);
  Transaction transaction = cache_.prepare(change);
  if (memory_log_ != nullptr) memory_log_->begin_drop(cache_, outside, victims);
  if (merges_ && !outside.empty()) drop_merged(cache_, outside);  // no later query sees them: they are not merged
  if (merges_ && !victims.empty())
    merge_victims(cache_, victims, plan_.method(), evictor_, frequencies_, workers_.get(), interrupt_.get());
  if (plan_.signals().references && !victims.empty())
    match_kept(cache_, victims, *plan_.signals().references, scores_, frequencies_, workers_.get(), interrupt_.get(),
               kFit);
  if (recall_ != nullptr && !victims.empty()) put_into_tier(victims);
  transaction.commit(workers_.get());
  if (memory_log_ != nullptr) memory_log_->end_drop(cache_);
  if (plan_.rule().rotated_at_rank) rerotate_moved(cache_, frequencies_, workers_.get());
  if (!victims.empty()) ++times_.evictions;
  evictor_.committed();
}

// All memory first: then nothing can fail.
void Evictions::put_into_tier(const Victims& victims) {
  const int heads = cache_.geometry().heads();
  const auto gone = [&](int head) -> std::span<const int> {
    const int table = cache_.table_of(head);
    if (cache_.window(table) != INT32_MAX || !plan_.recalls(head)) return {};  // layers with a window recall nothing
    return victims.drop[static_cast<std::size_t>(table)];
  };
  for (int head = 0; head < heads; ++head) recall_->reserve(head, static_cast<int>(std::ssize(gone(head))));
  const auto put = [&](int head) {
    const LayerView view = cache_.view(cache_.geometry().layer_of(head));
    const HeadPages& pages = cache_.head(head);
    const SlotTable& table = cache_.table(cache_.table_of(head));
    thread_local std::vector<float> key, value;
    key.resize(static_cast<std::size_t>(view.head_dim));
    value.resize(static_cast<std::size_t>(view.value_dim));
    for (const int slot : gone(head)) {
      const std::byte* const page = pages.page[slot / view.page_size];
      load_key(view, page, slot % view.page_size, key.data());
      load_value(view, page, slot % view.page_size, value.data());
      recall_->append(head, table.position(slot), key.data(), value.data());
    }
  };
  if (workers_ != nullptr)
    workers_->run(heads, put);
  else
    for (int head = 0; head < heads; ++head) put(head);
}

void Evictions::edit(PositionRange removed, Position by, const Hyperparameters& hyper) {
  CacheChange change = {.drop_range = removed};
  if (by != 0) change.shift_range = {removed.last, kEndOfText}, change.shift_by = by;
  change_text(change, hyper);
}

void Evictions::shift(PositionRange range, Position by, const Hyperparameters& hyper) {
  change_text({.shift_range = range, .shift_by = by}, hyper);
}

void Evictions::change_text(const CacheChange& change, const Hyperparameters& hyper) {
  cache_.fetch_scores();
  const bool rotates = change.shift_by != 0 && !change.shift_range.empty() &&
                       plan_.rule().rotation == Rotation::kOnWrite && hyper.rope.kind != RopeKind::kNone;
  const KvFormat& keys = kv_format(cache_.geometry().layer_geometry(0).key_type);
  const bool rounds = rotates && keys.bits() < 8;
  const int moves = max_key_moves(keys);
  if (rounds && moves == 0)
    fail("keys of type {} cannot be moved, which would round them again: use mode exact, or --cache-type q8_0",
         keys.name);
  if (rounds && cache_.key_moves() >= moves)
    fail("keys of type {} were moved {} time{}, which rounds them each time: use mode exact, or --cache-type q8_0",
         keys.name, moves, moves == 1 ? "" : "s");
  if (rotates) cache_.make_exclusive();
  cache_.prepare(change).commit(workers_.get());
  const PositionRange range = change.shift_range;
  const Position last = range.last == kEndOfText ? kEndOfText : range.last + change.shift_by;
  if (rotates) rotate_shifted(cache_, hyper, {range.first + change.shift_by, last}, change.shift_by, workers_.get());
  if (rounds) cache_.count_key_move();
  evictor_.invalidate(cache_);
  restart_memory_log();
}

void Evictions::defragment(TableRange tables) {
  if (cache_.defragment(0, workers_.get(), tables)) evictor_.invalidate(cache_);
}

// Before heads are compared: one that lost budget in the last decision gives its pages back. Whether any did.
bool Evictions::compact(int coming, Phase phase) {
  std::vector<int> tables;
  const bool holes = !plan_.method().how().moves_rows;
  for (int t = 0; holes && t < cache_.tables(); ++t)
    if (cache_.table(t).free_slots() >= cache_.options().page_size && evictor_.needs_eviction(cache_, t, coming, phase))
      tables.push_back(t);
  for (const int t : tables) defragment({t, t + 1});
  return !tables.empty();
}

void Evictions::set_memory_log(std::shared_ptr<MemoryLog> log) {
  memory_log_ = std::move(log);
  restart_memory_log();
}

void Evictions::restart_memory_log() {
  if (memory_log_ != nullptr) memory_log_->restart(cache_);
}

void Evictions::rewind_memory_log(Position position) {
  if (memory_log_ != nullptr) memory_log_->rewind(position);
}

void Evictions::score_tables(int coming, Phase phase, TableRange tables) {
  const Signals& signals = plan_.signals();
  tables.last = std::min(tables.last, cache_.tables());
  bool any = false;  // most steps evict nothing: the workers are not woken for them
  for (int t = tables.first; !any && t < tables.last; ++t) any = evictor_.needs_eviction(cache_, t, coming, phase);
  if (!any) return;
  std::vector<std::vector<float>> rotations;  // [RoPE tables] mean rotation of the next queries
  for (std::size_t layer = 0; signals.query_moments && layer < rope_of_.size(); ++layer) {
    rotations.resize(std::max(rotations.size(), rope_of_[layer] + 1));
    if (rotations[rope_of_[layer]].empty())
      rotations[rope_of_[layer]] = mean_rotation(frequencies_[layer], cache_.next());
  }
  const auto score_table = [&](int index) {
    const int t = tables.first + index;
    if (!evictor_.needs_eviction(cache_, t, coming, phase)) return;
    if (interrupt_ != nullptr) interrupt_->check();
    const HeadGeometry& geometry = cache_.geometry();  // a table is a head
    const int layer = geometry.layer_of(t), slots = cache_.table(t).slots();
    thread_local std::vector<float> keys, values;
    const auto rows_of = [slots](std::vector<float>& rows, int width) {
      rows.resize(static_cast<std::size_t>(slots) * static_cast<std::size_t>(width));
      return Rows{rows.data(), slots, width, width};
    };
    Rows k, v;
    ExpectedQueries queries;
    if (signals.query_moments) {
      thread_local std::vector<float> rotated;
      const LayerGeometry& g = geometry.layer(layer);
      const auto at = static_cast<std::size_t>(layer);
      queries = expected_queries(query_statistics(cache_, t), g.group(), g.key_width, scores_.scale,
                                 frequencies_[at].kind(), rotations[rope_of_[at]], rotated);
    }
    if ((signals.keys || signals.values) && evictor_.scorer().reads_rows(cache_, t)) {
      const LayerGeometry& g = geometry.layer(layer);
      keys.clear(), values.clear();
      if (signals.keys) k = rows_of(keys, g.key_width);
      if (signals.values) v = rows_of(values, g.value_width);
      read_rows(cache_, t, keys, values);
    }
    evictor_.score_table(cache_, t, k, v, coming, phase, queries, interrupt_.get());
  };
  if (workers_ != nullptr && cache_.storage() == nullptr)  // a device is read by one thread
    workers_->run(tables.last - tables.first, score_table);
  else
    for (int i = 0; i < tables.last - tables.first; ++i) score_table(i);
}

}  // namespace palimpsest
