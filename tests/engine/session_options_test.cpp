// The type of a cache that is to fit: fewer bits first, then eviction.
#include "palimpsest/engine/sequence/session_options.h"

#include <gtest/gtest.h>

#include <memory>

#include "palimpsest/model/model.h"
#include "palimpsest/model/synthetic/synthetic.h"

namespace palimpsest::testing {
namespace {

std::shared_ptr<Model> tiny(int head_dim, const char* shape = "tiny@vocab=300") {
  SyntheticShape of = parse_synthetic(shape);
  of.head_dim = head_dim;
  return Model::from(make_synthetic(of));
}

// The bytes of all that the method would keep, in a type.
std::size_t whole(const Hyperparameters& hyper, SessionOptions options, CacheTypes type) {
  options.cache_type = type;
  return cache_bytes(MethodPlan(options.method, plan_target(hyper, options)));
}

TEST(FittingCacheType, IsTheFirstThatHoldsWhatTheMethodWouldKeep) {
  const auto model = tiny(32);
  const Hyperparameters& hyper = model->hyper();
  SessionOptions options;
  for (const char* method : {"streaming:budget=500", "h2o:budget=500"}) {
    options.method = parse_method(method);
    const std::size_t f16 = whole(hyper, options, CacheType::kF16), q8 = whole(hyper, options, CacheType::kQ8_0);
    const CacheTypes both = {CacheType::kQ8_0, CacheType::kQ4};
    const std::size_t mixed = whole(hyper, options, both);
    ASSERT_TRUE(mixed < q8 && q8 < f16);
    const auto fitting = [&](std::size_t memory) {
      options.auto_memory = memory;
      return fitting_cache_type(hyper, options);
    };
    EXPECT_EQ(fitting(0), CacheType::kF16) << "no limit";
    EXPECT_EQ(fitting(f16), CacheType::kF16);
    EXPECT_EQ(fitting(f16 - 1), CacheType::kQ8_0);
    EXPECT_EQ(fitting(q8), CacheType::kQ8_0);
    EXPECT_EQ(fitting(q8 - 1), both);
    EXPECT_EQ(fitting(mixed / 2), both) << "the last, and the method evicts";
  }
}

TEST(FittingCacheType, OfABudgetThatFollowsMemory) {
  const auto model = tiny(32, "tiny@vocab=300@context=8192");
  SessionOptions options;
  options.method = parse_method("streaming:budget=auto");
  options.chunk = 64;
  options.auto_memory = std::size_t{1} << 40;
  EXPECT_EQ(fitting_cache_type(model->hyper(), options), CacheType::kF16);
  // Of what all of the context takes in f16.
  SessionOptions all = options;
  all.auto_memory = 0;
  const MethodPlan plan(all.method, plan_target(model->hyper(), all));
  const std::size_t bytes = cache_bytes(plan);
  options.auto_memory = bytes * 7 / 10;
  EXPECT_EQ(fitting_cache_type(model->hyper(), options), CacheType::kQ8_0);
  options.auto_memory = bytes * 4 / 10;
  const CacheTypes last = {CacheType::kQ8_0, CacheType::kQ4};
  EXPECT_EQ(fitting_cache_type(model->hyper(), options), last);
  options.auto_memory = bytes / 10;
  EXPECT_EQ(fitting_cache_type(model->hyper(), options), last);
}

TEST(FittingCacheType, OfABudgetInBytes) {
  const auto model = tiny(32, "tiny@vocab=300@context=8192");
  const auto fitting = [&](std::size_t bytes) {
    SessionOptions options;
    options.method = parse_method("streaming:budget=auto");
    options.chunk = 64;
    options.method.budget = kByteBudget;
    options.method.budget_bytes = bytes;
    return fitting_cache_type(model->hyper(), options);
  };
  SessionOptions all;
  all.method = parse_method("streaming:budget=auto");
  all.chunk = 64;
  const std::size_t bytes = cache_bytes(MethodPlan(all.method, plan_target(model->hyper(), all)));
  EXPECT_EQ(fitting(bytes * 2), CacheType::kF16);
  EXPECT_EQ(fitting(bytes * 7 / 10), CacheType::kQ8_0);
  EXPECT_EQ(fitting(bytes * 45 / 100), CacheTypes(CacheType::kQ8_0, CacheType::kQ4));
  EXPECT_EQ(fitting(bytes / 10), CacheTypes(CacheType::kQ8_0, CacheType::kQ4)) << "the last, and the method evicts";
}

TEST(FittingCacheType, IsF16WhereNoOtherIsPossible) {
  const auto odd = tiny(20);  // groups of 32 do not fit
  SessionOptions options;
  options.method = parse_method("streaming:budget=500");
  options.auto_memory = 1000;
  EXPECT_EQ(fitting_cache_type(odd->hyper(), options), CacheType::kF16);
  options.method = parse_method("full");
  EXPECT_EQ(fitting_cache_type(tiny(32)->hyper(), options), CacheType::kF16);
}

}  // namespace
}  // namespace palimpsest::testing
