// Victims of a decode step, chosen on the device: each layer's scores stay there, and a step returns one slot per head.
//
//   scores ── set_rows(0 for the new token) ── * fading + weights ──> scores
//                                                     └── argmax(guard - scores) ──> victims
#include "palimpsest/graph/device/portable.h"
#include "palimpsest/graph/graph.h"

namespace palimpsest {

void PortablePath::make_victims(Inputs& inputs, Sequence& sequence) const {
  std::vector<std::int64_t> victims(backends_.all().size());
  for (int layer = 0; layer < layers_; ++layer) {
    const AttentionStep& a = step_->attention(layer);
    if (a.shape.kv_heads == 0 || a.kv_layer != layer) continue;
    const std::size_t backend = backends_.index_of(layer);
    StepBlock& block = inputs.blocks[backend];
    const std::int64_t span = sequence.table(layer).in.mask->ne[0], heads = a.shape.kv_heads;
    sequence.scored.push_back({.layer = layer,
                               .first = static_cast<std::size_t>(victims[backend]),
                               .guard = block.add(GGML_TYPE_F32, {span, heads, 1, 1}),
                               .zero = block.add(GGML_TYPE_F32, {1, 1, heads, 1})});
    victims[backend] += heads;
  }
  for (std::size_t b = 0; b < victims.size(); ++b)
    sequence.victims.push_back(victims[b] == 0 ? nullptr : inputs.blocks[b].add_result(GGML_TYPE_I32, victims[b]));
}

void PortablePath::choose_victims(DecoderGraph& graph, const Sequence& inputs, int layer, ggml_tensor* weights,
                                  const SequenceStep& step) const {
  ggml_context* c = graph.context.get();
  const std::int64_t span = weights->ne[0], heads = weights->ne[3];
  const Scored& scored = *std::ranges::find(inputs.scored, layer, &Scored::layer);
  ggml_tensor* stored = storage_of(step).scores(layer);  // [capacity, heads]
  ggml_tensor* fresh = ggml_set_rows(c, ggml_reshape_3d(c, stored, 1, stored->ne[0], heads), scored.zero,
                                     inputs.table(layer).in.key_rows);
  ggml_tensor* before = ggml_cont(c, ggml_view_2d(c, fresh, span, heads, stored->nb[1], 0));
  if (*step.fading != 1) before = ggml_scale(c, before, *step.fading);
  ggml_tensor* mine = ggml_reshape_2d(c, sum_of_weights(c, weights, 0, 1), span, heads);
  ggml_tensor* now = ggml_add(c, before, ggml_scale(c, mine, 1 / static_cast<float>(weights->ne[2])));
  ggml_build_forward_expand(graph.graph, ggml_cpy(c, now, ggml_view_2d(c, stored, span, heads, stored->nb[1], 0)));
  ggml_tensor* all = inputs.victims[backends_.index_of(layer)];
  ggml_tensor* place = ggml_view_1d(c, all, heads, scored.first * sizeof(std::int32_t));
  ggml_build_forward_expand(graph.graph, ggml_cpy(c, ggml_argmax(c, ggml_sub(c, scored.guard, now)), place));
}

void PortablePath::write_guards(Inputs& inputs, const Sequence& sequence, const SequenceStep& step) {
  const HeadGeometry& geometry = step.cache->geometry();
  for (const Scored& scored : sequence.scored) {
    const auto span = static_cast<std::size_t>(scored.guard->ne[0]);
    guard_.resize(static_cast<std::size_t>(ggml_nelements(scored.guard)));
    for (int h = 0; h < geometry.layer(scored.layer).kv_heads; ++h)
      step.receiver->guard(geometry.head(scored.layer, h), std::span(guard_).subspan(at(h) * span, span));
    inputs.blocks[backends_.index_of(scored.layer)].set(scored.guard, std::as_bytes(std::span(guard_)));
  }
}

void PortablePath::read_victims(const Sequence& inputs, const SequenceStep& step) {
  const HeadGeometry& geometry = step.cache->geometry();
  std::size_t read = SIZE_MAX;  // the device whose victims were read last
  for (const Scored& scored : inputs.scored) {
    if (const std::size_t b = backends_.index_of(scored.layer); b != read) {
      read = b;
      victims_.resize(static_cast<std::size_t>(ggml_nelements(inputs.victims[b])));
      ggml_backend_tensor_get(inputs.victims[b], victims_.data(), 0, victims_.size() * sizeof(std::int32_t));
    }
    for (int h = 0; h < geometry.layer(scored.layer).kv_heads; ++h)
      step.receiver->receive({.kind = StepSignal::Kind::kVictim,
                              .head = geometry.head(scored.layer, h),
                              .member = victims_[scored.first + at(h)]});
  }
}

}  // namespace palimpsest
