// What a step that reads a token and n drafts costs more than one that reads the token alone, in steps of one token:
//
//   price of n drafts = time(1 + n tokens) / time(1 token) - 1
//
// It is 0 where a step waits for the weights to come from memory, and n where it computes. So it depends on the CPU,
// the types of the weights and the number of threads: measured on a decoder, once. Text never depends on it, only speed
// does, where drafts are exact (docs/decisions/0023-drafts.md). A fixed price makes the number of drafts repeatable.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "palimpsest/graph/decoder.h"

namespace palimpsest {

class DraftPrice {
 public:
  // Each draft costs as much.
  explicit DraftPrice(double each = 0.08) : points_{{1, each}} {}
  // Prices of some numbers of drafts, ascending, at least one; between them it is linear, beyond the last it continues.
  explicit DraftPrice(std::vector<std::pair<int, double>> points) : points_(std::move(points)) {}

  double of(int drafts) const;
  // What it costs to make a draft, with a draft model.
  void add(double each);

 private:
  std::vector<std::pair<int, double>> points_;
};

struct DecoderSpeed {
  double seconds = 0;  // of a step of one token, with a small cache
  DraftPrice price;    // of drafts in a step
};

// Runs steps of 1 to 1 + `max` random tokens. Of a large model it runs layers that hold `bytes`, and the last one.
// Takes the time of some ten steps of a model of so many bytes. CPU only. Throws Error.
DecoderSpeed measure_decoder(Decoder& decoder, int max, std::size_t bytes = std::size_t{256} << 20);

}  // namespace palimpsest
