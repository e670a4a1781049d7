// The changes of a sequence's cache. A step is one change: what it drops, and the slots of its tokens.
//
//   decide()   evict/: tokens outside the layers' windows, and the policy's victims, with room for the coming tokens
//   commit()   Cache::prepare(drops and inserts), which may throw and changes nothing; then its commit, which cannot
//
// Drops are a change of their own, which decide() commits, with three mechanisms: `merge` and `match`, which change
// kept tokens before their victims go, and `append`, whose empty pages are the next ones to be mapped. Tokens outside a
// window are, where the policy decides among the others of the same table.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/cache/recall_tier.h"
#include "palimpsest/core/interrupt.h"
#include "palimpsest/core/rope.h"
#include "palimpsest/core/workers.h"
#include "palimpsest/engine/mechanism/match.h"
#include "palimpsest/engine/sequence/memory_log.h"
#include "palimpsest/evict/evictor.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

struct EvictionTimes {      // since construction
  double evict_ms = 0;      // decisions and moves; without what policies compute inside the model's step
  long long evictions = 0;  // changes with victims of the policy
};

class Evictions {
 public:
  // `plan`, `cache`, `evictor`: of one sequence, outlive it. `workers` may be nullptr.
  Evictions(const Hyperparameters& hyper, const MethodPlan& plan, Cache& cache, Evictor& evictor,
            std::shared_ptr<Workers> workers);

  // Checked in decisions and merges; nullptr: none.
  void set_interrupt(std::shared_ptr<const Interrupt> interrupt) { interrupt_ = std::move(interrupt); }
  // Gets the policy's victims before they go; nullptr: none. Outlives this.
  void set_recall_tier(RecallTier* tier) { recall_ = tier; }
  // Records what is dropped from now on; nullptr: nothing.
  void set_memory_log(std::shared_ptr<MemoryLog> log);
  void restart_memory_log();
  void rewind_memory_log(Position position);

  // `tables`, here and below: those of some layers, of a prompt that is read layer by layer; the others do not change.
  // Throws Error, std::bad_alloc or Interrupted, unchanged: it may be called again. (After a drop in a change of its
  // own: with merging the cache is unusable; else that change stays.)
  void decide(int coming, Phase phase, TableRange tables = {});
  // Tokens that may be inserted, after what was decided, before the next eviction.
  int room() const { return evictor_.room(cache_); }
  // ... and before pages are mapped or tokens outside windows move: no page is mapped for drafts alone, so that a step
  // has the slots that it has without drafts.
  int room_for_drafts() const;
  // What was decided, if anything, and `insert` new tokens, at positions `at` and following (kNoPosition: at the end of
  // the text). Throws as decide(), unchanged.
  void commit(int insert, Position at = kNoPosition, TableRange tables = {});
  void evict(int coming, Phase phase, TableRange tables = {}) {
    decide(coming, phase, tables);
    commit(0, kNoPosition, tables);
  }
  // Drops the tokens of `gone` and moves those behind by `by` positions; keys that are rotated by position are rotated
  // once more, and rounded. Throws, unchanged (Cache::prepare).
  void edit(PositionRange removed, Position by, const Hyperparameters& hyper);
  // Moves tokens without dropping any, likewise: Cache::shift.
  void shift(PositionRange range, Position by, const Hyperparameters& hyper);
  // After the prompt: moves tokens together, so that empty pages are released.
  void defragment(TableRange tables = {});
  // Frees what these tables no longer need, before others grow.
  void shrink(TableRange tables) { cache_.shrink(tables), evictor_.release(tables); }

  const EvictionTimes& times() const { return times_; }

 private:
  bool compact(int coming, Phase phase);
  void score_tables(int coming, Phase phase, TableRange tables);
  void drop_and_insert(CacheChange change);
  void put_into_tier(const Victims& victims);
  void change_text(const CacheChange& change, const Hyperparameters& hyper);

  const MethodPlan& plan_;
  Cache& cache_;
  Evictor& evictor_;
  std::shared_ptr<Workers> workers_;
  std::shared_ptr<const Interrupt> interrupt_;
  std::shared_ptr<MemoryLog> memory_log_;
  RecallTier* recall_ = nullptr;
  std::vector<std::size_t> rope_of_;  // [layers] index of the model's RoPE table
  // [layers] for re-rotation, merging, query moments, matching; else empty
  std::vector<RopeFrequencies> frequencies_;
  ScoreRule scores_;
  bool merges_, changes_kept_, drops_apart_;
  EvictionTimes times_;
};

}  // namespace palimpsest
