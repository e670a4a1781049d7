// Wraps an attention path: records its inputs and outputs on any path and device and compares them with the truth of
// each sequence.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "palimpsest/graph/attention_path.h"
#include "tests/exactness/truth.h"

namespace palimpsest::testing {

class Watch final : public AttentionPath {
 public:
  // truths: one for each sequence, in the order in which their caches are first used; they must outlive the path.
  Watch(std::unique_ptr<AttentionPath> inner, std::vector<Truth*> truths);

  CacheOptions cache_options(const Hyperparameters& hyper) const override { return inner_->cache_options(hyper); }
  void attach_storage(Cache& cache, const AttentionRule& rule) const override { inner_->attach_storage(cache, rule); }
  std::uint64_t begin(const Step& step) override { return inner_->begin(step); }
  std::size_t nodes_per_layer() const override { return inner_->nodes_per_layer(); }
  ggml_tensor* build(DecoderGraph& graph, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) override;
  ggml_tensor* convolve(DecoderGraph& graph, int layer, ggml_tensor* x, ggml_tensor* weight) override {
    return inner_->convolve(graph, layer, x, weight);
  }
  ggml_tensor* scan(DecoderGraph& graph, int layer, const ScanInputs& in) override {
    return inner_->scan(graph, layer, in);
  }
  void prepare(DecoderGraph& graph, const Step& step) override { inner_->prepare(graph, step); }
  void finish(DecoderGraph& graph, const Step& step) override;

 private:
  struct Tensors {  // of a layer with heads
    int layer;
    ggml_tensor *q, *k, *v, *out;
  };
  std::unique_ptr<AttentionPath> inner_;
  Truth& truth_of(const Cache* cache);

  std::vector<Truth*> truths_;
  std::vector<const Cache*> caches_;
  std::map<const ggml_cgraph*, std::vector<Tensors>> layers_;
};

// Attention in double precision over the cache's pages (attention/reference.h), as a path.
class ReferencePath final : public AttentionPath {
 public:
  explicit ReferencePath(const Hyperparameters& hyper);

  std::uint64_t begin(const Step&) override { return 0; }
  std::size_t nodes_per_layer() const override { return 1; }
  ggml_tensor* build(DecoderGraph& graph, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) override;
  ggml_tensor* convolve(DecoderGraph& graph, int layer, ggml_tensor* x, ggml_tensor* weight) override;
  ggml_tensor* scan(DecoderGraph& graph, int layer, const ScanInputs& in) override;
  void prepare(DecoderGraph&, const Step& step) override { step_ = &step; }

 private:
  struct Call {
    ReferencePath* path;
    int layer;
  };
  static void run(ggml_tensor* out, int thread, int threads, void* call);
  static void run_convolution(ggml_tensor* out, int thread, int threads, void* call);
  static void run_scan(ggml_tensor* out, int thread, int threads, void* call);
  std::vector<Call> calls_;
  const Step* step_ = nullptr;
};

}  // namespace palimpsest::testing
