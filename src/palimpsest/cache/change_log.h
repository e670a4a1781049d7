// The slots of a table that changed, for readers that keep what they made of them: a device's masks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

namespace palimpsest {

// Two looks at the same epoch: what changed between them is in changed(), from the length that it had at the first. At
// another epoch anything may have changed. A copy has an epoch of its own.
class ChangeLog {
 public:
  ChangeLog() { restart(); }
  ChangeLog(const ChangeLog&) : ChangeLog() {}
  ChangeLog& operator=(const ChangeLog&) {
    restart();
    return *this;
  }

  void add(int slot) noexcept {
    if (count_ == changed_.size()) restart();
    changed_[count_++] = slot;
  }
  void restart() noexcept {
    static std::atomic<std::uint64_t> last{0};
    epoch_ = ++last;
    count_ = 0;
  }
  std::uint64_t epoch() const { return epoch_; }  // unique, never 0
  std::span<const int> changed() const { return std::span(changed_).first(count_); }

 private:
  std::array<int, 60> changed_;  // NOLINT(cppcoreguidelines-pro-type-member-init): only the first count_ are read
  std::uint32_t count_ = 0;
  std::uint64_t epoch_ = 0;
};

}  // namespace palimpsest
