#include "palimpsest/hub/download.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <span>
#include <thread>

#include "palimpsest/core/error.h"
#include "palimpsest/core/new_file.h"
#include "palimpsest/hub/part_file.h"

namespace palimpsest {
namespace {

namespace fs = std::filesystem;

bool is_temporary_failure(int status) {
  return status == 408 || status == 429 || status >= 500;
}

std::string usual_sentence(int status, const Url& url) {
  if (status == 404 || status == 410)
    return fmt::format("{} is not there ({}): check the address", url.shown(), status);
  if (status == 401 || status == 403)
    return fmt::format("{} is not public ({}): it needs a login that palimpsest does not have", url.shown(), status);
  if (is_temporary_failure(status))
    return fmt::format("{} cannot be fetched now ({}): try again later", url.shown(), status);
  return fmt::format("{} answers with status {}: check the address", url.shown(), status);
}

std::uint64_t number_at(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

struct Range {
  std::uint64_t first = 0, total = 0;  // total 0: unknown
};

// "bytes 100-199/200"
std::optional<Range> content_range(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  const auto slash = text.find('/');
  return Range{number_at(text.substr(6)), slash == text.npos ? 0 : number_at(text.substr(slash + 1))};
}

// A transfer of one file, over several requests.
class Transfer {
 public:
  Transfer(const Http& http, const RemoteFile& remote, const fs::path& to, const PullProgress& progress)
      : http_(http),
        remote_(remote),
        to_(to),
        id_path_(to.string() + ".part.id"),
        part_(to.string() + ".part"),
        progress_(progress),
        total_(remote.size) {
    std::ifstream(id_path_) >> id_;
    // Bytes of another file, or of nobody knows which.
    if (id_.empty() || (!remote_.sha256.empty() && id_ != remote_.sha256)) begin_anew();
    resumed_ = part_.size() > 0;
  }

  Downloaded run(const RetryOptions& retry) {
    auto pause = retry.pause;
    for (int failures = 0; !complete();) {
      const std::uint64_t before = received_;
      const HttpAnswer answer = request();
      report();
      if (complete()) break;
      if (received_ > before) failures = 0, pause = retry.pause;
      // Whoever is not reached at all is probably offline: not asked again.
      const bool hopeless = received_ == 0 && answer.status == 0;
      if (hopeless || ++failures >= retry.attempts) fail("{}", reason(answer));
      for (auto left = pause; left.count() > 0; left -= kStep) {
        std::this_thread::sleep_for(std::min(left, kStep));
        report();
      }
      pause *= 2;
    }
    return finish();
  }

 private:
  static constexpr std::chrono::milliseconds kStep{100};

  bool complete() const { return known_end_ && part_.size() == total_; }

  void begin_anew() {
    part_.clear();
    std::error_code ignored;
    fs::remove(id_path_, ignored);
    id_.clear();
    known_end_ = remote_.size != 0;
    total_ = remote_.size;
    head_.clear();
  }

  void report() const {
    if (!progress_(part_.size(), total_)) throw PullStopped();
  }

  std::string reason(const HttpAnswer& answer) const {
    if (answer.status == 0) return answer.problem;
    if (answer.status >= 400) return sentence(answer.status);
    return fmt::format("{} ends after {} of {} bytes: try again", remote_.url.shown(), part_.size(), total_);
  }

  std::string sentence(int status) const {
    const std::string theirs = remote_.explain ? remote_.explain(status) : "";
    return theirs.empty() ? usual_sentence(status, remote_.url) : theirs;
  }

  HttpAnswer request() {
    known_end_ = known_end_ || remote_.size != 0;
    if (known_end_ && part_.size() > total_) begin_anew();
    HttpHeaders headers = remote_.headers;
    headers["accept-encoding"] = "identity";
    if (part_.size() > 0) {
      headers["range"] = fmt::format("bytes={}-", part_.size());
      if (remote_.sha256.empty()) headers["if-range"] = id_;
    }
    bool wanted = false;
    const HttpAnswer answer = http_.get(
        remote_.url, headers,
        [&](const HttpAnswer& head) {
          wanted = begin(head);
          return wanted;
        },
        [&](std::string_view piece) {
          if (wanted) append(piece);
          return true;
        });
    if (wanted && answer.status != 0 && !known_end_) end_at(part_.size());  // the answer had no length
    return answer;
  }

  void end_at(std::uint64_t total) {
    known_end_ = true;
    total_ = total;
  }

  // Sees the head of an answer. Returns whether its body is wanted.
  bool begin(const HttpAnswer& head) {
    if (head.status == 416) {  // the part is longer than the file, or as long as a file of unknown size
      const auto range = content_range(head.header("content-range"));
      if (range && range->total == part_.size())
        end_at(range->total);
      else
        begin_anew();
      return false;
    }
    if (is_temporary_failure(head.status)) return false;
    if (head.status != 200 && head.status != 206) fail("{}", sentence(head.status));
    std::uint64_t total = number_at(head.header("content-length"));
    if (head.status == 206) {
      const auto range = content_range(head.header("content-range"));
      if (!range || range->first != part_.size()) {
        begin_anew();  // the next request is without a range
        return false;
      }
      total = range->total;
    } else if (part_.size() > 0) {
      begin_anew();  // the server has no ranges, or another file
      resumed_ = false;
    }
    if (remote_.size != 0 && total != 0 && total != remote_.size)
      fail("{} has {} bytes; {} were expected: the source has another file now", remote_.url.shown(), total,
           remote_.size);
    if (total != 0) known_end_ = true, total_ = total;
    if (remote_.size == 0 && total != 0) check_room(to_.parent_path(), total - std::min(total, part_.size()));
    remember(remote_.sha256.empty() ? head.header("etag") : remote_.sha256);
    return true;
  }

  // Weak ETags ("W/...") do not promise equal bytes.
  void remember(const std::string& id) {
    if (id == id_ || id.empty() || id.starts_with("W/") || id.find_first_of(" \t\r\n") != std::string::npos) return;
    NewFile file(id_path_.string());
    file.write(std::as_bytes(std::span(id)));
    file.commit();
    id_ = id;
  }

  void append(std::string_view piece) {
    if (head_.size() < remote_.magic.size() && part_.size() == head_.size()) {
      head_ += piece.substr(0, remote_.magic.size() - head_.size());
      if (!remote_.magic.starts_with(head_)) {
        forget();
        fail("{} is not a {} file: check the address", remote_.url.shown(), remote_.magic == "GGUF" ? "GGUF" : "zip");
      }
    }
    if (total_ != 0 && part_.size() + piece.size() > total_) {
      forget();
      fail("{} sends more than the {} bytes that it announces: try again later", remote_.url.shown(), total_);
    }
    part_.append(piece);
    received_ += piece.size();
    report();
  }

  void forget() {
    std::error_code ignored;
    fs::remove(id_path_, ignored);
    part_.remove();
  }

  Downloaded finish() {
    Downloaded out{part_.size(), part_.sha256()};
    if (!remote_.sha256.empty() && out.sha256 != remote_.sha256) {
      if (resumed_) {  // the damage may be in the old part
        resumed_ = false;
        begin_anew();
        return run({});
      }
      forget();
      fail(
          "{} is damaged: its SHA-256 is {}, and {} was expected; it was removed: pull it again, or from another "
          "source",
          remote_.url.shown(), out.sha256, remote_.sha256);
    }
    part_.rename_to(to_);
    std::error_code ignored;
    fs::remove(id_path_, ignored);
    return out;
  }

  const Http& http_;
  const RemoteFile& remote_;
  fs::path to_, id_path_;
  PartFile part_;
  const PullProgress& progress_;
  std::string id_;
  std::string head_;  // the first bytes, as far as `magic` goes
  std::uint64_t total_, received_ = 0;
  bool known_end_ = false, resumed_ = false;
};

}  // namespace

std::string decimal_bytes(std::uint64_t bytes) {
  const auto size = static_cast<double>(bytes);
  if (bytes >= 1'000'000'000) return fmt::format("{:.2f} GB", size / 1e9);
  if (bytes >= 1'000'000) return fmt::format("{:.1f} MB", size / 1e6);
  if (bytes >= 1'000) return fmt::format("{:.1f} kB", size / 1e3);
  return fmt::format("{} bytes", bytes);
}

void check_room(const fs::path& folder, std::uint64_t bytes) {
  std::error_code error;
  const auto space = fs::space(folder, error);
  if (!error && space.available < bytes)
    fail("{}: {} are needed and {} are free: free some space, or set PALIMPSEST_MODELS to a folder on another disk",
         folder.string(), decimal_bytes(bytes), decimal_bytes(space.available));
}

Downloaded download(const Http& http, const RemoteFile& remote, const fs::path& to, const PullProgress& progress,
                    const RetryOptions& retry) {
  return Transfer(http, remote, to, progress).run(retry);
}

}  // namespace palimpsest
