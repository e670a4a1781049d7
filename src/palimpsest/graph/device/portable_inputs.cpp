#include "palimpsest/graph/device/portable_inputs.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <span>

#include "palimpsest/core/error.h"
#include "palimpsest/graph/device/portable_rotate.h"

namespace palimpsest {

namespace {

constexpr ggml_fp16_t kVisible = 0, kHidden = 0xFC00;  // 0 and -infinity
constexpr std::int64_t kFar = 1 << 22;                 // f32 has it and a half
constexpr int kItself = 0, kNobody = -1;               // TableWriter::holder_; a draft's number is at least 1

// The relative positions that a query sees: to `now`, after `local`, and after `window` or before `sink_end`.
struct Sight {
  std::int32_t now, local, window, sink_end;
  bool includes(std::int32_t relative) const {  // an empty slot's is later than any query's. No branches: vectors
    return ((relative <= now) & (relative > local) & ((relative > window) | (relative < sink_end))) != 0;
  }
  bool sees_all() const { return local == INT32_MIN && window == INT32_MIN; }  // of the tokens to `now`
};

Sight sight_of(const LayerStep& step, int sequence, int head, int query) {
  const SequenceTokens& tokens = step.tokens[sequence];
  const std::int64_t now = tokens.relative[query];
  const auto before = [&](std::int32_t window) {  // the last relative position that is outside
    const std::int64_t last = window == INT32_MAX ? INT32_MIN : now - window;
    return static_cast<std::int32_t>(std::max<std::int64_t>(last, INT32_MIN));
  };
  return {.now = tokens.relative[query],
          .local = before(step.local_of(tokens, query)),
          .window = before(step.window(sequence, head)),
          .sink_end = tokens.sink_end};
}

}  // namespace

// Sequences' parts are of equal sizes.
template <typename T>
void TableWriter::set(const TableInputs& inputs, ggml_tensor* t, const std::vector<T>& part) const {
  assert(ggml_nbytes(t) % (part.size() * sizeof(T)) == 0);
  set_input(inputs.block, t, std::as_bytes(std::span(part)), at(index_) * part.size() * sizeof(T));
}

bool sees_by_order(const SequenceTokens& tokens) {
  return tokens.count > 1 && !tokens.drafts && tokens.window == INT32_MAX && tokens.head_window.empty();
}

void require_supported(const LayerStep& step, int sequence) {
  for (int h = 0; h < step.shape.kv_heads; ++h)
    if (step.cache[sequence].head[h].slots->bias != nullptr)
      fail("biases of slots need the CPU's own attention: run without --device and --portable");
}

ggml_tensor* new_input(ggml_context* context, StepBlock* block, ggml_type type,
                       const std::array<std::int64_t, 4>& shape) {
  if (block != nullptr) return block->add(type, shape);
  ggml_tensor* t = ggml_new_tensor(context, type, static_cast<int>(shape.size()), shape.data());
  ggml_set_input(t);
  return t;
}

void set_input(StepBlock* block, ggml_tensor* input, std::span<const std::byte> contents, std::size_t offset) {
  if (block != nullptr)
    block->set(input, contents, offset);
  else
    ggml_backend_tensor_set(input, contents.data(), offset, contents.size());
}

RopeRows new_rotation(ggml_context* context, StepBlock* block, const AttentionShape& shape) {
  RopeRows rope;
  rope.inverse = new_input(context, block, GGML_TYPE_F32, {shape.rope_dims / 2, 1, 1, 1});
  rope.one = new_input(context, block, GGML_TYPE_I32, {1, 1, 1, 1});
  return rope;
}

void set_rotation(StepBlock* block, const RopeRows& rope, const AttentionShape& shape, const float* cos_sin,
                  std::vector<float>& inverse) {
  constexpr std::int32_t kOne = 1;
  invert_angles(shape, cos_sin, inverse);
  set_input(block, rope.inverse, std::as_bytes(std::span(inverse)));
  set_input(block, rope.one, std::as_bytes(std::span(&kOne, 1)));
}

TableInputs new_table_inputs(ggml_context* context, const AttentionShape& shape, const TableNeeds& needs) {
  const std::int64_t tokens = needs.tokens, span = needs.span, heads = needs.heads(shape), all = needs.sequences;
  TableInputs in;
  in.block = needs.block;
  const auto input = [&](ggml_type type, std::int64_t a, std::int64_t b = 1, std::int64_t c = 1, std::int64_t d = 1) {
    return new_input(context, needs.block, type, {a, b, c, d});
  };
  in.key_rows = input(GGML_TYPE_I32, tokens, heads, all);
  if (needs.value_rows) in.value_rows = input(GGML_TYPE_I32, shape.value_dim * tokens, heads, all);
  if (needs.distances) {
    in.distances = input(GGML_TYPE_F32, span, 1, 1, heads);
    in.offsets = input(GGML_TYPE_F32, 1, tokens);
    ggml_tensor* each = ggml_repeat_4d(context, in.offsets, span, tokens, 1, heads);
    ggml_tensor* seen = ggml_step(context, ggml_sub(context, each, in.distances));
    in.mask = ggml_cast(context, ggml_log(context, seen), GGML_TYPE_F16);
  } else {
    in.mask = has_mask_per_query_head(shape, needs.shared)
                  ? input(GGML_TYPE_F32, span, tokens, shape.group(), shape.kv_heads)
                  : input(GGML_TYPE_F16, span, tokens, 1, needs.masks(shape) * all);
  }
  if (!needs.rotated) return in;
  if (needs.rotated_sinks > 0) {
    in.sink_slots = input(GGML_TYPE_I32, needs.rotated_sinks);
    const auto row = [&] { return input(GGML_TYPE_F32, shape.head_dim, 1, heads, all); };
    in.sink_rotation = heads * all == 1 ? new_rotation(context, needs.block, shape) : RopeRows{row(), row()};
  }
  if (needs.query_ranks) in.query_ranks = input(GGML_TYPE_I32, heads * tokens * all);
  if (needs.key_ranks) in.key_ranks = input(GGML_TYPE_I32, span * heads * all);
  if (!needs.two_query) return in;
  in.sink_ranks = input(GGML_TYPE_I32, heads * tokens);
  in.sinks = input(GGML_TYPE_F32, needs.sink_span, 1, heads);
  in.others = input(GGML_TYPE_F32, needs.sink_span, 1, heads);
  return in;
}

void TableWriter::write(TableInputs& inputs, const LayerStep& step, int sequence, int index, int capacity,
                        int draft_slot) {
  index_ = index;
  draft_slot_ = draft_slot;
  const HeadPages* head = step.cache[sequence].head;
  const SequenceTokens& tokens = step.tokens[sequence];
  write_rows(inputs, head, tokens, capacity);
  if (inputs.distances != nullptr)
    write_distances(inputs, step, sequence);
  else if (inputs.mask->type == GGML_TYPE_F32)
    write_biases(inputs, step, sequence);
  else
    write_mask(inputs, step, sequence);
  if (inputs.sinks != nullptr) write_sinks(inputs, head, tokens);
  write_ranks(inputs, step, sequence);
  if (inputs.sink_rotation) write_sink_rotations(inputs, step, sequence);
}

// The slot of the step's token `token`.
int TableWriter::slot_of(const SlotsView& slots, int token) const {
  return token < slots.inserted_count ? slots.inserted[token] : draft_slot_ + token - slots.inserted_count;
}

void TableWriter::write_rows(const TableInputs& inputs, const HeadPages* head, const SequenceTokens& tokens,
                             int capacity) {
  const std::int64_t heads = inputs.key_rows->ne[1];
  rows_.clear();
  for (std::int64_t h = 0; h < heads; ++h)
    for (int t = 0; t < tokens.count; ++t) rows_.push_back(slot_of(*head[h].slots, t));
  set(inputs, inputs.key_rows, rows_);

  if (inputs.value_rows == nullptr) return;
  const std::int64_t values = inputs.value_rows->ne[0] / tokens.count;
  rows_.clear();
  for (std::int64_t h = 0; h < heads; ++h)
    for (int t = 0; t < tokens.count; ++t)
      for (int d = 0; d < values; ++d) rows_.push_back(d * capacity + slot_of(*head[h].slots, t));
  set(inputs, inputs.value_rows, rows_);
}

template <typename Visible>
void TableWriter::for_each_visible(const LayerStep& step, int sequence, int head, int query, Visible visible) {
  const SequenceTokens& tokens = step.tokens[sequence];
  const SlotsView& slots = *step.cache[sequence].head[head].slots;
  const Sight sight = sight_of(step, sequence, head, query);
  const auto sees = [&](std::int32_t relative) { return sight.includes(relative); };
  if (!slots.patches.empty()) holder_.assign(at(slots.slots), kItself);
  for (const SlotPatch& patch : slots.patches)
    if (patch.query <= query) holder_[at(patch.slot)] = patch.token ? patch.query : kNobody;
  for (int s = 0; s < slots.slots; ++s) {
    const int holder = slots.patches.empty() ? kItself : holder_[at(s)];
    if (holder == kItself && sees(slots.relative[s]))
      visible(s, slots.relative[s], slots.rank == nullptr ? 0 : slots.rank[s]);
    if (holder > 0 && sees(tokens.relative[holder]))
      visible(slot_of(slots, holder), tokens.relative[holder], query_rank(tokens, slots, holder));
  }
}

void TableWriter::write_distances(const TableInputs& inputs, const LayerStep& step, int sequence) {
  const SequenceTokens& tokens = step.tokens[sequence];
  const std::int64_t span = inputs.distances->ne[0], heads = inputs.distances->ne[3], first = tokens.relative[0];
  distances_.assign(at(heads * span), static_cast<float>(kFar));
  for (std::int64_t h = 0; h < heads; ++h) {
    const SlotsView& slots = *step.cache[sequence].head[h].slots;
    for (int s = 0; s < slots.slots; ++s)
      distances_[at(h * span + s)] = static_cast<float>(std::clamp(slots.relative[s] - first, -kFar, kFar));
  }
  set(inputs, inputs.distances, distances_);
  distances_.clear();
  for (int t = 0; t < tokens.count; ++t) distances_.push_back(static_cast<float>(tokens.relative[t] - first) + 0.5F);
  set(inputs, inputs.offsets, distances_);
}

// In a block, row by row: a row is compared with the last step's while it is in the first cache, and where it depends
// on which slots are empty alone, only the slots that changed since then are looked at.
void TableWriter::write_mask(TableInputs& inputs, const LayerStep& step, int sequence) {
  const int heads = static_cast<int>(inputs.mask->ne[3] / inputs.key_rows->ne[2]), tokens = step.tokens[sequence].count;
  const std::int64_t span = inputs.mask->ne[0];
  const bool by_row = inputs.block != nullptr;
  mask_.resize(static_cast<std::size_t>((by_row ? 1 : heads * tokens) * span));
  if (by_row) inputs.seen.resize(static_cast<std::size_t>(inputs.mask->ne[1] * inputs.mask->ne[3]));
  for (int h = 0; h < heads; ++h)
    for (int t = 0; t < tokens; ++t) {
      const SlotsView& slots = *step.cache[sequence].head[h].slots;
      const std::int64_t index = h * tokens + t;
      const std::size_t in_block = at((index_ * heads * tokens + index) * span);
      const Sight sight = sight_of(step, sequence, h, t);
      if (by_row) {
        TableInputs::SeenTable& seen = inputs.seen[in_block / at(span)];
        const bool by_occupied =
            tokens == 1 && sight.sees_all() && slots.later == 0 && slots.patches.empty() && slots.changes != nullptr;
        const auto changed = by_occupied ? slots.changes->changed() : std::span<const int>();
        const bool known = by_occupied && seen.epoch == slots.changes->epoch();
        for (const int slot : known ? changed.subspan(seen.changes) : std::span<const int>())
          inputs.block->set_element(inputs.mask, in_block + at(slot),
                                    slots.relative[slot] == kEmptySlot ? kHidden : kVisible);
        seen = {by_occupied ? slots.changes->epoch() : 0, changed.size()};
        if (known) continue;
      }
      ggml_fp16_t* row = mask_.data() + (by_row ? 0 : index * span);
      if (slots.patches.empty()) {
        for (int s = 0; s < slots.slots; ++s) row[s] = sight.includes(slots.relative[s]) ? kVisible : kHidden;
        std::fill(row + slots.slots, row + span, kHidden);
      } else {
        std::fill(row, row + span, kHidden);
        for_each_visible(step, sequence, h, t, [&](int slot, std::int32_t, std::int32_t) { row[slot] = kVisible; });
      }
      if (by_row) inputs.block->set(inputs.mask, std::as_bytes(std::span(mask_)), in_block * sizeof(ggml_fp16_t));
    }
  if (!by_row) set(inputs, inputs.mask, mask_);
}

// Each query head's mask, with ALiBi its distance bias.
void TableWriter::write_biases(const TableInputs& inputs, const LayerStep& step, int sequence) {
  const SequenceTokens& tokens = step.tokens[sequence];
  const std::int64_t span = inputs.mask->ne[0];
  const int group = step.shape.group(), count = tokens.count;
  biases_.assign(static_cast<std::size_t>(ggml_nelements(inputs.mask)), -INFINITY);
  for (int h = 0; h < step.shape.kv_heads; ++h) {
    const SlotsView& slots = *step.cache[sequence].head[h].slots;
    for (int t = 0; t < count; ++t) {
      const int own_rank = query_rank(tokens, slots, t);
      const int far = tokens.two_query ? sink_rank(tokens, slots, step.window(sequence, h), t) : own_rank;
      for_each_visible(step, sequence, h, t, [&](int slot, std::int32_t relative, std::int32_t rank) {
        const std::int64_t distance = tokens.rank_distance ? (relative < tokens.sink_end ? far : own_rank) - rank
                                                           : std::int64_t{tokens.relative[t]} - relative;
        for (int g = 0; g < group; ++g)
          biases_[((h * group + g) * count + t) * span + slot] =
              step.shape.alibi == nullptr ? 0 : -step.shape.alibi[h * group + g] * static_cast<float>(distance);
      });
    }
  }
  set(inputs, inputs.mask, biases_);
}

void TableWriter::write_sinks(const TableInputs& inputs, const HeadPages* head, const SequenceTokens& tokens) {
  const std::int64_t span = inputs.sinks->ne[0], heads = inputs.sinks->ne[2];
  sinks_.assign(static_cast<std::size_t>(heads * span), 0.0F);
  others_.assign(static_cast<std::size_t>(heads * span), 1.0F);
  for (std::int64_t h = 0; h < heads; ++h)
    for (int s = 0; s < std::min<std::int64_t>(head[h].slots->slots, span); ++s)
      if (head[h].slots->relative[s] < tokens.sink_end) {
        sinks_[h * span + s] = 1.0F;
        others_[h * span + s] = 0.0F;
      }
  set(inputs, inputs.sinks, sinks_);
  set(inputs, inputs.others, others_);
}

// From the rank at which the query scores sinks to its own position: the difference of two angles, whose cosines and
// sines may have a common factor.
void TableWriter::write_sink_rotations(const TableInputs& inputs, const LayerStep& step, int sequence) {
  const SequenceTokens& tokens = step.tokens[sequence];
  const int heads = static_cast<int>(inputs.key_rows->ne[1]), pairs = step.shape.rope_dims / 2;
  all_cos_.clear(), all_sin_.clear();
  rotation_.resize(at(step.shape.rope_dims));
  for (int h = 0; h < heads; ++h) {
    const int rank = sink_rank(tokens, *step.cache[sequence].head[h].slots, step.window(sequence, h), 0);
    const float *to = tokens.key_row, *from = tokens.rank_row + static_cast<std::ptrdiff_t>(rank) * 2 * pairs;
    for (int p = 0; p < pairs; ++p) {
      const float c = from[p], s = from[pairs + p], squared = c * c + s * s;
      rotation_[at(p)] = (to[p] * c + to[pairs + p] * s) / squared;
      rotation_[at(pairs + p)] = (to[pairs + p] * c - to[p] * s) / squared;
    }
    if (inputs.sink_rotation.inverse != nullptr) {
      set_rotation(inputs.block, inputs.sink_rotation, step.shape, rotation_.data(), inverse_);
      continue;
    }
    expand_rows(step.shape, rotation_.data(), 1, cos_, sin_);
    all_cos_.insert(all_cos_.end(), cos_.begin(), cos_.end());
    all_sin_.insert(all_sin_.end(), sin_.begin(), sin_.end());
  }
  if (inputs.sink_rotation.cos != nullptr) {
    set(inputs, inputs.sink_rotation.cos, all_cos_);
    set(inputs, inputs.sink_rotation.sin, all_sin_);
  }
  rows_.resize(static_cast<std::size_t>(inputs.sink_slots->ne[0]));
  std::iota(rows_.begin(), rows_.end(), 0);
  set_input(inputs.block, inputs.sink_slots, std::as_bytes(std::span(rows_)));
}

void TableWriter::write_ranks(const TableInputs& inputs, const LayerStep& step, int sequence) {
  const SequenceTokens& tokens = step.tokens[sequence];
  const HeadPages* head = step.cache[sequence].head;
  const auto write_queries = [&](ggml_tensor* out, auto rank_of) {
    if (out == nullptr) return;
    ranks_.clear();
    const int heads = static_cast<int>(inputs.key_rows->ne[1]);
    for (int t = 0; t < tokens.count; ++t)
      for (int h = 0; h < heads; ++h) ranks_.push_back(rank_of(h, t));
    set(inputs, out, ranks_);
  };
  write_queries(inputs.query_ranks, [&](int h, int t) { return query_rank(tokens, *head[h].slots, t); });
  write_queries(inputs.sink_ranks,
                [&](int h, int t) { return sink_rank(tokens, *head[h].slots, step.window(sequence, h), t); });
  if (inputs.key_ranks == nullptr) return;
  const std::int64_t span = inputs.mask->ne[0], heads = inputs.key_rows->ne[1];
  ranks_.assign(static_cast<std::size_t>(span * heads), 0);
  for (std::int64_t h = 0; h < heads; ++h)
    for (int s = 0; s < head[h].slots->slots; ++s) ranks_[h * span + s] = std::max(head[h].slots->rank[s], 0);
  set(inputs, inputs.key_ranks, ranks_);
}

}  // namespace palimpsest
