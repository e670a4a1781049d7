// Victims of a decode step, chosen on the device: each layer's scores stay there, and a step returns one slot per head.
//
//   scores ── set_rows(0 for the new token) ── * fading + weights ──> scores
//                                                     └── argmax(guard - scores) ──> victims
//
// Scores there are sums over the group's query heads, not means: one operator less.
#include <algorithm>
#include <cmath>

#include "palimpsest/graph/device/portable.h"
#include "palimpsest/graph/graph.h"

namespace palimpsest {

void PortablePath::make_victims(Inputs& inputs, BatchInputs& in) const {
  std::vector<std::int64_t> victims(backends_.all().size());
  for (int layer = 0; layer < layers_; ++layer) {
    const LayerStep& a = step_->attention(layer);
    if (a.shape.kv_heads == 0 || a.kv_layer != layer) continue;
    const std::size_t backend = backends_.index_of(layer);
    StepBlock& block = inputs.blocks[backend];
    const std::int64_t lanes = std::int64_t{a.shape.kv_heads} * in.batch.count;
    in.scored.push_back({.layer = layer,
                         .first = static_cast<std::size_t>(victims[backend]),
                         .guard = block.add(GGML_TYPE_F32, {in.batch.span, lanes, 1, 1}),
                         .zero = block.add(GGML_TYPE_F32, {1, 1, a.shape.kv_heads, in.batch.count}),
                         .seen = {},
                         .newer = {}});
    victims[backend] += lanes;
  }
  for (std::size_t b = 0; b < victims.size(); ++b)
    in.victims.push_back(victims[b] == 0 ? nullptr : inputs.blocks[b].add_result(GGML_TYPE_I32, victims[b]));
}

void PortablePath::choose_victims(DecoderGraph& graph, const BatchInputs& in, int layer, ggml_tensor* weights,
                                  const SequenceStep& step) const {
  ggml_context* c = graph.context.get();
  const std::int64_t span = weights->ne[0], lanes = weights->ne[3], heads = lanes / in.batch.count;
  const Scored& scored = *std::ranges::find(in.scored, layer, &Scored::layer);
  const StorageSeat& seat = storage_of(step).seat();
  ggml_tensor* stored = seat->scores(layer);  // [1, capacity, lanes]
  const std::size_t lane = stored->nb[2], first = at(seat.lane(layer)) * lane;
  ggml_tensor* own =
      ggml_view_4d(c, stored, 1, stored->ne[1], heads, in.batch.count, stored->nb[1], lane, at(heads) * lane, first);
  ggml_tensor* fresh = ggml_set_rows(c, own, scored.zero, in.table(layer).in.key_rows);
  ggml_tensor* rows = ggml_view_2d(c, fresh, span, lanes, lane, 0);
  if (*step.fading != 1) {
    ggml_tensor* faded = ggml_scale(c, ggml_cont(c, rows), *step.fading);
    rows = ggml_cpy(c, faded, rows);
  }
  ggml_tensor* now = ggml_add_inplace(c, rows, ggml_reshape_2d(c, sum_of_weights(graph, weights, 0, 1), span, lanes));
  ggml_tensor* all = in.victims[backends_.index_of(layer)];
  ggml_tensor* place = ggml_view_1d(c, all, lanes, scored.first * sizeof(std::int32_t));
  ggml_build_forward_expand(graph.graph, ggml_cpy(c, ggml_argmax(c, ggml_sub(c, scored.guard, now)), place));
}

void PortablePath::write_guards(Inputs& inputs, BatchInputs& in, const Step& step) {
  guard_.resize(at(in.batch.span));
  for (Scored& scored : in.scored) {
    scored.seen.resize(static_cast<std::size_t>(scored.guard->ne[1]));
    scored.newer.resize(scored.seen.size());
    StepBlock& block = inputs.blocks[backends_.index_of(scored.layer)];
    std::size_t lane = 0;
    for (int i = in.batch.first; i < in.batch.first + in.batch.count; ++i) {
      const HeadGeometry& geometry = step.input()[i].cache->geometry();
      const LayerView& view = step.attention(scored.layer).cache[i];
      for (int h = 0; h < geometry.layer(scored.layer).kv_heads; ++h)
        write_guard(block, scored, lane++, *view.head[h].slots, *step.input()[i].receiver,
                    geometry.head(scored.layer, h));
    }
  }
}

// From a step to the next, a few slots change, and one more token is old enough to be a victim: only these are looked
// at.
void PortablePath::write_guard(StepBlock& block, Scored& scored, std::size_t lane, const SlotsView& slots,
                               AttentionReceiver& receiver, int head) {
  constexpr float kMay = 0, kMayNot = -INFINITY;
  const std::size_t first = lane * guard_.size();
  SeenGuard& seen = scored.seen[lane];
  const auto victims = slots.changes == nullptr ? std::nullopt : receiver.victims_within(head);
  const SeenGuard now = {victims ? TableInputs::SeenTable{slots.changes->epoch(), slots.changes->changed().size()}
                                 : TableInputs::SeenTable{},
                         victims.value_or(RelativeRange{})};
  const SeenGuard before = std::exchange(seen, now);
  NewTokens& newer = scored.newer[lane];
  const auto add_if_new = [&](int slot) {
    const std::int32_t relative = slots.relative[slot];
    if (relative >= victims->last && relative != kEmptySlot) newer.all.emplace_back(relative, slot);
  };
  if (victims && before.table.epoch == now.table.epoch && victims->first == before.victims.first &&
      victims->last >= before.victims.last) {
    const auto write = [&](int slot) {
      block.set_element(scored.guard, first + at(slot), victims->contains(slots.relative[slot]) ? kMay : kMayNot);
    };
    for (const int slot : slots.changes->changed().subspan(before.table.changes)) write(slot), add_if_new(slot);
    for (; newer.first < newer.all.size() && newer.all[newer.first].first < victims->last; ++newer.first)
      write(newer.all[newer.first].second);
    if (2 * newer.first > newer.all.size()) {
      newer.all.erase(newer.all.begin(), newer.all.begin() + static_cast<std::ptrdiff_t>(newer.first));
      newer.first = 0;
    }
    return;
  }
  if (victims) {
    newer = {};
    std::ranges::fill(guard_, kMayNot);
    for (int slot = 0; slot < slots.slots; ++slot) {
      guard_[at(slot)] = victims->contains(slots.relative[slot]) ? kMay : kMayNot;
      add_if_new(slot);
    }
    std::ranges::sort(newer.all);
  } else {
    receiver.guard(head, guard_);
  }
  block.set(scored.guard, std::as_bytes(std::span(guard_)), first * sizeof(float));
}

void PortablePath::read_victims(const BatchInputs& in, const Step& step) {
  std::size_t read = SIZE_MAX;  // the device whose victims were read last
  for (const Scored& scored : in.scored) {
    if (const std::size_t b = backends_.index_of(scored.layer); b != read) {
      read = b;
      victims_.resize(static_cast<std::size_t>(ggml_nelements(in.victims[b])));
      ggml_backend_tensor_get(in.victims[b], victims_.data(), 0, victims_.size() * sizeof(std::int32_t));
    }
    std::size_t next = scored.first;
    for (int i = in.batch.first; i < in.batch.first + in.batch.count; ++i) {
      const HeadGeometry& geometry = step.input()[i].cache->geometry();
      for (int h = 0; h < geometry.layer(scored.layer).kv_heads; ++h)
        step.input()[i].receiver->receive(
            {.kind = StepSignal::Kind::kVictim, .head = geometry.head(scored.layer, h), .member = victims_[next++]});
    }
  }
}

}  // namespace palimpsest
