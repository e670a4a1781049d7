// The fast path: one ggml custom operator per layer that inserts, attends and collects weights in the cache's pages.
// CPU only.
#pragma once

#include <vector>

#include "palimpsest/attention/cpu.h"
#include "palimpsest/core/workers.h"
#include "palimpsest/graph/attention_path.h"

namespace palimpsest {

// The arguments of one layer's attention: `out` [value_width * query_heads, tokens] is the operator, its three sources
// are q, k and v.
LayerStep attention_of(const Step& step, int layer, const ggml_tensor* out);

class AttentionOp final : public AttentionPath {
 public:
  // `threads`: max of a step. `pool`: as in ProductOps.
  AttentionOp(const Hyperparameters& hyper, int threads, Workers* pool = nullptr);

  std::uint64_t begin(const Step& step) override;
  std::size_t nodes_per_layer() const override { return 3; }
  ggml_tensor* build(DecoderGraph& graph, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) override;
  ggml_tensor* convolve(DecoderGraph& graph, int layer, ggml_tensor* x, ggml_tensor* weight) override;
  ggml_tensor* scan(DecoderGraph& graph, int layer, const ScanInputs& in) override;
  void prepare(DecoderGraph& graph, const Step& step) override;
  std::optional<Misfit> misfit(int sequence) const override { return misfits_.of(sequence); }

  void measure(bool on) { measure_ = on; }
  double milliseconds() const { return milliseconds_; }  // of the last step, in the thread that calls

 private:
  struct Call {  // the operator's user data
    AttentionOp* op;
    int layer;
  };
  std::size_t first_equal(int layer, std::size_t sequence) const;
  static void run(ggml_tensor* out, int thread, int threads, void* call);
  void prepare_recall(const Step& step);
  static void run_recall(ggml_tensor* out, int thread, int threads, void* call);
  static void run_convolution(ggml_tensor* out, int thread, int threads, void* call);
  static void run_scan(ggml_tensor* out, int thread, int threads, void* call);

  std::vector<Call> calls_;  // [layers]; graphs point to them
  const Step* step_ = nullptr;
  AttentionScratch scratch_;
  Misfits misfits_;
  // [layers][sequences] Only for slot tables shared by heads; filled for the first of layers with equal tiles.
  std::vector<std::vector<float>> rank_tiles_;
  std::vector<const float*> rank_tiles_of_;        // [layers][sequences] the layer's tiles; nullptr: table not shared
  bool recalls_ = false;                           // a sequence of the step has a second tier
  std::vector<float> log_sum_;                     // of one layer: [sequences that recall][KV heads][tokens][group]
  std::vector<float*> log_sums_;                   // [layers][sequences][KV heads]; nullptr: does not recall
  std::vector<std::size_t> first_log_sum_;         // [layers] in log_sums_
  std::vector<std::vector<float>> recall_memory_;  // [threads]
  int threads_;
  Workers* pool_;
  bool measure_ = false;
  double milliseconds_ = 0;
};

}  // namespace palimpsest
