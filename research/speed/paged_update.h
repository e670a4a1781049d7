// Our cache under the same work as RowCache: several sequences, one layer; evicts `victims` tokens and inserts as many.
// Choosing victims is untimed; bookkeeping (Cache::apply, Cache::insert) and the kernel that writes the rows are timed.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "palimpsest/attention/attention.h"
#include "palimpsest/cache/cache.h"
#include "research/speed/team.h"

namespace palimpsest::bench {

class PagedUpdate {
 public:
  // random: each head has its own victims (H2O); else all heads evict the oldest tokens after the sinks (StreamingLLM).
  PagedUpdate(int sequences, int heads, int head_dim, int tokens, int victims, CacheType type, bool random);

  void choose();         // chooses the next step's victims
  void run(Team& team);  // apply, insert, write
  // Throws Error unless every new row is in its slot, within the type's rounding, and all other rows are unchanged.
  void check(Team& team);

 private:
  LayerStep step() const;
  void write(Team& team);
  float element(int sequence, int head, int slot, int dim, bool value) const;

  int sequences_, heads_, dim_, victims_;
  bool random_;
  std::mt19937 generator_{1};
  std::vector<std::unique_ptr<Cache>> cache_;
  std::vector<Victims> plan_;
  std::vector<LayerView> view_;
  std::vector<SequenceTokens> tokens_;
  std::vector<std::int32_t> relative_;
  std::vector<float> k_, v_;
  std::vector<std::vector<float>> scratch_;
};

}  // namespace palimpsest::bench
