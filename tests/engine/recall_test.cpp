// recall: with all pages of evicted tokens, whatever the policy evicts, a session computes what the full cache does.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/snapshot.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/error_of.h"
#include "tests/support/own_file.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

constexpr int kRecallPrompt = 150, kRecallDecoded = 80;
constexpr const char* kRecallAll = ",recall=1000,recall-type=f32";

std::shared_ptr<Decoder> recall_decoder(int threads) {
  return std::make_shared<Decoder>(Model::from(make_synthetic({.vocabulary = 96,
                                                               .width = 64,
                                                               .layers = 3,
                                                               .feed_forward = 96,
                                                               .query_heads = 6,
                                                               .kv_heads = 2,
                                                               .head_dim = 32,
                                                               .context = 1024,
                                                               .seed = 1})),
                                   threads);
}

float most_different(std::span<const float> a, std::span<const float> b) {
  float most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// The decoder's sessions share the memory of logits.
std::vector<float> own_logits(std::span<const float> logits) {
  return {logits.begin(), logits.end()};
}

constexpr const char* kRecalling[] = {"streaming:budget=40,positions=original",
                                      "h2o:budget=40",
                                      "keydiff:budget=40",
                                      "keydiff:budget=40,mechanism=shift,every=8",
                                      "random:budget=40,mechanism=append",
                                      "knorm:budget=40,mechanism=gather,every=4",
                                      "snapkv:budget=40",
                                      "tova:budget=40,schedule=prompt+step",
                                      "paged-eviction:budget=64",
                                      "pyramidkv:budget=80"};

TEST(Recall, OfAllPagesIsTheFullCache) {
  const auto tokens = random_tokens(kRecallPrompt + kRecallDecoded, 1);
  for (const int threads : {1, 3}) {
    const auto decoder = recall_decoder(threads);
    for (const std::string method : kRecalling) {
      Session full(decoder, session_options("full", 32)), mine(decoder, session_options(method + kRecallAll, 32)),
          without(decoder, session_options(method, 32));
      float lost = 0;
      const auto compare = [&](std::span<const float> a, std::span<const float> b, std::span<const float> c, int at) {
        ASSERT_LT(most_different(a, b), 2e-4) << method << ", token " << at << ", " << threads << " threads";
        lost = std::max(lost, most_different(b, c));
      };
      const auto prompt = std::span(tokens).first(kRecallPrompt);
      compare(own_logits(mine.prefill(prompt)), own_logits(full.prefill(prompt)), own_logits(without.prefill(prompt)),
              kRecallPrompt);
      for (int i = kRecallPrompt; i < kRecallPrompt + kRecallDecoded; ++i)
        compare(own_logits(mine.decode(tokens[at(i)])), own_logits(full.decode(tokens[at(i)])),
                own_logits(without.decode(tokens[at(i)])), i);
      EXPECT_GT(lost, 1e-2) << method << " lost nothing without recall";
      EXPECT_LE(mine.cache().occupied(), without.cache().occupied()) << method;
      EXPECT_EQ(mine.sequence().recall()->tokens(0) + mine.cache().table(0).occupied(), kRecallPrompt + kRecallDecoded)
          << method;
      EXPECT_LE(mine.sequence().recall()->bytes(),
                mine.sequence().plan().bytes(kRecallPrompt, kRecallPrompt + kRecallDecoded).recall);
    }
  }
}

TEST(Recall, ResultsDoNotDependOnThreads) {
  const auto tokens = random_tokens(200, 2);
  std::vector<float> first;
  for (const int threads : {1, 2, 5}) {
    Session session(recall_decoder(threads), session_options("h2o:budget=32,recall=2", 50));
    const auto logits = session.prefill(tokens);
    if (first.empty()) first.assign(logits.begin(), logits.end());
    EXPECT_EQ(first, std::vector<float>(logits.begin(), logits.end())) << threads;
  }
}

TEST(Recall, ForkAndRewind) {
  const auto decoder = recall_decoder(1);
  const auto tokens = random_tokens(200, 3), others = random_tokens(60, 4);
  Session full(decoder, session_options("full", 32)),
      mine(decoder, session_options("h2o:budget=40" + std::string(kRecallAll), 32));
  full.prefill(tokens);
  mine.prefill(tokens);
  const auto fork = mine.fork();
  for (const Position to : {190, 120}) {
    full.rewind(to);
    mine.rewind(to);
    for (const TokenId token : others)
      ASSERT_LT(most_different(own_logits(mine.decode(token)), own_logits(full.decode(token))), 2e-4) << to;
  }
  full.clear();
  full.prefill(tokens);
  for (const TokenId token : others)
    ASSERT_LT(most_different(own_logits(fork->decode(token)), own_logits(full.decode(token))), 2e-4);
  mine.clear();
  EXPECT_TRUE(mine.sequence().recall()->empty());
}

TEST(Recall, ChoosesAtEverySuchPosition) {
  const auto decoder = recall_decoder(1);
  const auto tokens = random_tokens(240, 8);
  const auto session = [&](const std::string& more) {
    return Session(decoder, session_options("streaming:budget=32,positions=original,recall=2" + more, 50));
  };
  Session always = session(""), sometimes = session(",recall-every=4"),
          all = session("0000,recall-every=4,recall-type=f32"), full(decoder, session_options("full", 50));
  const auto prompt = std::span(tokens).first(199);
  EXPECT_EQ(own_logits(always.prefill(prompt)), own_logits(sometimes.prefill(prompt)));
  EXPECT_LT(most_different(own_logits(all.prefill(prompt)), own_logits(full.prefill(prompt))), 2e-4);
  // Position 199 is read as the 200th token: it chooses, as after the prompt.
  EXPECT_EQ(own_logits(always.decode(tokens[199])), own_logits(sometimes.decode(tokens[199])));
  int different = 0;
  for (std::size_t i = 200; i < tokens.size(); ++i)
    different += own_logits(always.decode(tokens[i])) != own_logits(sometimes.decode(tokens[i])) ? 1 : 0;
  EXPECT_GT(different, 10);
  // Forgotten tokens may be in the pages that were chosen: the next query chooses.
  always.rewind(150);
  sometimes.rewind(150);
  EXPECT_EQ(always.sequence().recall()->tokens(0), sometimes.sequence().recall()->tokens(0));
  EXPECT_LE(sometimes.sequence().recall()->bytes(), sometimes.sequence().plan().bytes(240, 240).recall);
}

// Heads with the greatest shares of the file have a tier, and compute what they compute if all have one.
TEST(Recall, OfSomeHeads) {
  const auto decoder = recall_decoder(1);
  const std::string file = own_file("recall.profile");
  std::ofstream(file) << "0 0 0.5x\n0 1 2x\n1 0 0.1x\n1 1 0.2x\n2 0 3x\n2 1 0.2x\n";
  SessionOptions options = session_options("h2o:budget=40,recall=1000,recall-type=f32,recall-heads=0.4", 32);
  options.profile_file = file;
  Session some(decoder, options), all(decoder, session_options("h2o:budget=40,recall=1000,recall-type=f32", 32));
  const auto tokens = random_tokens(200, 3);
  const auto of_some = own_logits(some.prefill(tokens)), of_all = own_logits(all.prefill(tokens));
  EXPECT_GT(most_different(of_some, of_all), 0);
  for (int head = 0; head < 6; ++head) {
    const bool recalls = head == 4 || head == 1 || head == 0;  // 0.4 of 6, rounded up
    EXPECT_EQ(some.sequence().plan().recalls(head), recalls) << head;
    EXPECT_EQ(some.sequence().recall()->tokens(head) > 0, recalls) << head;
  }
  EXPECT_LT(some.sequence().recall()->bytes(), all.sequence().recall()->bytes() * 6 / 10);
  EXPECT_LE(some.sequence().recall()->bytes(), some.sequence().plan().bytes(200, 200).recall);
  options.method = session_options("h2o:budget=40,recall=1000,recall-type=f32,recall-heads=0.9", 32).method;
  Session rounded_up(decoder, options);
  EXPECT_EQ(most_different(own_logits(rounded_up.prefill(tokens)), of_all), 0);
  options.profile_file.clear();
  EXPECT_NE(error_of([&] { Session(decoder, options); }).find("`palimpsest fit --quick -m MODEL`"), std::string::npos);
}

TEST(Recall, TheTierIsBounded) {
  const auto decoder = recall_decoder(1);
  Session session(decoder, session_options("streaming:budget=32,positions=original,recall=2,recall-max=64", 16));
  const auto tokens = random_tokens(600, 5);
  session.prefill(tokens);
  const std::size_t bytes = session.sequence().recall()->bytes();
  EXPECT_LE(session.sequence().recall()->tokens(0), 64);
  EXPECT_LE(bytes, session.sequence().plan().bytes(-1 + 600, 600).recall);
  session.prefill(tokens);
  EXPECT_EQ(session.sequence().recall()->bytes(), bytes);
}

TEST(Recall, RefusesEditsAndSnapshots) {
  const auto decoder = recall_decoder(1);
  Session session(decoder, session_options("h2o:budget=40,recall=2", 32));
  session.prefill(random_tokens(100, 6));
  EXPECT_NE(error_of([&] { session.edit(95, 97, random_tokens(2, 7)); }).find("leave recall out"), std::string::npos);
  const auto path = std::filesystem::temp_directory_path() / "palimpsest-recall-test.session";
  EXPECT_NE(error_of([&] { save_snapshot(path, session, nullptr, {}); }).find("leave recall out"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace palimpsest::testing
