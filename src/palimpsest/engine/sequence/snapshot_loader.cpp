#include "palimpsest/engine/sequence/snapshot_loader.h"

#include <exception>
#include <utility>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

constexpr int kPagesAStep = 1024;  // pages taken per scheduler step: about 50 us

}  // namespace

SnapshotLoad::SnapshotLoad(std::function<ByteReader()> open, std::unique_ptr<Sequence> sequence,
                           std::shared_ptr<SequenceReturns> returns)
    : open_(std::move(open)), sequence_(std::move(sequence)), returns_(std::move(returns)) {
  returns_->expect_one();
}

SnapshotLoad::~SnapshotLoad() {
  const std::uint64_t id = sequence_ == nullptr ? 0 : id_;  // 0: the request has it, and still runs
  returns_->give_back(std::move(sequence_), id);
}

void SnapshotLoad::work() noexcept {
  try {
    if (state_ == State::kReading) {
      rest_ = open_();
      sequence_->load_tables(rest_);
      state_ = State::kTaking;
    } else {
      sequence_->load_pages(rest_);
      rest_.require_checksum();
      state_ = State::kDone;
    }
  } catch (const std::exception& error) {
    error_ = error.what();
    state_ = State::kFailed;
  }
}

SnapshotLoader::SnapshotLoader(std::shared_ptr<SequenceReturns> returns, std::function<void()> wake)
    : returns_(std::move(returns)), wake_(std::move(wake)) {}

SnapshotLoader::~SnapshotLoader() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<SnapshotLoad> SnapshotLoader::begin(std::function<ByteReader()> open,
                                                    std::unique_ptr<Sequence> sequence, std::uint64_t id) {
  if (!thread_.joinable()) thread_ = std::jthread([this](std::stop_token stop) { run(std::move(stop)); });
  std::shared_ptr<SnapshotLoad> load(
      new SnapshotLoad(std::move(open), std::move(sequence), returns_));  // NOLINT: private
  hand_over(load);
  load->id_ = id;  // after an exception the reservation is still the caller's
  return load;
}

void SnapshotLoader::hand_over(std::shared_ptr<SnapshotLoad> load) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(load));
  came_.notify_one();
}

std::unique_ptr<Sequence> SnapshotLoader::advance(const std::shared_ptr<SnapshotLoad>& load) {
  switch (load->state_) {
    case SnapshotLoad::State::kTaking:
      if (load->sequence_->take_pages(kPagesAStep)) {
        load->state_ = SnapshotLoad::State::kCopying;
        hand_over(load);
      } else {
        wake_();  // more pages to take in the next step
      }
      return nullptr;
    case SnapshotLoad::State::kDone:
      return std::move(load->sequence_);
    case SnapshotLoad::State::kFailed:
      throw Error(load->error_);
    default:
      return nullptr;
  }
}

std::unique_ptr<Sequence> SnapshotLoader::take_back(SnapshotLoad& load) {
  load.sequence_->clear();
  return std::move(load.sequence_);
}

void SnapshotLoader::run(std::stop_token stop) {
  for (;;) {
    std::shared_ptr<SnapshotLoad> load;
    {
      std::unique_lock lock(mutex_);
      if (!came_.wait(lock, stop, [&] { return !queue_.empty(); }) || stop.stop_requested()) return;
      load = std::move(queue_.front());
      queue_.pop_front();
    }
    if (load.use_count() > 1) load->work();  // else it was cancelled
    load.reset();
    wake_();
  }
}

}  // namespace palimpsest
