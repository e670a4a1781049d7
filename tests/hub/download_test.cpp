// One file by HTTP, from a server that fails in all ways.
#include "palimpsest/hub/download.h"

#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "palimpsest/core/error.h"
#include "tests/hub/hub_server.h"
#include "tests/support/file_content.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class Download : public WithHub {
 protected:
  Download() { hub_.at("/m.gguf").bytes = bytes_; }
  RemoteFile remote(const std::string& path = "/m.gguf") const {
    return {.url = parse_url(hub_.url(path)), .size = bytes_.size(), .sha256 = sha256_hex(bytes_), .magic = "GGUF"};
  }
  Downloaded fetch(const RemoteFile& from) {
    return download(Http(), from, to_, [this](std::uint64_t done, std::uint64_t) { return done < stop_at_; },
                    {.attempts = 3, .pause = 1ms});
  }
  fs::path part() const { return to_.string() + ".part"; }
  fs::path id() const { return to_.string() + ".part.id"; }
  std::size_t part_size() const { return fs::exists(part()) ? fs::file_size(part()) : 0; }
  void expect_whole() const {
    EXPECT_EQ(file_content(to_), bytes_);
    EXPECT_FALSE(fs::exists(part()));
    EXPECT_FALSE(fs::exists(id()));
  }

  const std::string bytes_ = model_bytes(300'000);
  fs::path to_ = folder_ / "m.gguf";
  std::uint64_t stop_at_ = ~std::uint64_t{0};
};

TEST_F(Download, IsWholeAndChecked) {
  const Downloaded done = fetch(remote());
  EXPECT_EQ(done.size, bytes_.size());
  EXPECT_EQ(done.sha256, sha256_hex(bytes_));
  expect_whole();
  EXPECT_TRUE(hub_.seen().front().user_agent.starts_with("palimpsest/"));
}

TEST_F(Download, GoesOnAfterABreak) {
  hub_.at("/m.gguf").break_after = 100'000;
  hub_.at("/m.gguf").failures = 1;
  fetch(remote());
  expect_whole();
  const auto seen = hub_.seen();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].range, "");
  EXPECT_EQ(seen[1].range, "bytes=100000-");
}

TEST_F(Download, ThatBreaksAgainAndAgainIsFinishedByManyRanges) {
  hub_.at("/m.gguf").break_after = 20'000;
  fetch(remote());
  expect_whole();
  EXPECT_EQ(hub_.seen().size(), 15u);
}

TEST_F(Download, StoppedByTheUserGoesOnLater) {
  stop_at_ = 150'000;
  EXPECT_THROW(fetch(remote()), PullStopped);
  EXPECT_FALSE(fs::exists(to_));
  const std::size_t there = part_size();
  EXPECT_GE(there, 150'000u);
  stop_at_ = ~std::uint64_t{0};
  hub_.forget();
  fetch(remote());
  expect_whole();
  EXPECT_EQ(hub_.seen().front().range, "bytes=" + std::to_string(there) + "-");
}

TEST_F(Download, OfAnotherFileBeginsAnew) {
  std::ofstream(part()) << "GGUF of another file";
  std::ofstream(id()) << "another sum";
  fetch(remote());
  expect_whole();
  EXPECT_EQ(hub_.seen().front().range, "");
}

TEST_F(Download, WithADamagedPartBeginsAnew) {
  std::ofstream(part()) << bytes_.substr(0, 1000) << "damage";
  std::ofstream(id()) << sha256_hex(bytes_);
  fetch(remote());
  expect_whole();
}

TEST_F(Download, WithAPartThatIsTooLongBeginsAnew) {
  std::ofstream(part()) << bytes_ << "more";
  std::ofstream(id()) << sha256_hex(bytes_);
  fetch(remote());
  expect_whole();
}

TEST_F(Download, DamagedIsRefusedAndRemoved) {
  hub_.at("/m.gguf").bytes[1000] ^= 1;
  const std::string error = error_of([&] { fetch(remote()); });
  EXPECT_TRUE(has(error, "is damaged: its SHA-256 is")) << error;
  EXPECT_TRUE(has(error, "pull it again")) << error;
  EXPECT_FALSE(fs::exists(to_));
  EXPECT_FALSE(fs::exists(part()));
}

TEST_F(Download, FromAServerWithoutRangesBeginsAnew) {
  hub_.at("/m.gguf").break_after = 100'000;
  hub_.at("/m.gguf").failures = 1;
  hub_.at("/m.gguf").ranges = false;
  fetch(remote());
  expect_whole();
}

// Without a sum, the ETag tells whether the file is the same.
TEST_F(Download, WithoutASumGoesOnByItsEtag) {
  ServedFile& file = hub_.at("/m.gguf");
  file.etag = "\"v1\"";
  RemoteFile from = remote();
  from.size = 0, from.sha256 = "";
  stop_at_ = 150'000;
  EXPECT_THROW(fetch(from), PullStopped);
  EXPECT_GT(part_size(), 0u);
  stop_at_ = ~std::uint64_t{0};
  hub_.forget();
  EXPECT_EQ(fetch(from).sha256, sha256_hex(bytes_));
  expect_whole();
  EXPECT_NE(hub_.seen().front().range, "");

  fs::remove(to_);
  stop_at_ = 150'000;
  EXPECT_THROW(fetch(from), PullStopped);
  stop_at_ = ~std::uint64_t{0};
  const std::string other = model_bytes(300'000, 2);
  file.bytes = other;
  file.etag = "\"v2\"";
  EXPECT_EQ(fetch(from).sha256, sha256_hex(other));
  EXPECT_EQ(file_content(to_), other);
}

TEST_F(Download, WithoutSumAndEtagIsNotContinued) {
  RemoteFile from = remote();
  from.size = 0, from.sha256 = "";
  stop_at_ = 150'000;
  EXPECT_THROW(fetch(from), PullStopped);
  stop_at_ = ~std::uint64_t{0};
  hub_.forget();
  fetch(from);
  EXPECT_EQ(hub_.seen().front().range, "");
  expect_whole();
}

TEST_F(Download, OfUnknownLength) {
  hub_.at("/m.gguf").length = false;
  RemoteFile from = remote();
  from.size = 0;
  fetch(from);
  expect_whole();
}

TEST_F(Download, FollowsRedirectsWithoutTheToken) {
  HubServer cdn;
  cdn.at("/blob").bytes = bytes_;
  hub_.at("/a").location = "/b?x=%2F";
  hub_.at("/b").location = cdn.url("/blob?signature=1");
  RemoteFile from = remote("/a");
  from.headers["authorization"] = "Bearer secret";
  fetch(from);
  expect_whole();
  EXPECT_EQ(hub_.seen()[1].authorization, "Bearer secret");  // the same origin
  EXPECT_EQ(cdn.seen().front().authorization, "");
}

TEST_F(Download, OfCircularRedirectsEnds) {
  hub_.at("/a").location = "/a";
  EXPECT_TRUE(has(error_of([&] { fetch(remote("/a")); }), "redirects more than 10 times"));
}

TEST_F(Download, SaysWhatAStatusMeans) {
  EXPECT_TRUE(has(error_of([&] { fetch(remote("/missing.gguf")); }), "is not there (404): check the address"));
  hub_.at("/m.gguf").status = 401;
  EXPECT_TRUE(has(error_of([&] { fetch(remote()); }), "is not public (401)"));
  hub_.at("/m.gguf").status = 418;
  EXPECT_TRUE(has(error_of([&] { fetch(remote()); }), "status 418"));
  RemoteFile from = remote();
  from.explain = [](int status) { return status == 418 ? "a teapot" : ""; };
  EXPECT_EQ(error_of([&] { fetch(from); }), "a teapot");
}

TEST_F(Download, IsTriedAgainWhileTheServerIsBusy) {
  hub_.at("/m.gguf").status = 503;
  hub_.at("/m.gguf").failures = 2;
  fetch(remote());
  expect_whole();
  fs::remove(to_);
  hub_.at("/m.gguf").failures = 3;
  EXPECT_TRUE(has(error_of([&] { fetch(remote()); }), "cannot be fetched now (503): try again later"));
}

TEST_F(Download, OfNoServerSaysSo) {
  RemoteFile from = remote();
  {
    HubServer gone;
    from.url.port = gone.port();
  }
  const auto start = std::chrono::steady_clock::now();
  const std::string error = error_of([&] { fetch(from); });
  EXPECT_TRUE(has(error, "127.0.0.1 cannot be reached: check the network")) << error;
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  environment_.set("http_proxy", "127.0.0.1:" + std::to_string(from.url.port));
  EXPECT_TRUE(has(error_of([&] { fetch(from); }), "through the proxy http://127.0.0.1:"));
}

TEST_F(Download, GoesThroughAProxy) {
  // A proxy gets the whole address; this one serves the path itself.
  environment_.set("http_proxy", "http://me:pass@127.0.0.1:" + std::to_string(hub_.port()));
  EXPECT_EQ(proxy_for(parse_url("http://example.org/")), "http://me:pass@127.0.0.1:" + std::to_string(hub_.port()));
  EXPECT_EQ(proxy_for(parse_url("https://example.org/")), "");
  environment_.set("no_proxy", "localhost, .example.org");
  EXPECT_EQ(proxy_for(parse_url("http://a.example.org/")), "");
  EXPECT_EQ(proxy_for(parse_url("http://example.org/")), "");
  EXPECT_NE(proxy_for(parse_url("http://notexample.org/")), "");
}

TEST_F(Download, OfAPageInsteadOfAModelIsRefused) {
  hub_.at("/page").bytes = "<!DOCTYPE html><html>please log in</html>";
  RemoteFile from = remote("/page");
  from.size = 0, from.sha256 = "";
  EXPECT_TRUE(has(error_of([&] { fetch(from); }), "is not a GGUF file"));
  EXPECT_FALSE(fs::exists(part()));
}

TEST_F(Download, OfAnotherSizeIsRefused) {
  hub_.at("/m.gguf").bytes += "x";
  EXPECT_TRUE(has(error_of([&] { fetch(remote()); }), "has 300001 bytes; 300000 were expected"));
  hub_.at("/m.gguf").length = false;
  EXPECT_TRUE(has(error_of([&] { fetch(remote()); }), "sends more than the 300000 bytes"));
}

TEST_F(Download, ThatCannotBeWrittenSaysWhatToDo) {
  // A limit on the size of files stands for a full disk: both are errors of write().
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{.rlim_cur = 100'000, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &tight);
  const std::string error = error_of([&] { fetch(remote()); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(has(error, "free some space, or set PALIMPSEST_MODELS to a folder on another disk")) << error;
  EXPECT_FALSE(fs::exists(to_));
  EXPECT_EQ(part_size(), 100'000u);
  hub_.forget();
  fetch(remote());  // there is room again
  expect_whole();
  EXPECT_EQ(hub_.seen().front().range, "bytes=100000-");
}

TEST_F(Download, NeedsRoom) {
  EXPECT_NO_THROW(check_room(folder_, 1000));
  const std::string error = error_of([&] { check_room(folder_, ~std::uint64_t{0}); });
  EXPECT_TRUE(has(error, "are needed and ")) << error;
}

// A link in place of the part would lead the bytes elsewhere.
TEST_F(Download, DoesNotFollowALink) {
  std::ofstream(folder_ / "precious") << "precious";
  fs::create_symlink(folder_ / "precious", part());
  EXPECT_THROW(fetch(remote()), Error);
  EXPECT_EQ(file_content(folder_ / "precious"), "precious");
}

}  // namespace
}  // namespace palimpsest::testing
