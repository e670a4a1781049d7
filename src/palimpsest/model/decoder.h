// Runs one step of the model: token ids in, logits out, keys and values into the caches.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "palimpsest/attention/attention.h"
#include "palimpsest/cache/cache.h"
#include "palimpsest/model/model.h"

namespace palimpsest {

// How a sequence's cache wants to be attended to; derived from its method, constant over its life.
struct AttentionRule {
  Rotation rotation = Rotation::kAtWrite;  // kNever for families without rotary positions
  bool two_query = false;                  // cache positions by rotating the query twice (sinks + window)
  bool at_rank = false;                    // kAtWrite: new keys and queries turn by their rank, not their position
  bool rank_distance = false;              // ALiBi: cache positions; the cache tracks ranks
  int sinks = 0;                           // used by two_query and window
  int window = 0;                          // tokens visible to a query besides the sinks, itself included; 0: all
  std::span<const std::int32_t> head_window = {};  // [layers * kv_heads] instead of `window`; INT32_MAX: all
};

// Who wants to know of a step's keys, values and attention weights as they come.
class AttentionReceiver {
 public:
  virtual ~AttentionReceiver() = default;
  // A head's keys and values of the step's new tokens, un-rotated, one row a token. Called once per head if
  // SequenceStep::births. Several threads call at a time, for different heads.
  virtual void born(int layer, int kv_head, Rows keys, Rows values) = 0;
  // A head's weights of this step are complete, and still in this thread's cache. Called once per head, layer by layer:
  // the heads of two layers may share their memory. Several threads call at a time, for different heads.
  virtual void received(int layer, int kv_head) = 0;
  // A query head's queries of the step's new tokens, un-rotated, one row a token. Called once per head if
  // SequenceStep::queries. Threads as above; the heads of one group are told by one.
  virtual void asked(int /*layer*/, int /*query_head*/, Rows /*queries*/) {}
};

// One sequence's share of a step. Before the call: cache->apply(plan), then cache->insert(tokens.size()).
struct SequenceStep {
  Cache* cache = nullptr;
  AttentionRule rule = {};
  std::span<const TokenId> tokens = {};
  bool all_logits = false;          // logits of every token, or of the last only
  float* const* weights = nullptr;  // see AttentionStep::weights, [layers * kv_heads]; nullptr: not wanted
  float* const* sums = nullptr;     // AttentionStep::sums, likewise; only beside weights, and on the fast path
  int weights_queries = INT32_MAX;  // of so many of the last tokens' queries
  Received received_as = Received::kMean;
  AttentionReceiver* receiver = nullptr;
  bool births = false;   // the receiver hears of new keys and values
  bool queries = false;  // ... and of queries; the fast path only
};

struct StepTimes {  // of the last step, ms
  double build = 0, compute = 0,
         attention = 0;  // attention: inside compute, thread 0; only if asked for, and of the fast path
};

// Puts another attention around, or in the place of, the one that suits the device: how a step is watched from outside.
class AttentionPath;
using WrapPath = std::function<std::unique_ptr<AttentionPath>(std::unique_ptr<AttentionPath>)>;

class Decoder {
 public:
  Decoder(std::shared_ptr<const Model> model, int threads, const WrapPath& wrap = {});
  ~Decoder();

  // The cache that this decoder can write to: pages in host memory for the fast path, bookkeeping only for the portable
  // path.
  CacheOptions cache_options() const;

  // Logits [rows][vocabulary], rows in the order of the sequences (all tokens or the last of each). Valid until the
  // next prepare(). Throws Error.
  std::span<const float> step(std::span<const SequenceStep> sequences);
  // step() in two parts. prepare() builds the graph and takes all memory of the step; it may throw and writes nothing
  // to the caches. run() runs what was prepared.
  void prepare(std::span<const SequenceStep> sequences);
  std::span<const float> run();

  int threads() const;
  const Model& model() const;
  const StepTimes& times() const;
  void measure_attention(bool on);  // fills StepTimes::attention from the next step on

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace palimpsest
