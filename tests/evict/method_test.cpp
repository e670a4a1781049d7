#include "palimpsest/evict/method.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

TEST(Method, PresetsAreValidAndNamedOnce) {
  std::set<std::string_view> names;
  for (const auto& row : methods()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(row.preset.name, row.name);
    EXPECT_FALSE(row.summary.empty());
    EXPECT_NO_THROW(validate(row.preset)) << row.name;
    EXPECT_EQ(parse_method(row.name), row.preset);
    EXPECT_EQ(parse_method(spell_out(row.preset)), row.preset);
  }
}

TEST(Method, Streaming) {
  const Method m = parse_method("streaming");
  EXPECT_EQ(m.policy, "recent");
  EXPECT_EQ(m.protection, (Protection{.sinks = 4, .recent = 0}));
  EXPECT_EQ(m.budget, 256);
  EXPECT_EQ(m.interval, 1);
  EXPECT_EQ(m.mechanism, Mechanism::kInPlace);
  EXPECT_EQ(m.positions, Positions::kCache);
  EXPECT_TRUE(m.windowed() && m.bounded());
  EXPECT_EQ(
      spell_out(m),
      "streaming:policy=recent,budget=256,split=uniform,sinks=4,recent=0,pin=none,schedule=step,prompt-max=0,every=1,"
      "slack=0,max-"
      "drop=0,"
      "overlap=0,refresh=0,evict=before,mechanism=in-place,page=auto,page-score=mean,gamma=4,tau=0.6,similarity="
      "clipped,merged-key=unit,"
      "zero-class=off,join=class,merge-position=representative,references=32,positions=cache,rerotate=auto,"
      "recall=0,recall-every=1,recall-type=q4,recall-max=65536,recall-heads=1,lossless=false,"
      "scorer=auto,cache=on,window=auto,pooling=auto,kernel=auto,chunk=auto,spiky=auto,first=auto,size=auto,part=auto,"
      "score=auto,per=auto,large=auto");
}

TEST(Method, FullIsUnbounded) {
  EXPECT_FALSE(parse_method("full").bounded());
  EXPECT_EQ(
      spell_out(parse_method("full")),
      "full:policy=none,budget=0,split=uniform,sinks=0,recent=0,pin=none,schedule=step,prompt-max=0,every=1,slack=0,"
      "max-drop=0,"
      "overlap=0,"
      "refresh=0,evict=before,mechanism=in-place,page=auto,page-score=mean,gamma=4,tau=0.6,similarity=clipped,merged-"
      "key=unit,zero-class=off,"
      "join=class,merge-position=representative,references=32,positions=original,rerotate=auto,"
      "recall=0,recall-every=1,recall-type=q4,recall-max=65536,recall-heads=1,lossless=false,"
      "scorer=auto,cache=on,window=auto,pooling=auto,kernel=auto,chunk=auto,spiky=auto,first=auto,size=auto,part=auto,"
      "score=auto,per=auto,large=auto");
}

TEST(Method, EveryKeyIsReadAndSpelledOut) {
  const char* text =
      "full:policy=recent,budget=77,split=heads.txt,sinks=3,recent=half,pin=none,schedule=prompt+step,prompt-max=90,"
      "every=9,slack=2,"
      "max-drop="
      "6,"
      "overlap=5,refresh=1,evict=after,mechanism=gather,page=24,page-score=norms,gamma=3,tau=0.25,similarity=product,"
      "merged-key=mean,"
      "zero-class=on,join=next,merge-position=own,references=24,positions=cache,rerotate=cached-half,"
      "recall=4,recall-every=8,recall-type=q8_0,recall-max=512,recall-heads=0.3,lossless=true,"
      "scorer=auto,cache=off,window=16,pooling=avg,kernel=5,chunk=8,spiky=3,first=0.25,size=projected,part=32,score="
      "local,per=head,large=0.125";
  const Method m = parse_method(text);
  EXPECT_EQ(m.policy, "recent");
  EXPECT_EQ(m.budget, 77);
  EXPECT_EQ(m.recall_every, 8);
  EXPECT_EQ(m.protection, (Protection{.sinks = 3, .recent = Protection::kHalf}));
  EXPECT_EQ(m.recent(), 38);
  EXPECT_EQ(m.split.text(), "heads.txt");
  EXPECT_EQ(m.schedule, Schedule::kPromptStep);
  EXPECT_EQ(m.interval, 9);
  EXPECT_EQ(m.headroom, 2);
  EXPECT_EQ(m.max_drop, 6);
  EXPECT_EQ(m.overlap, 5);
  EXPECT_EQ(m.spare, 1);
  EXPECT_TRUE(m.evict_after);
  EXPECT_FALSE(m.cache);
  EXPECT_EQ(m.of_policy, (PolicyOptions{{"score", "local"},
                                        {"window", "16"},
                                        {"pooling", "avg"},
                                        {"kernel", "5"},
                                        {"chunk", "8"},
                                        {"spiky", "3"},
                                        {"first", "0.25"},
                                        {"size", "projected"},
                                        {"large", "0.125"},
                                        {"part", "32"},
                                        {"per", "head"}}));
  EXPECT_EQ(m.recall, 4);
  EXPECT_EQ(m.recall_type, CacheType::kQ8_0);
  EXPECT_EQ(m.recall_max, 512);
  EXPECT_EQ(m.recall_heads, 0.3);
  EXPECT_TRUE(m.lossless);
  EXPECT_EQ(m.similarity, Similarity::kProduct);
  EXPECT_EQ(m.merged_key, MergedKey::kMean);
  EXPECT_TRUE(m.zero_class);
  EXPECT_EQ(m.mechanism, Mechanism::kGather);
  EXPECT_EQ(m.references, 24);
  EXPECT_EQ(m.positions, Positions::kCache);
  EXPECT_EQ(m.rerotate, Rerotate::kCachedHalf);
  EXPECT_EQ(spell_out(m), text);
}

TEST(Method, TheShortFormIsThePresetAndWhatDiffersFromIt) {
  EXPECT_EQ(spell_short(parse_method("streaming")), "streaming");
  EXPECT_EQ(spell_short(parse_method("streaming:budget=512")), "streaming:budget=512");
  EXPECT_EQ(spell_short(parse_method("streaming:budget=256,sinks=4")), "streaming");
  EXPECT_EQ(spell_short(parse_method("snapkv:schedule=step,recent=half")), "snapkv:recent=half,schedule=step");
  EXPECT_EQ(spell_short(parse_method("full:policy=recent,budget=9")), "full:policy=recent,budget=9");
  for (const char* text : {"full", "h2o:budget=33,positions=cache", "ems:gamma=2,tau=0.25,merge-position=own",
                           "compact-shift:mechanism=gather", "window-recompute:budget=64", "learned:scorer=a.scorer"})
    EXPECT_EQ(parse_method(spell_short(parse_method(text))), parse_method(text)) << text;
  EXPECT_EQ(spell_changes(parse_method("full")), "");
  EXPECT_EQ(spell_changes(parse_method("streaming")), "policy=recent,budget=256,sinks=4,positions=cache");
}

// Sinks and recent tokens as shares of the budget.
TEST(Method, ProtectionAsAShare) {
  const Method m = parse_method("h2o:budget=250,sinks=0.1,recent=0.3");
  EXPECT_EQ(m.sinks(), 25);
  EXPECT_EQ(m.recent(), 75);
  EXPECT_EQ(m.recent(100), 30);  // of a head that has 100
  EXPECT_EQ(parse_method("h2o:budget=250,recent=0.3,split=pyramid").recent(100), 75);
  EXPECT_EQ(parse_method(spell_out(m)), m);
  EXPECT_EQ(get_option(m, "sinks"), "0.1");
  EXPECT_EQ(get_option(parse_method("h2o:recent=0.5"), "recent"), "half");
  EXPECT_EQ(parse_method("h2o:sinks=half").sinks(), 128);
  EXPECT_EQ(parse_method("h2o:budget=100,sinks=0.29").sinks(), 29);
  for (const char* bad : {"0.0", "1.0", "-0.1", "0.5x", ".", "1.5"})
    EXPECT_NE(
        error_of([&] { parse_method(std::string("h2o:recent=") + bad); }).find("neither a whole number nor a share"),
        std::string::npos)
        << bad;
  EXPECT_NE(
      error_of([] { validate(parse_method("h2o:sinks=0.7,recent=0.4")); }).find("is below sinks 179 + recent 102"),
      std::string::npos);
}

TEST(Method, ProtectionInWords) {
  EXPECT_EQ(spell_protection(parse_method("full")), "");
  EXPECT_EQ(spell_protection(parse_method("knorm")), "4 sinks and the newest 16");
  EXPECT_EQ(spell_protection(parse_method("knorm:sinks=0,recent=0")), "none");
  EXPECT_EQ(spell_protection(parse_method("streaming")), "4 sinks");
  EXPECT_EQ(spell_protection(parse_method("h2o")), "the newest 128");
  EXPECT_EQ(spell_protection(parse_method("h2o:sinks=1,recent=0.25")), "1 sink and the newest 64");
  EXPECT_EQ(spell_protection(parse_method("h2o:split=heads.txt,recent=0.25")), "the newest 0.25 of each head's budget");
}

TEST(Method, TheLastOfTwoEqualKeysHolds) {
  EXPECT_EQ(parse_method("streaming:budget=10,budget=20").budget, 20);
}

struct Fault {
  const char *text, *message;
};

TEST(Method, StringsThatCannotBeRead) {
  const Fault faults[] = {
      {"",
       "unknown method '': use auto, full, streaming, lazy, h2o, peak, a2sf, random, tova, snapkv, critical, "
       "chunkkv, cur, capkv, leverage, qfilter, vase, pyramidkv, "
       "adakv, "
       "expected-attention, triattention, kvzip, scissorhands, lagkv, r-kv, "
       "global-local, ems, cam, paged-eviction, knorm, keydiff, duo, learned, kvzap, temporal, sparse, "
       "compact-shift or window-recompute"},
      {"Streaming",
       "unknown method 'Streaming'; did you mean 'streaming'? Use auto, full, streaming, lazy, h2o, peak, a2sf, "
       "random, tova, snapkv, critical, "
       "chunkkv, cur, capkv, leverage, qfilter, vase, pyramidkv, adakv, "
       "expected-attention, triattention, kvzip, scissorhands, lagkv, r-kv, "
       "global-local, ems, cam, paged-eviction, knorm, keydiff, duo, learned, kvzap, temporal, sparse, "
       "compact-shift or window-recompute"},
      {"streaming ",
       "unknown method 'streaming '; did you mean 'streaming'? Use auto, full, streaming, lazy, h2o, peak, a2sf, "
       "random, tova, snapkv, critical, "
       "chunkkv, cur, capkv, leverage, qfilter, vase, pyramidkv, adakv, "
       "expected-attention, triattention, kvzip, scissorhands, lagkv, r-kv, "
       "global-local, ems, cam, paged-eviction, knorm, keydiff, duo, learned, kvzap, temporal, sparse, "
       "compact-shift or "
       "window-recompute"},
      {":budget=1",
       "unknown method '': use auto, full, streaming, lazy, h2o, peak, a2sf, random, tova, snapkv, critical, "
       "chunkkv, cur, capkv, leverage, qfilter, vase, pyramidkv, "
       "adakv, "
       "expected-attention, triattention, kvzip, scissorhands, lagkv, r-kv, "
       "global-local, ems, cam, paged-eviction, knorm, keydiff, duo, learned, kvzap, temporal, sparse, "
       "compact-shift or window-recompute"},
      {"streaming:", "method 'streaming:' ends with a colon: use NAME or NAME:key=value,key=value"},
      {"streaming:256", "'256' in method 'streaming:256' is not key=value"},
      {"streaming:budget=8,", "a comma at the end of method 'streaming:budget=8,'"},
      {"streaming:bugdet=8",
       "unknown method option 'bugdet'; did you mean 'budget'? Use policy, budget, split, sinks, recent, pin, "
       "schedule, prompt-max, every, "
       "slack, "
       "max-drop, "
       "overlap, refresh, evict, mechanism, page, page-score, gamma, tau, similarity, merged-key, zero-class, join, "
       "merge-position, references, positions, rerotate, recall, recall-every, recall-type, recall-max, recall-heads, "
       "lossless, "
       "scorer, cache, "
       "window, "
       "pooling, "
       "kernel, chunk, spiky, first, size, part, score, per or large"},
      {"streaming:budget=many", "budget 'many' is not a whole number: use 0 to 1073741824"},
      {"streaming:budget=-1", "budget -1 is out of range: use 0 to 1073741824"},
      {"streaming:sinks=4.5",
       "sinks '4.5' is neither a whole number nor a share of the budget: use 0 to 1073741824, or 0.01 to 0.99"},
      {"streaming:every=-1", "every -1 is out of range: use 0 to 1073741824"},
      {"streaming:mechanism=inplace",
       "unknown mechanism 'inplace': use in-place, shift, gather, block, append, merge or match"},
      {"h2o:lossless=on", "unknown lossless 'on': use false or true"},
      {"streaming:positions=true", "unknown positions 'true': use original, cache or auto"},
      {"streaming:rerotate=early",
       "unknown rerotate 'early': use auto, two-query, fused, cached-half, recompute or delta"},
  };
  for (const auto& fault : faults) EXPECT_EQ(error_of([&] { parse_method(fault.text); }), fault.message) << fault.text;
  EXPECT_TRUE(error_of([] { parse_method("full:policy=newest"); }).starts_with("unknown policy 'newest': use none"));
}

// An option is declared in the policy's file alone.
class Leaning final : public Policy {
 public:
  std::vector<PolicyOption> options() override { return {count_option({"lean", "1..9", "what it adds"}, lean_, 9)}; }
  Signals signals() const override { return {}; }
  void score(const HeadView&, std::span<float> score) const override {
    std::ranges::fill(score, static_cast<float>(lean_));
  }

 private:
  int lean_ = 3;
};
PALIMPSEST_POLICY(leaning, Leaning, "all equal")

TEST(Method, OptionsOfAPolicyAreKeys) {
  register_policy(policy_entry_leaning("test-leaning"));
  const auto score_of = [](const Method& m) {
    float score = 0;
    make_policy(m.policy, m.of_policy)->score({}, {&score, 1});
    return score;
  };
  const Method m = parse_method("random:policy=test-leaning,lean=07");
  EXPECT_EQ(get_option(m, "lean"), "7");
  EXPECT_EQ(score_of(m), 7);
  EXPECT_EQ(parse_method(spell_out(m)), m);
  EXPECT_EQ(spell_short(m), "random:policy=test-leaning,lean=7");
  EXPECT_EQ(score_of(parse_method("random:policy=test-leaning,lean=7,lean=auto")), 3);
  EXPECT_EQ(error_of([] { parse_method("random:lean=10"); }), "lean 10 is out of range: use 1 to 9");
  EXPECT_EQ(error_of([] { validate(parse_method("random:lean=5")); }),
            "lean 5 with policy random, which has no such option: leave it out");
  EXPECT_EQ(error_of([] { parse_method("snapkv:kernel=6"); }),
            "kernel 6 is even: it has as many neighbours on both sides; use 5 or 7");
  EXPECT_EQ(error_of([] { parse_method("snapkv:pooling=mean"); }),
            "unknown pooling 'mean': use auto, avg, max or none");
  const std::vector<MethodKey> keys = method_keys();
  EXPECT_EQ(std::ranges::find(keys, "lean", &MethodKey::name)->meaning, "test-leaning: what it adds");
  EXPECT_TRUE(std::ranges::find(keys, "window", &MethodKey::name)
                  ->meaning.starts_with("chunkkv, critical, global-local, snapkv: "));
}

TEST(Method, Pins) {
  const auto pins_of = [](const char* text) { return get_option(parse_method(text), "pin"); };
  EXPECT_EQ(pins_of("h2o"), "none");
  EXPECT_EQ(pins_of("h2o:pin=20-29+0-9"), "0-9+20-29");
  EXPECT_EQ(pins_of("h2o:pin=20-29+5-19+7-7"), "5-29");  // adjacent and overlapping spans are one
  EXPECT_EQ(pins_of("h2o:pin=3-3,pin=none"), "none");
  const Method m = parse_method("streaming:pin=2-9+30-39");
  EXPECT_EQ(parse_method(spell_out(m)), m);
  EXPECT_EQ(spell_short(m), "streaming:pin=2-9+30-39");
  EXPECT_EQ(m.sinks(), 10);  // those at the start are sinks
  EXPECT_EQ(m.pinned(), 10);
  EXPECT_FALSE(m.windowed());
  EXPECT_TRUE(parse_method("streaming:pin=4-9").strict());
  EXPECT_EQ(parse_method("streaming:pin=5-9").sinks(), 4);
  EXPECT_EQ(parse_method("streaming:pin=0-1+3-5").sinks(), 6);
  EXPECT_EQ(spell_protection(m), "4 sinks and 18 pinned");
  EXPECT_EQ(spell_protection(parse_method("h2o:pin=0-9")), "10 pinned and the newest 128");
  EXPECT_EQ(spell_protection(parse_method("h2o:sinks=1,pin=0-9")), "1 sink, 10 pinned and the newest 128");
  Method more = m;
  add_pins(more, std::vector<PositionRange>{{10, 12}, {7, 7}});
  EXPECT_EQ(get_option(more, "pin"), "2-11+30-39");
  Method full = parse_method("full");
  add_pins(full, std::vector<PositionRange>{{0, 9}});  // keeps all tokens anyway
  for (const char* text : {"prompt", "prompt+20-29"})
    EXPECT_EQ(pins_of(("h2o:pin=" + std::string(text)).c_str()), text);
  EXPECT_EQ(pins_of("h2o:pin=20-29+prompt+0-3"), "prompt+0-3+20-29");
  EXPECT_EQ(pins_of("h2o:pin=prompt,pin=0-3"), "0-3");
  Method prompt = parse_method("h2o:pin=prompt+20-29"), none = parse_method("h2o:pin=4-5");
  pin_prompt(prompt, 22);
  pin_prompt(none, 22);
  EXPECT_EQ(get_option(prompt, "pin"), "0-29");
  EXPECT_EQ(get_option(none, "pin"), "4-5");
  EXPECT_EQ(full, parse_method("full"));

  const auto fault = [](const std::string& text) { return error_of([&] { validate(parse_method(text)); }); };
  EXPECT_EQ(fault("h2o:pin=5"), "pin '5' is no span of positions: use prompt, or FIRST-LAST, as in 0-99+200-219");
  EXPECT_EQ(fault("h2o:pin=9-5"), "pin '9-5': the last position is before the first");
  EXPECT_EQ(fault("h2o:pin=0-1073741824"), "pin 1073741824 is out of range: use 0 to 1073741823");
  EXPECT_EQ(
      fault("streaming:pin=100-400"),
      "budget 256 is below sinks 4 + recent 0 + pinned 301 + 1: raise it to at least 306 or protect fewer tokens");
  EXPECT_EQ(fault("streaming:pin=0-300"),
            "budget 256 is below sinks 301 + recent 0 + 1: raise it to at least 302 or protect fewer tokens");
  EXPECT_EQ(fault("window-recompute:pin=9-12"),
            "cache off is the window-recompute baseline: it takes a budget, sinks and recent, and nothing else");
  std::string many = "h2o:pin=0-0";
  for (int i = 1; i <= kMaxPins; ++i) many += "+" + std::to_string(2 * i) + "-" + std::to_string(2 * i);
  EXPECT_EQ(fault(many), "65 pinned spans of positions: at most 64");
}

TEST(Method, CombinationsThatCannotBe) {
  const Fault faults[] = {
      {"full:budget=256",
       "budget 256 with policy none: nothing is ever evicted; choose a policy or leave the budget out"},
      {"full:sinks=4",
       "sinks, recent or pin with policy none: nothing is ever evicted; choose a policy or leave them out"},
      {"full:pin=0-9",
       "sinks, recent or pin with policy none: nothing is ever evicted; choose a policy or leave them out"},
      {"streaming:pin=9-12,rerotate=two-query",
       "rerotate two-query with policy recent and pinned tokens: it holds for sinks + window (policy recent) only; use "
       "fused"},
      {"full:every=2", "every 2 with policy none: nothing is ever evicted; choose a policy or leave it out"},
      {"streaming:budget=0", "policy recent needs a budget: give one of at least 5"},
      {"streaming:budget=4",
       "budget 4 is below sinks 4 + recent 0 + 1: raise it to at least 5 or protect fewer tokens"},
      {"streaming:budget=256,recent=252",
       "budget 256 is below sinks 4 + recent 252 + 1: raise it to at least 257 or protect fewer tokens"},
      {"streaming:sinks=1073741824,recent=1073741824,budget=9",
       "budget 9 is below sinks 1073741824 + recent 1073741824 + 1: raise it to at least 2147483649 or protect fewer "
       "tokens"},
      {"streaming:budget=1073741824,every=1",
       "budget 1073741824 + every 1 is out of range: at most 1073741824 together"},
      {"streaming:positions=original,rerotate=fused",
       "rerotate fused with original positions: keys are never rotated again; use positions=cache or rerotate=auto"},
      {"streaming:slack=252",
       "budget 256 is below sinks 4 + recent 0 + slack 252 + 1: raise it to at least 257 or protect "
       "fewer tokens"},
      {"streaming:schedule=page,every=2", "every 2 with schedule page: it evicts when a page is full; leave every out"},
      {"streaming:rerotate=delta",
       "rerotate delta with mechanism in-place: no key moves there; use mechanism=shift, or rerotate=fused"},
      {"streaming:refresh=8,rerotate=two-query",
       "rerotate two-query with policy recent and refresh: it holds for sinks + window (policy recent) only; use "
       "fused"},
      {"streaming:mechanism=append,rerotate=delta",
       "rerotate delta with mechanism append: no key moves there; use mechanism=shift, or rerotate=fused"},
      {"streaming:mechanism=block,rerotate=two-query",
       "rerotate two-query with policy recent and mechanism block: it holds for sinks + window (policy recent) only; "
       "use "
       "fused"},
      {"paged-eviction:every=16",
       "every, slack, max-drop, overlap or refresh with mechanism block: it evicts a page at a time; leave them out"},
      {"full:schedule=prompt",
       "schedule, slack, max-drop, overlap, refresh, evict or split with policy none: nothing is ever evicted; choose "
       "a policy or leave them out"},
      {"adakv:schedule=step,max-drop=2",
       "split ada with schedule step and max-drop: each decision compares a layer's heads, and must be carried out; "
       "leave max-drop out"},
      {"adakv:mechanism=block",
       "split ada with mechanism block: a head's share may be less than a page; use mechanism=in-place"},
      {"window-recompute:every=4",
       "cache off is the window-recompute baseline: it takes a budget, sinks and recent, and nothing else"},
      {"full:positions=cache,rerotate=two-query",
       "rerotate two-query with policy none: it holds for sinks + window (policy recent) only; use fused"},
  };
  for (const auto& fault : faults)
    EXPECT_EQ(error_of([&] { validate(parse_method(fault.text)); }), fault.message) << fault.text;
}

TEST(Method, TheSmallestBudgetsThatCanBe) {
  for (const char* text : {"streaming:budget=5", "streaming:sinks=0,budget=1", "streaming:recent=251",
                           "full:positions=cache", "streaming:every=1000", "streaming:rerotate=two-query"})
    EXPECT_NO_THROW(validate(parse_method(text))) << text;
}

}  // namespace
}  // namespace palimpsest::testing
