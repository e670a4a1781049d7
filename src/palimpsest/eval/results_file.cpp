#include "palimpsest/eval/results_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

using nlohmann::json;

// Parses the complete lines; `end`: the offset after the last of them.
std::vector<json> parse_lines(const std::string& path, std::string_view text, std::size_t& end) {
  std::vector<json> lines;
  end = 0;
  for (std::size_t next; (next = text.find('\n', end)) != std::string_view::npos; end = next + 1) {
    json line = json::parse(text.substr(end, next - end), nullptr, /*allow_exceptions=*/false);
    if (!line.is_object())
      fail("{}: line {} is no JSON object: this is no file of results, or it was edited", path, lines.size() + 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("the results '{}' cannot be read: {}", path, std::strerror(errno));
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::vector<json> read_results(const std::string& path) {
  std::size_t end = 0;
  return parse_lines(path, content(path), end);
}

ResultsFile::ResultsFile(const std::string& path)
    : path_(path), file_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (file_ < 0) fail("the results '{}' cannot be written: {}", path, std::strerror(errno));
  try {
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0)
      fail("the results '{}' are being written by another sweep: wait for it, or name another file", path);
    const std::string text = content(path);
    std::size_t end = 0;
    lines_ = parse_lines(path, text, end);
    torn_ = end < text.size();
    if (torn_ && ::ftruncate(file_, static_cast<off_t>(end)) != 0)
      fail("{}: its torn last line cannot be taken off: {}", path, std::strerror(errno));
  } catch (...) {
    ::close(file_);
    throw;
  }
}

ResultsFile::~ResultsFile() {
  ::close(file_);
}

void ResultsFile::append(const json& line) {
  const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = ::write(file_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("the results '{}' cannot be written: {}", path_, std::strerror(errno));
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(file_) != 0) fail("the results '{}' cannot be written: {}", path_, std::strerror(errno));
}

}  // namespace palimpsest
