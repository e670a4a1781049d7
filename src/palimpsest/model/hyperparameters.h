// The numbers of a model, read from GGUF metadata and checked against each other and against the tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "palimpsest/cache/geometry.h"
#include "palimpsest/core/attention_rule.h"
#include "palimpsest/core/rope_options.h"

namespace palimpsest {

struct Hyperparameters {
  std::string architecture;  // GGUF general.architecture
  std::string name;          // general.name, or the synthetic shape
  int vocabulary = 0, width = 0, layers = 0;
  HeadGeometry geometry;               // each layer's heads and its window
  std::vector<int> feed_forward = {};  // [layers] width of its hidden rows; 0: the layer has none
  int trained_context = 0;
  float norm_epsilon = 1e-5F;
  float attention_scale = 0;  // 1/sqrt(key width) unless the model says otherwise
  RopeOptions rope;
  std::optional<RopeOptions> local_rope = {};  // of layers with a window, if they turn in another way
  std::vector<float> alibi = {};               // [a layer's query heads] slopes; empty: no ALiBi
  int learned_positions = 0;                   // rows of the table of positions; 0: none
  float attention_soft_cap = 0;                // scores become cap * tanh(score / cap); 0: they stay
  float output_soft_cap = 0;                   // the same of logits
  float clamp_qkv = 0;                         // queries, keys and values are cut off at -clamp and clamp; 0: they stay
  bool parallel = false;                       // attention and feed-forward read the same x
  int experts = 0, experts_used = 0;           // of a mixture; 0: dense
  int expert_feed_forward = 0;
  std::size_t parameters = 0, weight_bytes = 0;
  std::string head_list;  // model.duo beside model.gguf: its streaming heads (budget/split.h); empty: there is none

  // Rotary tables: 0 is rope, 1 is local_rope.
  int ropes() const { return local_rope ? 2 : 1; }
  int rope_of(int layer) const { return local_rope && geometry.layer(layer).window != INT32_MAX ? 1 : 0; }
  const RopeOptions& rope_table(int index) const { return index == 0 ? rope : *local_rope; }
  PositionKind positions() const;
};

// ALiBi's slopes (arXiv 2108.12409, section 3): a geometric series; between its members if the heads are no power of 2.
std::vector<float> alibi_slopes(int heads, double max_bias);

class GgufFile;
struct Family;

// `context`: positions that will be seen, which decides between a file's short and long rotary factors; 0: the trained
// context. Throws Error for a key that is missing, mistyped, out of range or at odds with another or with the
// embedding's shape.
Hyperparameters read_hyperparameters(const GgufFile& file, const Family& family, int context = 0);

}  // namespace palimpsest
