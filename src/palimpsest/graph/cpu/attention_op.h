// The fast path: one ggml custom operator a layer that inserts, attends and collects weights in the cache's own pages.
// CPU only: every other device would need its own.
#pragma once

#include <vector>

#include "palimpsest/attention/cpu.h"
#include "palimpsest/graph/attention_path.h"

namespace palimpsest {

// The step's attention of one layer as the operator `out` [value_width * query_heads, tokens] computes it: from q, k
// and v, its three sources.
AttentionStep attention_of(const Step& step, int layer, const ggml_tensor* out);

class AttentionOp final : public AttentionPath {
 public:
  AttentionOp(const Hyperparameters& hyper, int threads);

  std::uint64_t begin(const Step& step) override;
  std::size_t nodes_per_layer() const override { return 1; }
  ggml_tensor* build(DecoderGraph& graph, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) override;
  void prepare(DecoderGraph& graph, const Step& step) override;
  std::optional<Misfit> misfit(int sequence) const override { return misfits_.of(sequence); }

  void measure(bool on) { measure_ = on; }
  double milliseconds() const { return milliseconds_; }  // of the last step, thread 0

 private:
  struct Call {  // ggml hands this to the operator
    AttentionOp* op;
    int layer;
  };
  std::size_t first_alike(int layer, std::size_t sequence) const;
  static void run(ggml_tensor* out, int thread, int threads, void* call);

  std::vector<Call> calls_;  // [layers]; graphs point at them
  const Step* step_ = nullptr;
  AttentionScratch scratch_;
  Misfits misfits_;
  // [layers][sequences] of slot tables that heads share; of layers that are alike the first one's.
  std::vector<std::vector<float>> rank_tiles_;
  std::vector<const float*> rank_tiles_of_;  // the same; nullptr where they are not shared
  int threads_;
  bool measure_ = false;
  double milliseconds_ = 0;
};

}  // namespace palimpsest
