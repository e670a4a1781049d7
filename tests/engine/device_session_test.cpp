// Sessions whose keys and values are in a device's storage (here the CPU's, with stock operators): snapshots, forks,
// and requests that run together.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "palimpsest/engine/sequence/lockstep.h"
#include "palimpsest/engine/sequence/snapshot.h"
#include "tests/engine/scheduler_fixture.h"
#include "tests/support/draws.h"
#include "tests/support/error_of.h"
#include "tests/support/rpc_server.h"
#include "tests/support/teacher_forced.h"

namespace palimpsest::testing {
namespace {

constexpr const char* kDeviceMethods[] = {"full",
                                          "streaming:budget=40",
                                          "streaming:budget=40,positions=original",
                                          "streaming:budget=40,mechanism=shift",
                                          "h2o:budget=40",
                                          "h2o:budget=40,positions=cache",
                                          "h2o:budget=40,positions=auto",
                                          "tova:budget=40,mechanism=gather",
                                          "snapkv:budget=48",
                                          "keydiff:budget=40,every=4",
                                          "lagkv:budget=40,every=4",
                                          "knorm:budget=40,split=pyramid"};

// Pairs of neighbours are rotated ("tiny", RoPE by pairs) and halves; both in heads of 32 dimensions, for q8_0.
std::shared_ptr<const Model> device_model(const std::string& architecture, const ModelOptions& options) {
  SyntheticShape shape = parse_synthetic(architecture == "llama" ? "tiny" : "tiny-" + architecture);
  shape.vocabulary = kVocabulary;
  shape.head_dim = 32;
  return Model::from(make_synthetic(shape), options);
}

std::shared_ptr<Decoder> on_device(const std::string& architecture = "llama") {
  return std::make_shared<Decoder>(device_model(architecture, {.device = "cpu", .portable = true}), 1);
}

SessionOptions device_options(const std::string& method, CacheTypes type = CacheType::kF32) {
  SessionOptions options;
  options.method = parse_method(method);
  options.cache_type = type;
  options.page_size = 16;
  return options;
}

std::vector<TokenId> some_text(int tokens) {
  std::mt19937 random(5);
  std::vector<TokenId> text;
  for (int i = 0; i < tokens; ++i) text.push_back(static_cast<TokenId>(random() % kVocabulary));
  return text;
}

std::vector<float> decoded(Session& session, std::span<const TokenId> tokens) {
  std::vector<float> all;
  for (const TokenId token : tokens) {
    const auto logits = session.decode(token);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

class DeviceSession : public ::testing::Test {
 protected:
  std::string path_ =
      (std::filesystem::temp_directory_path() / ("palimpsest-device-" + std::to_string(::getpid()))).string();
  ~DeviceSession() override { std::filesystem::remove(path_); }

  // Saves after 90 tokens, loads with `after`, and reads 20 more.
  std::vector<float> moved(const std::shared_ptr<Decoder>& before, const std::shared_ptr<Decoder>& after,
                           const SessionOptions& options) {
    const auto text = some_text(110);
    Session first(before, options), second(after, options);
    first.prefill(std::span(text).first(70));
    decoded(first, std::span(text).subspan(70, 20));
    save_snapshot(path_, first, nullptr, {.tokens = {text.begin(), text.begin() + 90}});
    load_snapshot(path_, second, nullptr);
    return decoded(second, std::span(text).subspan(90));
  }
  std::vector<float> stayed(const std::shared_ptr<Decoder>& decoder, const SessionOptions& options) {
    const auto text = some_text(110);
    Session session(decoder, options);
    session.prefill(std::span(text).first(70));
    decoded(session, std::span(text).subspan(70, 20));
    return decoded(session, std::span(text).subspan(90));
  }
};

TEST_F(DeviceSession, SavedAndLoadedToTheLastBit) {
  const auto decoder = on_device();
  for (const char* method : kDeviceMethods)
    for (const CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kQ8_0}) {
      SCOPED_TRACE(fmt::format("{} {}", method, name_of(type)));
      const SessionOptions options = device_options(method, type);
      EXPECT_EQ(moved(decoder, decoder, options), stayed(decoder, options));
    }
}

// A session that was saved on the CPU's fast path goes on on a device, and the other way round.
TEST_F(DeviceSession, GoesOnOnAnotherDevice) {
  for (const char* architecture : {"llama", "qwen2"}) {
    const auto device = on_device(architecture);
    const auto host = std::make_shared<Decoder>(device_model(architecture, {}), 1);
    for (const char* method : kDeviceMethods) {
      SCOPED_TRACE(fmt::format("{} {}", architecture, method));
      // Equal tokens have equal keys in the first layer, and scores that rounding orders.
      if (const std::string name = method; name.starts_with("k") || name.starts_with("lagkv")) continue;
      const SessionOptions options = device_options(method);
      const std::vector<float> truth = stayed(host, options);
      EXPECT_LE(max_relative_error(moved(host, device, options), truth, kVocabulary), 2e-5);
      EXPECT_LE(max_relative_error(moved(device, host, options), truth, kVocabulary), 2e-5);
    }
  }
}

// q8_0 keys of a model that pairs neighbours are in another order there.
TEST_F(DeviceSession, KeysOfBlocksStayWhereTheyAre) {
  const SessionOptions options = device_options("streaming:budget=40", CacheType::kQ8_0);
  const std::shared_ptr<Decoder> device = on_device(), host = std::make_shared<Decoder>(device_model("llama", {}), 1);
  for (const auto& [from, to] : {std::pair{device, host}, std::pair{host, device}})
    EXPECT_NE(error_of([&] { moved(from, to, options); }).find("in the order of another device"), std::string::npos);
}

TEST_F(DeviceSession, SavedAndLoadedOverRpc) {
  if (const std::string why = why_no_rpc(); !why.empty()) GTEST_SKIP() << why;
  const auto remote =
      std::make_shared<Decoder>(device_model("llama", {.rpc = two_rpc_servers(), .tensor_split = {1, 1}}), 1);
  const auto host = std::make_shared<Decoder>(device_model("llama", {}), 1);
  for (const char* method : {"streaming:budget=40", "h2o:budget=40"}) {
    SCOPED_TRACE(method);
    const SessionOptions options = device_options(method);
    EXPECT_EQ(moved(remote, remote, options), stayed(remote, options));
    EXPECT_LE(max_relative_error(moved(remote, host, options), stayed(host, options), kVocabulary), 2e-5);
  }
}

TEST_F(DeviceSession, ForksGoOnApart) {
  const auto decoder = on_device();
  const auto text = some_text(110), other = some_text(130);
  for (const char* method : kDeviceMethods) {
    SCOPED_TRACE(method);
    const SessionOptions options = device_options(method);
    Session session(decoder, options);
    session.prefill(std::span(text).first(70));
    decoded(session, std::span(text).subspan(70, 20));
    const auto fork = session.fork();
    decoded(*fork, std::span(other).subspan(110));  // must not change the first
    EXPECT_EQ(decoded(session, std::span(text).subspan(90)), stayed(decoder, options));
  }
}

// An edit in the middle rotates the keys behind it.
TEST_F(DeviceSession, EditsInTheMiddle) {
  const auto text = some_text(110);
  struct Case {
    const char* method;
    CacheType type;
    double tolerance;
  };
  for (const char* architecture : {"llama", "qwen2"}) {
    const auto device = on_device(architecture);
    const auto host = std::make_shared<Decoder>(device_model(architecture, {}), 1);
    for (const auto& [method, type, tolerance] :
         {Case{"full", CacheType::kF32, 2e-5}, Case{"full", CacheType::kQ8_0, 5e-2},
          Case{"streaming:budget=60,positions=original", CacheType::kF32, 2e-5},
          Case{"h2o:budget=60,positions=cache", CacheType::kF32, 2e-5}}) {
      SCOPED_TRACE(fmt::format("{} {} {}", architecture, method, name_of(type)));
      std::vector<float> logits[2];
      for (const auto& decoder : {device, host}) {
        Session session(decoder, device_options(method, type));
        session.prefill(std::span(text).first(55));
        session.edit(20, 24, std::span(text).subspan(90, 7));
        session.drop(30, 32);
        logits[decoder == host] = decoded(session, std::span(text).subspan(60, 20));
      }
      EXPECT_LE(max_relative_error(logits[0], logits[1], kVocabulary), tolerance);
    }
  }
}

// Of three drafts, every count is accepted in turn: logits and kept tokens are those of a text read token by token, and
// so is a copy of the session.
void expect_as_read_one_by_one(const std::shared_ptr<Decoder>& decoder, const char* method, CacheType type,
                               double tolerance) {
  const auto text = some_text(370);
  constexpr std::size_t kPrompt = 260;
  SessionOptions options = device_options(method, type);
  Session plain(decoder, options);
  options.draft_max = 3;
  Session drafting(decoder, options);
  plain.prefill(std::span(text).first(kPrompt));
  drafting.prefill(std::span(text).first(kPrompt));
  long long read = 0;
  for (std::size_t at = kPrompt, turn = 0; at + 14 < text.size(); ++turn) {
    std::vector<TokenId> drafts(text.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                                text.begin() + static_cast<std::ptrdiff_t>(at) + 4);
    const std::size_t wanted = turn % 4;
    for (std::size_t i = wanted; i < 3; ++i) drafts[i] = (drafts[i] + 1) % kVocabulary;
    const auto logits = drafting.decode(text[at], drafts);
    const std::size_t rows = logits.size() / kVocabulary, accepted = std::min(wanted, rows - 1);
    const std::vector<float> got(logits.begin(),
                                 logits.begin() + static_cast<std::ptrdiff_t>((accepted + 1) * kVocabulary));
    read += static_cast<long long>(rows) - 1;
    drafting.accept(static_cast<int>(accepted));
    const auto truth = decoded(plain, std::span(text).subspan(at, accepted + 1));
    EXPECT_LE(max_relative_error(got, truth, kVocabulary), tolerance) << at;
    at += accepted + 1;
    for (int table = 0; table < plain.cache().tables(); ++table)
      ASSERT_EQ(positions_kept(drafting.cache(), table), positions_kept(plain.cache(), table)) << at;
  }
  EXPECT_GT(read, 60);
  const auto copy = drafting.fork();
  const auto rest = std::span(text).last(10);
  EXPECT_LE(max_relative_error(decoded(*copy, rest), decoded(plain, rest), kVocabulary), tolerance);
}

TEST_F(DeviceSession, Drafts) {
  const auto decoder = on_device();
  for (const char* method :
       {"full", "snapkv:budget=48", "streaming:budget=40,every=9", "streaming:budget=40,every=9,positions=original",
        "lazy:budget=40,every=16", "random:budget=40,every=9", "streaming:budget=40,every=9,mechanism=gather"}) {
    SCOPED_TRACE(method);
    expect_as_read_one_by_one(decoder, method, CacheType::kF32, 2e-5);
  }
}

// Drafts stand behind the slots of the tables: 48 at a budget of 40; 256 at 250, so that the storage grows for them.
TEST_F(DeviceSession, DraftsThatDropAnotherTokenEach) {
  const std::vector<const char*> methods = {"streaming:budget=40",
                                            "streaming:budget=40,positions=original",
                                            "random:budget=40,positions=original",
                                            "random:budget=60,split=pyramid,positions=original",
                                            "lazy:budget=40",
                                            "streaming:budget=250"};
  for (const char* architecture : {"llama", "qwen2", "bloom"})
    for (const CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kQ8_0})
      for (const char* method : some_of(methods, test_length(3U, 6U, 1U))) {
        SCOPED_TRACE(fmt::format("{} {} {}", architecture, kv_format(type).name, method));
        expect_as_read_one_by_one(on_device(architecture), method, type, type == CacheType::kF32 ? 2e-4 : 5e-2);
      }
}

TEST_F(DeviceSession, DraftsThatChangeWhatIsKeptAreRefused) {
  const auto decoder = on_device();
  for (const char* method : {"h2o:budget=40", "h2o:budget=40,every=9", "knorm:budget=40,every=9"}) {
    SessionOptions options = device_options(method);
    options.draft_max = 3;
    EXPECT_NE(error_of([&] { Session(decoder, options); }).find("on devices: supported where no policy observes"),
              std::string::npos)
        << method;
  }
}

// Scores stay on the device from step to step, and come back where something else needs them.
TEST_F(DeviceSession, VictimsAreChosenOnTheDevice) {
  const auto text = some_text(260);
  for (const char* architecture : some_if_sanitized<const char*>({"llama", "qwen2"}, 1)) {
    const auto device = on_device(architecture);
    constexpr double kTolerance = 1e-4;
    const auto host = std::make_shared<Decoder>(device_model(architecture, {}), 1);
    for (const char* method : {"h2o:budget=40", "h2o:budget=40,positions=cache", "h2o:budget=48,recent=0,pin=7-12",
                               "a2sf:budget=40", "h2o:budget=60,split=pyramid", "h2o:budget=40,schedule=prompt+step"}) {
      SCOPED_TRACE(fmt::format("{} {}", architecture, method));
      Session there(device, device_options(method)), here(host, device_options(method));
      const CacheStorage& storage = *there.cache().storage();
      const auto expect_equal = [&](std::span<const TokenId> tokens) {
        for (const TokenId token : tokens) {
          const auto got = decoded(there, std::span(&token, 1)), truth = decoded(here, std::span(&token, 1));
          ASSERT_LE(max_relative_error(got, truth, kVocabulary), kTolerance);
          for (int table = 0; table < here.cache().tables(); ++table)
            ASSERT_EQ(positions_kept(there.cache(), table), positions_kept(here.cache(), table)) << table;
        }
        ASSERT_TRUE(storage.has_scores());
      };
      const auto expect_equal_scores = [&](const Session& session) {
        session.sequence().fetch_scores();
        ASSERT_FALSE(session.cache().storage()->has_scores());
        for (int table = 0; table < here.cache().tables(); ++table)
          for (int slot = 0; slot < here.cache().table(table).slots(); ++slot)
            ASSERT_NEAR(session.cache().table(table).score()[at(slot)], here.cache().table(table).score()[at(slot)],
                        1e-3)
                << table << " " << slot;
      };
      const auto prefill = [&](std::span<const TokenId> tokens) {
        const auto a = there.prefill(tokens), b = here.prefill(tokens);
        const std::vector<float> got(a.begin(), a.end()), truth(b.begin(), b.end());
        EXPECT_LE(max_relative_error(got, truth, kVocabulary), kTolerance);
      };
      prefill(std::span(text).first(70));
      expect_equal(std::span(text).subspan(70, 30));
      expect_equal_scores(there);
      expect_equal(std::span(text).subspan(100, 20));
      prefill(std::span(text).subspan(120, 40));
      EXPECT_FALSE(storage.has_scores());
      expect_equal(std::span(text).subspan(160, 20));
      const auto copy = there.fork();
      expect_equal_scores(*copy);
      expect_equal(std::span(text).subspan(180, 20));
      for (Session* session : {&there, &here}) session->rewind(195);  // below the budget: no token is dropped at first
      for (const TokenId token : std::span(text).subspan(200, 10))
        EXPECT_LE(
            max_relative_error(decoded(there, std::span(&token, 1)), decoded(here, std::span(&token, 1)), kVocabulary),
            kTolerance);
      expect_equal(std::span(text).subspan(210, 20));
      for (Session* session : {&there, &here}) session->clear();
      prefill(std::span(text).first(90));
      expect_equal(std::span(text).subspan(90, 10));
    }
  }
}

// What several tokens at a time, or the device, cannot do: scores are the host's.
TEST_F(DeviceSession, ScoresOfOtherMethodsStayOnTheHost) {
  const auto decoder = on_device();
  for (const char* method : {"h2o:budget=40,every=4", "h2o:budget=40,mechanism=gather", "scissorhands:budget=40",
                             "tova:budget=40", "h2o:budget=40,schedule=prompt"}) {
    Session session(decoder, device_options(method));
    session.prefill(some_text(60));
    decoded(session, some_text(10));
    EXPECT_FALSE(session.cache().storage()->has_scores()) << method;
  }
}

struct DeviceAnswers {
  explicit DeviceAnswers(const SchedulerOptions& options, std::shared_ptr<Decoder> decoder = on_device())
      : scheduler(std::move(decoder), nullptr, options) {}
  Scheduler scheduler;
  std::vector<std::shared_ptr<Answer>> answers;
  void submit(const Request& request) {
    answers.push_back(std::make_shared<Answer>());
    scheduler.submit(request, answers.back());
  }
  void run() {
    while (scheduler.step()) {
    }
    for (const auto& answer : answers) EXPECT_EQ(answer->how, Finish::kLength) << answer->usage.error;
  }
};

Request device_request(const std::string& method, int prompt, int first = 0) {
  Request request;
  const auto text = some_text(first + prompt);
  request.prompt = std::vector<TokenId>(text.begin() + first, text.end());
  request.method = parse_method(method);
  request.max_tokens = 12;
  request.sampler.temperature = 0;
  return request;
}

SchedulerOptions device_scheduler_options() {
  SchedulerOptions options = small_options();
  options.pool_bytes = std::size_t{16} << 20;
  return options;
}

// Each reads its prompt alone, in chunks; then all have seats side by side, in order.
TEST(DeviceLockstep, SequencesAreNeighbours) {
  for (const char* method : {"full", "streaming:budget=300", "h2o:budget=600"}) {
    SCOPED_TRACE(method);
    Lockstep batch(on_device(), device_options(method), 6);
    for (int i = 0; i < batch.sequences(); ++i) batch.session(i).prefill(some_text(1300 + 100 * (i % 3)));
    const auto decode = [&] {
      batch.decode(std::vector<TokenId>(at(batch.sequences()), 1));
      const std::uint64_t first = batch.session(0).cache().storage()->place();
      for (int i = 0; i < batch.sequences(); ++i)
        EXPECT_EQ(batch.session(i).cache().storage()->place(), first + static_cast<std::uint64_t>(i)) << i;
    };
    decode();
    batch.session(2).clear();  // its seat is free for the next
    batch.session(2).prefill(some_text(1300));
    decode();
  }
}

// Neighbours in a slab are one batch of the graph: sequences of unequal lengths, some of which start again while the
// others go on. Each answers as it does alone, by products and by flash attention.
TEST(DeviceLockstep, AnswersAsEachAlone) {
  constexpr std::size_t kSequences = 5, kSteps = 40;
  for (const char* attention : {"products", "flash"}) {
    ASSERT_EQ(::setenv("PALIMPSEST_DEVICE_ATTENTION", attention, 1), 0);
    for (const char* method : kDeviceMethods) {
      // With windows, and without GELU, a table of f16 that enlarges differences of rounding.
      const char* const architecture = attention == std::string("flash") ? "exaone4" : "llama";
      SCOPED_TRACE(fmt::format("{} {} {}", attention, architecture, method));
      const auto decoder = on_device(architecture);
      const SessionOptions options = device_options(method);
      const auto text = some_text(300);
      const auto prompt_of = [&](std::size_t i, bool again) {
        return std::span(text).subspan(7 * i + (again ? 3 : 0), 10 + 23 * i);
      };
      const auto token = [&](std::size_t i, std::size_t step) { return text[(31 * i + step) % text.size()]; };
      const auto starts_again = [](std::size_t i, std::size_t step) { return i % 2 == 1 && step == 20 + 5 * i; };
      std::vector<std::vector<float>> alone(kSequences), together(kSequences);
      for (std::size_t i = 0; i < kSequences; ++i) {
        Session session(decoder, options);
        session.prefill(prompt_of(i, false));
        for (std::size_t step = 0; step < kSteps; ++step) {
          if (starts_again(i, step)) session.clear(), session.prefill(prompt_of(i, true));
          const auto logits = session.decode(token(i, step));
          alone[i].insert(alone[i].end(), logits.begin(), logits.end());
        }
      }
      Lockstep batch(decoder, options, kSequences);
      for (std::size_t i = 0; i < kSequences; ++i) batch.session(static_cast<int>(i)).prefill(prompt_of(i, false));
      for (std::size_t step = 0; step < kSteps; ++step) {
        std::vector<TokenId> tokens;
        for (std::size_t i = 0; i < kSequences; ++i) {
          Session& session = batch.session(static_cast<int>(i));
          if (starts_again(i, step)) session.clear(), session.prefill(prompt_of(i, true));
          tokens.push_back(token(i, step));
        }
        const auto logits = batch.decode(tokens);
        for (std::size_t i = 0; i < kSequences; ++i)
          together[i].insert(together[i].end(), logits.begin() + static_cast<std::ptrdiff_t>(i * kVocabulary),
                             logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * kVocabulary));
      }
      // One sequence's rotation is ggml's operator, several sequences' are not: they round differently.
      for (std::size_t i = 0; i < kSequences; ++i)
        EXPECT_LE(max_relative_error(together[i], alone[i], kVocabulary), 2e-5) << "sequence " << i;
    }
  }
  ::unsetenv("PALIMPSEST_DEVICE_ATTENTION");
}

// Requests of different methods and lengths in one step answer as each alone.
TEST(DeviceScheduler, AnswersAsEachAlone) {
  std::vector<Request> requests;
  int n = 0;
  for (const char* method : kDeviceMethods) requests.push_back(device_request(method, 30 + 7 * n, n)), ++n;
  DeviceAnswers together(device_scheduler_options());
  for (const Request& request : requests) together.submit(request);
  together.run();
  EXPECT_GT(together.scheduler.load().running_peak, 4);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    DeviceAnswers alone(device_scheduler_options());
    alone.submit(requests[i]);
    alone.run();
    EXPECT_EQ(together.answers[i]->tokens, alone.answers[0]->tokens) << spell_short(requests[i].method);
    EXPECT_EQ(alone.scheduler.load().used_bytes, 0U);
  }
}

// With drafts from the text itself, beside others without.
TEST(DeviceScheduler, AnswersWithDrafts) {
  for (const char* method : {"full", "snapkv:budget=48"}) {
    Request request = device_request(method, 60);
    DeviceAnswers plain(device_scheduler_options()), drafting(device_scheduler_options());
    plain.submit(request);
    drafting.submit(request);
    request.drafts = {.max = 3, .adaptive = false};
    drafting.submit(request);
    plain.run();
    drafting.run();
    EXPECT_EQ(drafting.answers[0]->tokens, plain.answers[0]->tokens);
    EXPECT_EQ(drafting.answers[1]->tokens, plain.answers[0]->tokens);
  }
}

TEST(DeviceScheduler, AnswersOverRpc) {
  if (const std::string why = why_no_rpc(); !why.empty()) GTEST_SKIP() << why;
  const auto remote =
      std::make_shared<Decoder>(device_model("llama", {.rpc = two_rpc_servers(), .tensor_split = {1, 1}}), 1);
  DeviceAnswers there(device_scheduler_options(), remote), here(device_scheduler_options());
  for (const char* method : {"full", "streaming:budget=40", "h2o:budget=40", "snapkv:budget=48"})
    for (DeviceAnswers* answers : {&there, &here}) answers->submit(device_request(method, 60));
  there.run();
  here.run();
  for (std::size_t i = 0; i < here.answers.size(); ++i) EXPECT_EQ(there.answers[i]->tokens, here.answers[i]->tokens);
}

// A kept prefix is copied, and gives the answer of a request that reads it itself.
TEST(DeviceScheduler, ContinuesFromAKeptPrefix) {
  for (const char* method : {"full", "streaming:budget=40", "h2o:budget=40", "snapkv:budget=48"}) {
    SCOPED_TRACE(method);
    SchedulerOptions options = device_scheduler_options();
    DeviceAnswers anew(options);
    anew.submit(device_request(method, 90));
    anew.run();
    options.prefix_bytes = options.pool_bytes / 2;
    DeviceAnswers kept(options);
    for (int i = 0; i < 2; ++i) {
      kept.submit(device_request(method, 90));
      kept.run();
    }
    EXPECT_EQ(kept.answers[0]->tokens, anew.answers[0]->tokens);
    EXPECT_EQ(kept.answers[1]->tokens, anew.answers[0]->tokens);
    EXPECT_GT(kept.answers[1]->usage.cached, 0);
    EXPECT_GT(kept.scheduler.load().prefix_bytes, 0U);
  }
}

// What a request reserves holds its storage.
TEST(DeviceScheduler, PlansTheBytesOfItsStorage) {
  for (const char* method : kDeviceMethods)
    for (const CacheType type : {CacheType::kF32, CacheType::kQ8_0}) {
      SCOPED_TRACE(fmt::format("{} {}", method, name_of(type)));
      Session session(on_device(), device_options(method, type));
      const auto text = some_text(300);
      session.prefill(text);
      const std::size_t bytes = session.sequence().plan().bytes(300, 300).pages;
      EXPECT_LE(session.cache().bytes_in_use(), bytes + 2 * 4096);  // a device rounds up each tensor
      EXPECT_GE(2 * session.cache().bytes_in_use(), bytes);
    }
}

// The session of a request is saved and goes on in another one.
TEST(DeviceScheduler, SavesAndResumes) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("palimpsest-device-" + std::to_string(::getpid()))).string();
  for (const char* method : {"streaming:budget=40", "h2o:budget=40"}) {
    SCOPED_TRACE(method);
    Request request = device_request(method, 60);
    request.max_tokens = 24;
    DeviceAnswers whole(device_scheduler_options());
    whole.submit(request);
    whole.run();
    request.max_tokens = 10;
    request.keep = true;
    DeviceAnswers parts(device_scheduler_options());
    parts.submit(request);
    parts.run();
    const std::vector<std::byte> saved = parts.answers[0]->snapshot;
    palimpsest::write_snapshot(path, [&](ByteWriter& out) { out.bytes(saved); });
    Request rest;
    rest.method = request.method;
    rest.max_tokens = 14;
    rest.sampler.temperature = 0;
    rest.resume = std::make_shared<const Snapshot>(path, parts.scheduler.decoder().model());
    parts.submit(rest);
    parts.run();
    std::vector<TokenId> tokens = parts.answers[0]->tokens;
    tokens.insert(tokens.end(), parts.answers[1]->tokens.begin(), parts.answers[1]->tokens.end());
    EXPECT_EQ(tokens, whole.answers[0]->tokens);
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace palimpsest::testing
