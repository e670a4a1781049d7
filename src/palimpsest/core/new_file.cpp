#include "palimpsest/core/new_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

constexpr const char* kInfix = ".new.";

// A new name: several threads may write the same path, and so may programs with the same PID on other machines.
std::string beside(const std::string& path) {
  static std::atomic<unsigned> count = 0;
  return path + kInfix + std::to_string(::getpid()) + "." + std::to_string(++count);
}

bool is_removed(int file) {
  struct stat status;
  return ::fstat(file, &status) == 0 && status.st_nlink == 0;
}

}  // namespace

NewFile::NewFile(const std::string& path, const std::string& name)
    : path_(path), name_(name.empty() ? path : name), file_(-1) {
  for (;;) {
    temporary_ = beside(path);
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file_ < 0 && errno == EEXIST) continue;  // another machine's, or of a killed program with this PID
    if (file_ < 0) broken();
    ::flock(file_, LOCK_EX);         // where files cannot be locked, nobody removes them either
    if (!is_removed(file_)) return;  // else remove_abandoned() was faster
    ::close(file_);
  }
}

bool NewFile::is_temporary(const std::string& file) {
  return file.find(kInfix) != std::string::npos;
}

void NewFile::remove_abandoned(const std::string& file) {
  const int open = ::open(file.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);  // does not wait for a FIFO's reader
  if (open < 0) return;                                                      // gone meanwhile, or of another user
  struct stat status;
  if (::fstat(open, &status) == 0 && S_ISREG(status.st_mode) && ::flock(open, LOCK_EX | LOCK_NB) == 0)
    ::unlink(file.c_str());
  ::close(open);
}

NewFile::~NewFile() {
  if (file_ >= 0) ::close(file_);
  if (!done_) ::unlink(temporary_.c_str());
}

void NewFile::write(std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t written = ::write(file_, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) broken();
    data = data.subspan(static_cast<std::size_t>(written));
  }
}

void NewFile::commit() {
  if (::fsync(file_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) broken();
  done_ = true;
  const auto folder = std::filesystem::absolute(path_).parent_path();
  if (const int f = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); f >= 0) {
    ::fsync(f);  // make the rename durable, too
    ::close(f);
  }
}

void NewFile::broken() const {
  fail("{}: cannot be written ({}): is there room, and may this user write there?", name_, std::strerror(errno));
}

void ChecksummedFile::write(std::span<const std::byte> data) {
  sum_.add(data);
  file_.write(data);
}

void ChecksummedFile::commit() {
  const std::uint64_t checksum = sum_.value();
  file_.write(std::as_bytes(std::span(&checksum, 1)));
  file_.commit();
}

void write_new_file(const std::string& path, std::string_view text) {
  NewFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
  using std::filesystem::perms;
  std::filesystem::permissions(path, perms::owner_read | perms::owner_write | perms::group_read | perms::others_read);
}

}  // namespace palimpsest
