// The KV cache of one sequence: slot tables, block tables and pages of every layer and KV head.
//
//   engine                     cache                                     kernels
//   plan = evict(...)     ->   apply(plan)    the only call that drops
//                              insert(n)      slots for n new tokens ->   write K and V into `fresh` slots, attend
//                              view(layer)                          ->   plain data
//
// One slot table serves all heads when every head decides alike (`shared`); else each (layer, head) has its own.
#pragma once

#include <memory>
#include <vector>

#include "palimpsest/cache/pages.h"
#include "palimpsest/cache/plan.h"
#include "palimpsest/cache/slots.h"
#include "palimpsest/cache/view.h"

namespace palimpsest {

struct CacheOptions {
  int layers = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  CacheType type = CacheType::kF16;
  int page_size = 16;  // slots in a page; a multiple of kTile
  Mechanism mechanism = Mechanism::kInPlace;
  bool shared = true;       // one slot table for all heads
  bool track_rank = false;  // keep ranks (kernels that rotate late)
};

class Cache {
 public:
  // Without a pool the cache brings its own; with one, sequences of the same shape share it.
  explicit Cache(const CacheOptions& options, std::shared_ptr<PagePool> pool = nullptr);
  ~Cache();

  const CacheOptions& options() const { return options_; }
  int tables() const { return static_cast<int>(tables_.size()); }  // 1 if shared, else layers * kv_heads
  SlotTable& table(int t) { return tables_[static_cast<std::size_t>(t)]; }
  const SlotTable& table(int t) const { return tables_[static_cast<std::size_t>(t)]; }
  int table_of(int layer, int head) const { return options_.shared ? 0 : layer * options_.kv_heads + head; }

  int live() const;  // tokens in the fullest table
  Position next() const { return tables_.front().next(); }

  // Drops the plan's victims; whole empty pages go back to the pool (except under kShift: the tail does).
  void apply(const Plan& plan);
  // Room for `count` tokens that follow; the kernels write their rows.
  void insert(int count);
  void clear();

  LayerView view(int layer) const;  // valid until the next apply, insert or clear

  std::size_t bytes_in_use() const;  // pages held, of all layers and heads
  std::size_t bytes_peak() const;
  std::size_t bytes_tables() const;  // positions, ranks, scores, block tables
  long long evicted() const {
    return evicted_;
  }  // tokens dropped, once per token whatever the number of heads (mean over tables)

 private:
  void refresh_views();
  std::byte*& page_of(int layer, int head, int page);
  CacheOptions options_;
  std::shared_ptr<PagePool> pool_;
  std::vector<SlotTable> tables_;
  // ... block tables: [layer][head] -> list of pages
  std::vector<std::vector<std::byte*>> blocks_;
  std::vector<SlotsView> slot_views_;
  std::vector<HeadPages> head_views_;
  std::vector<Move> moves_;
  long long evicted_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace palimpsest
