// A server on loopback with files, ranges and ETags, that speaks Hugging Face's API and the simple API of package
// indexes, and fails as told; and a fixture whose environment leads to it.
#pragma once

#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "palimpsest/core/sha256.h"

namespace palimpsest::testing {

struct ServedFile {
  std::string bytes, etag = {}, type = "application/octet-stream";
  std::string location = {};    // redirects there
  std::string token = {};       // needs "Authorization: Bearer TOKEN", else 401
  int status = 0;               // answers with it, `failures` times
  int failures = 1 << 30;       // of `status` and of `break_after`
  std::size_t break_after = 0;  // the connection breaks behind so many bytes
  bool ranges = true, length = true;
};

struct SeenRequest {
  std::string path, range, authorization, accept, user_agent;
};

class HubServer {
 public:
  HubServer() {
    server_.Get(".*",
                [this](const httplib::Request& request, httplib::Response& response) { answer(request, response); });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    server_.wait_until_ready();
  }
  ~HubServer() {
    server_.stop();
    thread_.join();
  }
  std::string url(const std::string& path = {}) const { return "http://127.0.0.1:" + std::to_string(port_) + path; }
  int port() const { return port_; }

  ServedFile& at(const std::string& path) {
    const std::lock_guard lock(mutex_);
    return files_[path];
  }
  std::vector<SeenRequest> seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    seen_.clear();
  }

  // A repository of the hub: names and contents of its files.
  void add_repository(const std::string& name, const std::map<std::string, std::string>& files,
                      const std::string& licence = "apache-2.0") {
    nlohmann::json info = {{"id", name}, {"sha", kCommit}, {"cardData", {{"license", licence}}}};
    info["siblings"] = nlohmann::json::array();
    for (const auto& [path, bytes] : files) {
      nlohmann::json row = {{"rfilename", path}, {"size", bytes.size()}};
      row["lfs"] = {{"sha256", sha256_hex(bytes)}, {"size", bytes.size()}, {"pointerSize", 130}};
      info["siblings"].push_back(row);
      at("/" + name + "/resolve/" + kCommit + "/" + path).bytes = bytes;
    }
    ServedFile& api = at("/api/models/" + name + "/revision/main");
    api.bytes = info.dump();
    api.type = "application/json";
  }

  // A package of the index at /simple: wheels and contents.
  void add_package(const std::string& name, const std::map<std::string, std::string>& wheels, bool html = false) {
    nlohmann::json page = {{"meta", {{"api-version", "1.1"}}}, {"name", name}, {"files", nlohmann::json::array()}};
    std::string text = "<!DOCTYPE html><html><body>\n";
    for (const auto& [file, bytes] : wheels) {
      const std::string path = "../../files/" + file;
      page["files"].push_back(
          {{"filename", file}, {"url", path}, {"size", bytes.size()}, {"hashes", {{"sha256", sha256_hex(bytes)}}}});
      text += "<a href=\"" + path + "#sha256=" + sha256_hex(bytes) + "\" data-x=\"1\">" + file + "</a><br/>\n";
      at("/files/" + file).bytes = bytes;
    }
    ServedFile& index = at("/simple/" + name + "/");
    index.bytes = html ? text + "</body></html>" : page.dump();
    index.type = html ? "text/html" : "application/vnd.pypi.simple.v1+json";
  }

  static constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

 private:
  void answer(const httplib::Request& request, httplib::Response& response) {
    const std::lock_guard lock(mutex_);
    seen_.push_back({request.path, request.get_header_value("Range"), request.get_header_value("Authorization"),
                     request.get_header_value("Accept"), request.get_header_value("User-Agent")});
    const auto found = files_.find(request.path);
    if (found == files_.end()) {
      response.status = 404;
      return response.set_content("not here", "text/plain");
    }
    ServedFile& file = found->second;
    if (!file.token.empty() && request.get_header_value("Authorization") != "Bearer " + file.token) {
      response.status = 401;
      return response.set_content("who are you", "text/plain");
    }
    if (!file.location.empty()) return response.set_redirect(file.location, 302);
    if (file.status != 0 && file.failures > 0) {
      --file.failures;
      response.status = file.status;
      return response.set_content("no", "text/plain");
    }
    if (!file.etag.empty()) response.set_header("ETag", file.etag);
    const std::string if_range = request.get_header_value("If-Range");
    if (!file.ranges || (!if_range.empty() && if_range != file.etag))
      const_cast<httplib::Request&>(request).ranges.clear();  // else the library obeys them
    if (!file.length)
      return response.set_chunked_content_provider(file.type,
                                                   [bytes = file.bytes](std::size_t, httplib::DataSink& sink) {
                                                     sink.write(bytes.data(), bytes.size());
                                                     sink.done();
                                                     return true;
                                                   });
    std::size_t allowed = bytes_of(file);
    if (file.break_after != 0 && file.failures > 0) --file.failures, allowed = file.break_after;
    response.set_content_provider(file.bytes.size(), file.type,
                                  [bytes = file.bytes, allowed, sent = std::size_t{0}](
                                      std::size_t offset, std::size_t length, httplib::DataSink& sink) mutable {
                                    const std::size_t count = std::min({length, allowed - sent, std::size_t{16} << 10});
                                    if (count == 0) return false;  // breaks the connection
                                    sent += count;
                                    return sink.write(bytes.data() + offset, count);
                                  });
  }
  static std::size_t bytes_of(const ServedFile& file) { return std::max<std::size_t>(1, file.bytes.size()); }

  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::map<std::string, ServedFile> files_;
  std::vector<SeenRequest> seen_;
};

// Sets environment variables until its end.
class Environment {
 public:
  ~Environment() {
    for (const auto& [name, value] : before_)
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
  }
  void set(const std::string& name, const std::string& value) {
    const char* old = std::getenv(name.c_str());
    before_.try_emplace(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

class WithHub : public ::testing::Test {
 protected:
  WithHub() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    for (const char* name : {"HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE", "PIP_CERT", "PIP_CONFIG_FILE", "https_proxy",
                             "HTTPS_PROXY", "http_proxy", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"})
      environment_.set(name, "");
    environment_.set("PALIMPSEST_MODELS", (folder_ / "models").string());
    environment_.set("HF_HOME", (folder_ / "hf").string());
    environment_.set("HF_ENDPOINT", hub_.url());
    environment_.set("PIP_INDEX_URL", hub_.url("/simple"));
  }
  ~WithHub() override { std::filesystem::remove_all(folder_); }

  // The start of a GGUF file, and bytes that differ by `seed`.
  static std::string model_bytes(std::size_t size, unsigned seed = 1) {
    std::string out = "GGUF";
    for (unsigned x = seed; out.size() < size; x = x * 1664525 + 1013904223) out += static_cast<char>(x >> 24);
    return out;
  }

  HubServer hub_;
  Environment environment_;
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("palimpsest-hub-" + std::to_string(::getpid()));
};

// The text of the Error that `work` throws; "": none.
template <typename Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace palimpsest::testing
