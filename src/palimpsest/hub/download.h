// One file by HTTP: resumed by ranges, checked by its SHA-256, renamed when it is complete.
//
//   FILE.part       what has arrived; a killed download goes on from there
//   FILE.part.id    of which file: its SHA-256, or the server's ETag; another one begins anew
//
// The caller has locked the folder.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "palimpsest/hub/http.h"

namespace palimpsest {

// Thrown where the progress function asks to stop. What has arrived stays.
class PullStopped : public std::exception {
 public:
  const char* what() const noexcept override { return "the download was stopped"; }
};

// Returns false to stop. total 0: unknown.
using PullProgress = std::function<bool(std::uint64_t done, std::uint64_t total)>;

struct RemoteFile {
  Url url;
  HttpHeaders headers = {};
  std::uint64_t size = 0;   // 0: the server tells
  std::string sha256 = {};  // empty: not checked
  std::string magic = {};   // what the file begins with
  // What to say of a status that is an error; "" for the usual sentence.
  std::function<std::string(int status)> explain = {};
};

struct RetryOptions {
  int attempts = 5;                      // in a row that bring no byte
  std::chrono::milliseconds pause{500};  // doubled each time
};

struct Downloaded {
  std::uint64_t size = 0;
  std::string sha256;
};

// Throws Error and PullStopped.
Downloaded download(const Http& http, const RemoteFile& remote, const std::filesystem::path& to,
                    const PullProgress& progress, const RetryOptions& retry = {});

// Throws Error if `folder`'s disk has less room than `bytes`.
void check_room(const std::filesystem::path& folder, std::uint64_t bytes);

std::string decimal_bytes(std::uint64_t bytes);  // "98.4 MB", as file sizes on the web

}  // namespace palimpsest
