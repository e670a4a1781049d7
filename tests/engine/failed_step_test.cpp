// A step that finds no page for its tokens changes nothing: the sequence reads on later, as if nothing had happened.
#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "palimpsest/engine/sequence/step_loop.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

std::shared_ptr<Decoder> two_layers() {
  static const auto model = Model::from(make_synthetic({.vocabulary = 96,
                                                        .width = 64,
                                                        .layers = 2,
                                                        .feed_forward = 96,
                                                        .query_heads = 4,
                                                        .kv_heads = 2,
                                                        .head_dim = 16}));
  return std::make_shared<Decoder>(model, 1);
}

// Reads a prompt and tokens step by step. With `fails`, each step is first tried while no page can be taken.
class Reader {
 public:
  Reader(const std::string& method, bool fails)
      : decoder_(two_layers()), options_(session_options(method, 16)), fails_(fails) {
    const auto plan = std::make_shared<MethodPlan>(options_.method, plan_target(*decoder_, options_));
    pool_ = std::make_shared<PagePool>(page_bytes(Cache(plan->cache()).view(0)));
    pool_->before_acquisition([this] {
      if (refuses_) throw std::bad_alloc();
    });
    sequence_ = std::make_unique<Sequence>(*decoder_, options_, plan, nullptr, pool_);
    share_.sequence = sequence_.get();
  }

  std::vector<float> read(std::span<const TokenId> text, std::size_t prompt) {
    sequence_->read(text.first(prompt));
    while (sequence_->stage() != Sequence::Stage::kIdle) step();
    for (const TokenId token : text.subspan(prompt)) {
      sequence_->read(token);
      step();
    }
    return logits_;
  }
  int failures() const { return failures_; }

 private:
  std::vector<std::vector<Position>> kept() const {
    std::vector<std::vector<Position>> positions;
    for (int t = 0; t < sequence_->cache().tables(); ++t) positions.push_back(positions_kept(sequence_->cache(), t));
    return positions;
  }
  void step() {
    if (fails_) {
      const auto before = kept();
      refuses_ = true;
      const bool begun = StepLoop::begin(share_);
      refuses_ = false;
      if (begun) return run();  // it needed no page
      ++failures_;
      share_.failure = nullptr;
      // Drops of these mechanisms are a change of their own, before the one that failed.
      const MechanismTraits& how = options_.method.how();
      if (!how.merges && how.reuses_slots) {
        EXPECT_EQ(kept(), before);
      }
    }
    ASSERT_TRUE(StepLoop::begin(share_));
    run();
  }
  void run() {
    StepShare* const share = &share_;
    loop_.run({&share, 1}, [&](std::span<StepShare* const> done) {
      ASSERT_EQ(done.front()->failure, nullptr);
      logits_.insert(logits_.end(), share_.logits.begin(), share_.logits.end());
    });
  }

  std::shared_ptr<Decoder> decoder_;
  SessionOptions options_;
  bool fails_, refuses_ = false;
  std::shared_ptr<PagePool> pool_;
  std::unique_ptr<Sequence> sequence_;
  StepShare share_;
  StepLoop loop_{decoder_};
  std::vector<float> logits_;
  int failures_ = 0;
};

TEST(FailedStep, ChangesNothing) {
  const std::vector<TokenId> text = random_tokens(90, 96);
  for (const char* method :
       {"full", "streaming:budget=24", "streaming:budget=24,mechanism=shift", "lazy:budget=24,every=6,max-drop=2",
        "h2o:budget=24", "h2o:budget=24,positions=cache", "keydiff:budget=24", "snapkv:budget=48,schedule=step",
        "h2o:budget=24,mechanism=gather", "knorm:budget=24,mechanism=append", "ems:budget=48",
        "h2o:budget=24,every=16,mechanism=match"}) {
    SCOPED_TRACE(method);
    Reader whole(method, false), tried(method, true);
    const std::vector<float> expected = whole.read(text, 40);
    EXPECT_EQ(tried.read(text, 40), expected);
    EXPECT_GE(tried.failures(), 2);
  }
}

}  // namespace
}  // namespace palimpsest::testing
