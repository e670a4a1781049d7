#include "palimpsest/engine/scheduler/disk_writer.h"

#include <exception>
#include <utility>

#include "palimpsest/core/new_file.h"

namespace palimpsest {
namespace {

constexpr std::size_t kWrittenPart = std::size_t{1} << 20;  // copied at a time
constexpr std::size_t kHeaderBytes = 4096;  // of a file, at most, besides tokens, tables, state and pages

struct Abandoned {};

}  // namespace

DiskWriter::DiskWriter(std::shared_ptr<DiskCache> disk, std::function<void()> wake)
    : disk_(std::move(disk)), wake_(std::move(wake)) {}

DiskWriter::~DiskWriter() {
  abandon();
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

bool DiskWriter::idle() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kIdle;
}

void DiskWriter::begin(const DiskCacheEntry& entry) {
  if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  std::vector<TokenId> tokens(entry.tokens.begin(), entry.tokens.end());
  DiskCacheEntry copy = entry;
  const std::lock_guard lock(mutex_);
  tokens_ = std::move(tokens);
  entry_ = std::move(copy);
  entry_.tokens = tokens_;
  result_ = {};
  state_ = State::kWriting;
  changed_.notify_all();
}

std::optional<DiskWriter::Result> DiskWriter::collect() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kEnded) return std::nullopt;
  state_ = State::kIdle;
  return std::move(result_);
}

void DiskWriter::abandon() noexcept {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kWriting) state_ = State::kAbandoned;
}

void DiskWriter::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state_ == State::kIdle || state_ == State::kEnded; });
}

// With the lock; the cache is read with it only.
DiskWriter::Result DiskWriter::write(std::unique_lock<std::mutex>& lock) {
  const std::size_t bytes = entry_.cache->bytes_in_use() + entry_.cache->bytes_tables() + entry_.state.size() +
                            tokens_.size() * sizeof(TokenId) + kHeaderBytes;
  // Without the lock; afterwards the entry may be abandoned.
  const auto unlocked = [&](auto work) {
    lock.unlock();
    try {
      work();
    } catch (...) {
      lock.lock();
      throw;
    }
    lock.lock();
    if (state_ == State::kAbandoned) throw Abandoned();
  };
  Result result;
  std::string name;
  bool known = false, room = false;
  unlocked([&] {
    name = disk_->name_of(entry_);
    known = disk_->has(name);
    if (known) disk_->mark(name, entry_);
    room = known || disk_->make_room(bytes);
  });
  if (known || !room) return result;
  ChecksummedFile file(disk_->path(name), name);
  std::vector<std::byte> part;
  const auto flush = [&] {
    unlocked([&] { file.write(part); });
    result.bytes += part.size();
    part.clear();
  };
  ByteWriter out([&](std::span<const std::byte> data) {
    part.insert(part.end(), data.begin(), data.end());
    if (part.size() >= kWrittenPart) flush();
  });
  serialize_kept(out, entry_);  // after Abandoned nothing of the cache is touched
  flush();
  unlocked([&] {
    file.commit();
    disk_->mark(name, entry_);
    disk_->make_room(0);  // as large as it is
  });
  result.written = true;
  return result;
}

void DiskWriter::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return state_ == State::kWriting || state_ == State::kAbandoned; })) {
    try {
      if (state_ == State::kWriting) result_ = write(lock);
      state_ = state_ == State::kAbandoned ? State::kIdle : State::kEnded;
    } catch (const Abandoned&) {
      state_ = State::kIdle;
    } catch (const std::exception& error) {
      result_ = {.error = error.what()};
      state_ = state_ == State::kAbandoned ? State::kIdle : State::kEnded;
    }
    changed_.notify_all();
    lock.unlock();
    wake_();
    lock.lock();
  }
}

}  // namespace palimpsest
