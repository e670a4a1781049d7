// The keys and values of a step's drafts that took no slots (Cache::preview), until they are accepted: in memory of
// their own, or on a device in slots behind those of the tables (CacheStorage::draft_slot).
#pragma once

#include <vector>

#include "palimpsest/cache/cache.h"

namespace palimpsest {

class DraftRows {
 public:
  // Makes room for a step with so many drafts.
  void begin(const Cache& cache, int drafts);
  float* const* rows() const { return of_head_.data(); }  // SequenceTokens::draft_rows; on a device of nullptr
  // Writes those of draft `index` into the slot that it has now, as the newest token.
  void store(const Cache& cache, int index) const;

 private:
  std::vector<std::vector<float>> rows_;  // [head][draft][key, value]
  std::vector<float*> of_head_;
};

}  // namespace palimpsest
