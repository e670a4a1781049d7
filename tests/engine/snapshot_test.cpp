// A sequence that is saved and restored continues as if uninterrupted; damaged snapshots are refused.
#include "palimpsest/engine/sequence/snapshot.h"
#include "palimpsest/cache/formats/formats.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>

#include "palimpsest/core/checksum.h"
#include "palimpsest/core/error.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/scheduler_fixture.h"
#include "tests/support/draws.h"
#include "tests/support/file_content.h"
#include "tests/support/scorer_file.h"

namespace palimpsest::testing {
namespace {

std::shared_ptr<Decoder> seeded_decoder(std::uint64_t seed = 1) {
  return std::make_shared<Decoder>(Model::from(make_synthetic({.vocabulary = kVocabulary,
                                                               .width = 64,
                                                               .layers = 2,
                                                               .feed_forward = 96,
                                                               .query_heads = 4,
                                                               .kv_heads = 2,
                                                               .head_dim = 32,
                                                               .seed = seed})),
                                   1);
}

SessionOptions snapshot_options(const std::string& method, CacheTypes type = {}) {
  SessionOptions options;
  options.method = parse_method(method);
  options.cache_type = type;
  options.page_size = 16;
  return options;
}

class SnapshotTest : public ::testing::Test {
 protected:
  SnapshotTest()
      : folder_(std::filesystem::temp_directory_path() / ("palimpsest-snapshots-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~SnapshotTest() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name = "a.snap") const { return (folder_ / name).string(); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::filesystem::path folder_;
};

void write_snapshot(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

struct Writer {  // a session with its sampler and its output
  Session session;
  Sampler sampler;
  SnapshotText text;

  Writer(const std::shared_ptr<Decoder>& decoder, const SessionOptions& options, const SamplerOptions& how)
      : session(decoder, options), sampler(how, nullptr, kVocabulary) {}

  void begin(std::span<const TokenId> prompt) {
    for (const TokenId t : prompt) sampler.accept(t);
    text.tokens.assign(prompt.begin(), prompt.end());
    text.unread = sampler.sample(session.prefill(prompt));
    text.tokens.push_back(text.unread);
  }
  std::vector<float> go_on(int tokens) {  // all logits
    std::vector<float> seen;
    for (int i = 0; i < tokens; ++i) {
      const auto logits = session.decode(text.unread);
      seen.insert(seen.end(), logits.begin(), logits.end());
      text.unread = sampler.sample(logits);
      text.tokens.push_back(text.unread);
    }
    return seen;
  }
};

TEST_F(SnapshotTest, GoesOnToTheLastBit) {
  const auto decoder = seeded_decoder();
  std::mt19937 random(11);
  const std::string learned = "learned:budget=40,scorer=" + path("a.scorer");
  const std::string temporal = "temporal:budget=40,scorer=" + path("a.temporal");
  write_scorer(path("a.scorer"), policy_model(decoder->model(), {}), 1);
  write_scorer(path("a.temporal"), policy_model(decoder->model(), {}), 1, "temporal");
  const std::string triattention = "triattention:budget=40,every=8,scorer=" + path("a.centres");
  write_scorer(path("a.centres"), policy_model(decoder->model(), {}), 1, "triattention");
  const std::vector<const char*> methods = {
      "full",
      "streaming:budget=40",
      "streaming:budget=48,every=8",
      "streaming:budget=48,pin=0-5+9-12",
      "h2o:budget=40",
      "h2o:budget=40,positions=cache",
      "h2o:budget=40,positions=auto",
      "sparse:budget=40",
      "lazy:budget=40,every=6",
      "h2o:budget=40,every=16,max-drop=2",
      "lazy:budget=40,every=6,slack=3,overlap=4,evict=after",
      "streaming:budget=40,mechanism=shift",
      "compact-shift:budget=40",
      "h2o:budget=40,mechanism=gather",
      "random:budget=40",
      "window-recompute:budget=24",
      "streaming:budget=40,rerotate=cached-half",
      "paged-eviction:budget=64",
      "knorm:budget=40,mechanism=append",
      "keydiff:budget=40",
      "tova:budget=40",
      "snapkv:budget=48",
      "scissorhands:budget=40",
      "lagkv:budget=40",
      "r-kv:budget=40,every=8",
      "expected-attention:budget=40,every=8",
      "kvzip:budget=48",
      "kvzip:budget=48,schedule=prompt+step,recent=16",
      "pyramidkv:budget=60,schedule=prompt+step",
      "adakv:budget=48,schedule=prompt+step",
      "adakv:budget=48,recent=8,window=8,schedule=step",
      "global-local:budget=40",
      "ems:budget=40,recent=4,tau=0.1",
      "ems:budget=40,recent=4,tau=0.1,merge-position=own",
      "ems:budget=40,recent=4,tau=0.1,positions=cache,schedule=step",
      "ems:budget=40,recent=4,window=16,score=local,pooling=max,similarity=key,zero-class=off",
      "paged-eviction:budget=40,page=8,page-score=norms",
      "cam:budget=40",
      "snapkv:budget=48,mechanism=match",
      "h2o:budget=40,every=16,mechanism=match,references=8",
      learned.c_str(),
      temporal.c_str(),
      triattention.c_str(),
      "ems:budget=40,recent=4,tau=0,gamma=2,schedule=step"};
  for (const char* method : some_if_sanitized(methods, 8))
    for (const CacheTypes type : some_if_sanitized<CacheTypes>({CacheType::kF32,
                                                                CacheType::kF16,
                                                                CacheType::kQ8_0,
                                                                {CacheType::kF16, CacheType::kQ8_0},
                                                                {CacheType::kQ8_0, CacheType::kF32},
                                                                {CacheType::kQ3, CacheType::kQ2}},
                                                               2)) {
      const bool exact = kv_format(type.key).elementwise();  // keys that are rotated again
      if (!exact && std::string(method).find("compact-shift") != std::string::npos) continue;
      if (!exact && std::string(method).find("cached-half") != std::string::npos) continue;
      SCOPED_TRACE(std::string(method) + " type " + name_of(type));
      SamplerOptions how;
      how.seed = random();
      how.repeat_penalty = 1.1F;
      Writer first(decoder, snapshot_options(method, type), how);
      std::vector<TokenId> prompt(70);
      for (TokenId& t : prompt) t = static_cast<TokenId>(random() % kVocabulary);
      first.begin(prompt);
      first.go_on(30);
      save_snapshot(path(), first.session, &first.sampler, first.text);

      how.seed = 0;
      Writer second(decoder, snapshot_options(method, type), how);
      second.text = load_snapshot(path(), second.session, &second.sampler);
      EXPECT_EQ(second.text.tokens, first.text.tokens);
      EXPECT_EQ(second.session.position(), first.session.position());
      EXPECT_EQ(second.session.cache().bytes_in_use(), first.session.cache().bytes_in_use());
      EXPECT_EQ(first.go_on(60), second.go_on(60));
      EXPECT_EQ(second.text.tokens, first.text.tokens);
    }
}

// States of samplers that older programs do not have: in files of version 2, and only there.
TEST_F(SnapshotTest, HoldsTheStatesOfSamplers) {
  const auto decoder = seeded_decoder();
  const SessionOptions options = snapshot_options("h2o:budget=40");
  const auto version = [&](const SamplerOptions& how) {
    Writer first(decoder, options, how);
    first.begin(std::vector<TokenId>(50, 7));
    first.go_on(30);
    save_snapshot(path(), first.session, &first.sampler, first.text);
    SamplerOptions again = how;
    again.seed = 0;
    Writer second(decoder, options, again);
    second.text = load_snapshot(path(), second.session, &second.sampler);
    EXPECT_EQ(second.sampler.state(), first.sampler.state());
    EXPECT_EQ(first.go_on(40), second.go_on(40));
    EXPECT_EQ(second.text.tokens, first.text.tokens);
    return static_cast<int>(file_content(path()).at(8));
  };
  EXPECT_EQ(version({.seed = 1}), 1);
  EXPECT_EQ(version({.xtc_probability = 0.5F, .seed = 2}), 2);
  EXPECT_EQ(version({.mirostat = 1, .seed = 3}), 2);
  EXPECT_EQ(version({.mirostat = 2, .seed = 4}), 2);
  EXPECT_EQ(version({.min_tokens = 50, .stop_tokens = {1, 2, 3}, .seed = 5}), 2);
}

TEST_F(SnapshotTest, HoldsNothingOfDeadSlots) {
  Session session(seeded_decoder(), snapshot_options("sparse:budget=20", CacheType::kF32));
  session.prefill(std::vector<TokenId>(60, 5));  // some page of 16 is mostly empty
  save_snapshot(path("one.snap"), session, nullptr, {});
  Session other(seeded_decoder(), snapshot_options("sparse:budget=20", CacheType::kF32));
  load_snapshot(path("one.snap"), other, nullptr);
  save_snapshot(path("two.snap"), other, nullptr, {});
  EXPECT_EQ(file_content(path("one.snap")), file_content(path("two.snap")));
}

TEST_F(SnapshotTest, WhatIsDamagedIsRefused) {
  const auto decoder = seeded_decoder();
  const SessionOptions options = snapshot_options("h2o:budget=40");
  Writer writer(decoder, options, {});
  writer.begin(std::vector<TokenId>(50, 7));
  save_snapshot(path(), writer.session, &writer.sampler, writer.text);
  const std::string whole = file_content(path());
  ASSERT_GT(whole.size(), 1000u);
  const auto refused = [&](const std::string& bytes, const std::string& words = "") {
    write_snapshot(path("bad.snap"), bytes);
    Writer reader(decoder, options, {});
    try {
      load_snapshot(path("bad.snap"), reader.session, &reader.sampler);
      ADD_FAILURE() << "was read";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
      EXPECT_EQ(reader.session.cache().occupied(), 0);
      EXPECT_EQ(reader.session.cache().bytes_in_use(), 0u);
    }
  };
  for (std::size_t cut = 0; cut < whole.size(); cut += 97) refused(whole.substr(0, cut));
  std::mt19937 random(2);
  for (int i = 0; i < 200; ++i) {
    std::string bytes = whole;
    bytes[random() % bytes.size()] ^= static_cast<char>(1 << (random() % 8));
    refused(bytes);
  }
  refused(whole + "more", "checksum");
  refused("GGUF" + whole, "no snapshot");
}

// Another process truncates, changes or removes the file after it was opened.
TEST_F(SnapshotTest, MayChangeAfterItWasOpened) {
  const auto decoder = seeded_decoder();
  const SessionOptions options = snapshot_options("h2o:budget=40");
  Writer writer(decoder, options, {});
  writer.begin(std::vector<TokenId>(50, 7));
  save_snapshot(path(), writer.session, &writer.sampler, writer.text);
  const std::string whole = file_content(path());
  const auto refused = [&](const char* words, const std::function<void()>& change) {
    write_snapshot(path("open.snap"), whole);
    const Snapshot open(path("open.snap"), decoder->model());
    change();
    Session reader(decoder, options);
    try {
      open.load(reader.sequence());
      ADD_FAILURE() << "was read";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
    EXPECT_EQ(reader.cache().occupied(), 0);
    EXPECT_EQ(reader.cache().bytes_in_use(), 0u);
  };
  for (const std::size_t size : {std::size_t{0}, std::size_t{300}, whole.size() / 2, whole.size() - 1})
    refused("became shorter", [&] { std::filesystem::resize_file(path("open.snap"), size); });
  refused("checksum", [&] {
    std::string changed = whole;
    changed[changed.size() - 9] ^= 1;  // of a value in the last page
    std::ofstream(path("open.snap"), std::ios::binary | std::ios::in).write(changed.data(), std::ssize(changed));
  });
  const Snapshot open(path(), decoder->model());
  std::filesystem::remove(path());
  Session reader(decoder, options);
  open.load(reader.sequence());
  EXPECT_EQ(reader.cache().occupied(), writer.session.cache().occupied());
}

TEST_F(SnapshotTest, BelongsToItsModelMethodAndCache) {
  Writer writer(seeded_decoder(), snapshot_options("h2o:budget=40"), {});
  writer.begin(std::vector<TokenId>(50, 7));
  save_snapshot(path(), writer.session, &writer.sampler, writer.text);
  const auto says = [&](std::shared_ptr<Decoder> decoder, const SessionOptions& options, const std::string& words) {
    Writer reader(decoder, options, {});
    try {
      load_snapshot(path(), reader.session, &reader.sampler);
      ADD_FAILURE() << words;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
  };
  says(seeded_decoder(2), snapshot_options("h2o:budget=40"), "another model");
  says(seeded_decoder(), snapshot_options("h2o:budget=41"), "was saved with --method h2o");
  says(seeded_decoder(), snapshot_options("h2o:budget=40", CacheType::kF32),
       "was saved with --cache-type f16: give that");
  says(seeded_decoder(), snapshot_options("h2o:budget=40", {CacheType::kF16, CacheType::kF32}),
       "--cache-type f16: give that");
  SessionOptions pages = snapshot_options("h2o:budget=40");
  pages.page_size = 32;
  says(seeded_decoder(), pages, "was saved with --page-size 16: give that");
  Session session(seeded_decoder(), snapshot_options("full"));
  EXPECT_THROW(load_snapshot(path("none.snap"), session, nullptr), Error);
  says(seeded_decoder(), snapshot_options("streaming:budget=40"), "was saved with --method h2o");
  EXPECT_THROW(save_snapshot(path("no/such/folder"), session, nullptr, {}), Error);

  Writer mixed(seeded_decoder(), snapshot_options("h2o:budget=40", {CacheType::kQ8_0, CacheType::kF16}), {});
  mixed.begin(std::vector<TokenId>(50, 7));
  save_snapshot(path(), mixed.session, &mixed.sampler, mixed.text);
  for (const CacheTypes other :
       {CacheTypes(CacheType::kQ8_0), CacheTypes(CacheType::kF16), CacheTypes(CacheType::kF16, CacheType::kQ8_0)})
    says(seeded_decoder(), snapshot_options("h2o:budget=40", other),
         "was saved with --cache-type-k q8_0 --cache-type-v f16: give that");
}

// Replaces the method in the bytes of a snapshot by change(method); repairs the checksum.
std::string with_method(const std::string& bytes, const std::function<void(std::string&)>& change) {
  constexpr std::size_t kAt = 8 + 4 + 4 + 8;  // magic, version, byte order, model
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data() + kAt, sizeof length);
  std::string method = bytes.substr(kAt + sizeof length, length);
  const std::string rest = bytes.substr(kAt + sizeof length + length);
  change(method);
  length = method.size();
  std::string out = bytes.substr(0, kAt) + std::string(reinterpret_cast<const char*>(&length), sizeof length) + method +
                    rest.substr(0, rest.size() - 8);
  Checksum sum;
  sum.add(std::as_bytes(std::span(out)));
  const std::uint64_t checksum = sum.value();
  return out + std::string(reinterpret_cast<const char*>(&checksum), sizeof checksum);
}

// New versions add keys to methods; older snapshots lack them.
TEST_F(SnapshotTest, MethodsAreComparedByTheirChoices) {
  const auto decoder = seeded_decoder();
  const SessionOptions options = snapshot_options("h2o:budget=40,every=3");
  Writer writer(decoder, options, {});
  writer.begin(std::vector<TokenId>(50, 7));
  save_snapshot(path(), writer.session, &writer.sampler, writer.text);
  const std::string whole = file_content(path());
  // The error message of loading it; "": it was loaded.
  const auto refusal = [&](const std::function<void(std::string&)>& change) -> std::string {
    write_snapshot(path("b.snap"), with_method(whole, change));
    Writer reader(decoder, options, {});
    try {
      load_snapshot(path("b.snap"), reader.session, &reader.sampler);
    } catch (const Error& e) {
      return e.what();
    }
    EXPECT_EQ(reader.session.position(), writer.session.position());
    return "";
  };
  const auto replaced = [&](const std::string& from, const std::string& to) {
    return [=](std::string& method) {
      const std::size_t at = method.find(from);
      ASSERT_NE(at, std::string::npos) << method;
      method.replace(at, from.size(), to);
    };
  };
  EXPECT_EQ(refusal([](std::string&) {}), "");
  EXPECT_EQ(refusal(replaced(",refresh=0", "")), "") << "a key that had not been invented";
  EXPECT_EQ(refusal(replaced("h2o:", "ours:")), "") << "another preset with the same choices";
  EXPECT_EQ(refusal(replaced(",split=uniform,sinks=0", ",sinks=0,split=uniform")), "") << "another order";
  EXPECT_NE(refusal(replaced(",every=3", "")).find("was saved with --method h2o"), std::string::npos)
      << "a missing key is the default";
  for (const auto& [from, to] : {std::pair(",every=3", ",every=3,colour=red"), {"in-place", "by-magic"}}) {
    const std::string message = refusal(replaced(from, to));
    EXPECT_NE(message.find("another version of this program, perhaps a newer one"), std::string::npos) << message;
    EXPECT_NE(message.find(to[0] == ',' ? "'colour'" : "by-magic"), std::string::npos) << message;
  }
}

TEST_F(SnapshotTest, NoSuchFileIsSaidOfASnapshot) {
  Session session(seeded_decoder(), snapshot_options("full"));
  try {
    load_snapshot(path("none.snap"), session, nullptr);
    ADD_FAILURE() << "was read";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("give the path of a snapshot"), std::string::npos) << e.what();
  }
}

#ifndef PALIMPSEST_SANITIZED  // forks
// Killed at any time during a write: the old or the new snapshot is there, complete.
TEST_F(SnapshotTest, KilledWhileWriting) {
  const auto decoder = seeded_decoder();
  const SessionOptions options = snapshot_options("full", CacheType::kF32);
  Session session(decoder, options);
  session.prefill(std::vector<TokenId>(400, 3));
  const auto count = [](int k) -> std::vector<TokenId> { return {k / 90 / 90, k / 90 % 90, k % 90}; };
  save_snapshot(path(), session, nullptr, {.tokens = count(0)});
  std::mt19937 random(4);
  int replaced = 0;
  std::vector<TokenId> last = count(0);
  for (int i = 1; i <= 200; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        for (int k = i * 1000;; ++k) save_snapshot(path(), session, nullptr, {.tokens = count(k)});
      } catch (...) {
      }
      ::_exit(1);
    }
    ::usleep(random() % 30000);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    if (i % 5 != 0) continue;
    Session reader(decoder, options);
    const SnapshotText text = load_snapshot(path(), reader, nullptr);
    ASSERT_EQ(reader.cache().occupied(), 400);
    ASSERT_EQ(text.tokens.size(), 3u);
    ASSERT_GE(text.tokens, last);
    replaced += text.tokens > last;
    last = text.tokens;
  }
  EXPECT_GT(replaced, 5);
}
#endif

}  // namespace
}  // namespace palimpsest::testing
