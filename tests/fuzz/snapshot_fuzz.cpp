// Restores damaged snapshots with a repaired checksum: each must be refused with an Error of one line, or be usable: it
// decodes past evictions, reads a prompt, saves, and loads the result; or, if numbers overflow, refuses to save.
// Samplers are not resumed: that replays as many random numbers as the snapshot says.
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "palimpsest/core/checksum.h"
#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/snapshot.h"
#include "tests/fuzz/fuzz_run.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/snapshot_valid.h"
#include "tests/support/error_message.h"

namespace palimpsest::testing {
namespace {

void append_checksum(Bytes& bytes) {
  Checksum sum;
  sum.add(bytes);
  const std::uint64_t value = sum.value();
  const auto* const at = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), at, at + sizeof value);
}

constexpr std::string_view kOverflow = "a score that is not a number";

struct Subject {
  ValidSnapshot valid;
  Session session;
  explicit Subject(ValidSnapshot snapshot) : valid(std::move(snapshot)), session(valid.decoder, valid.options) {}
};

void restore(Subject& subject, const Bytes& bytes) {
  static MemoryFile file;
  file.write(bytes);
  load_snapshot(file.path(), subject.session, nullptr);
  if (const char* const fault = subject.session.cache().fault())
    throw std::logic_error(std::string("was restored with a fault: ") + fault);
}

// Throws Error at a legal end of a sequence: the model has no more learned positions.
void go_on(Subject& subject, long long i) {
  Session& session = subject.session;
  for (TokenId token = 1; token < 4 + i % 8; ++token) session.decode(token);
  if (i % 4 == 0) {
    session.prefill(std::vector<TokenId>(30, 5));
    session.decode(3);
  }
  // Scores and statistics may have any size, so sums of them may overflow.
  const char* const fault = session.cache().fault();
  if (fault != nullptr && std::string_view(fault) != kOverflow)
    throw std::logic_error(std::string("has come to a fault: ") + fault);
}

FuzzTarget snapshots() {
  FuzzTarget target{.name = "fuzz_snapshot"};
  const auto subjects = std::make_shared<std::vector<std::unique_ptr<Subject>>>();
  for (ValidSnapshot& valid : valid_snapshots()) {
    Subject& subject = *subjects->emplace_back(std::make_unique<Subject>(std::move(valid)));
    Bytes whole = subject.valid.bytes;
    append_checksum(whole);
    if (const auto complaint = error_message([&] {
          restore(subject, whole);
          go_on(subject, 3);
        });
        !complaint.empty())
      fail("{}: undamaged, and does not go on: {}", subject.valid.name, complaint);
    target.files.emplace_back(subject.valid.bytes, subject.valid.layout);
  }
  target.repair = append_checksum;
  target.load = [subjects](const Bytes& bytes, std::size_t which, long long i) {
    Subject& subject = *(*subjects)[which];
    FuzzReport report;
    report.complaint = error_message([&] { restore(subject, bytes); });
    report.accepted = report.complaint.empty();
    if (!report.accepted) return report;
    report.complaint = error_message([&] { go_on(subject, i); });
    if (!report.complaint.empty()) return report;
    Bytes again;
    ByteWriter out([&](std::span<const std::byte> data) { again.insert(again.end(), data.begin(), data.end()); });
    report.complaint = error_message(
        [&] { serialize_snapshot(out, subject.valid.decoder->model(), subject.session.sequence(), nullptr, {}); });
    const bool overflows =
        subject.session.cache().fault() != nullptr || report.complaint.find("a key or value") != std::string::npos;
    if (report.complaint.empty() == overflows)
      throw std::logic_error("a cache with a fault is saved, or one without is not: " + report.complaint);
    if (!report.complaint.empty()) return report;
    append_checksum(again);
    if (const auto complaint = error_message([&] { restore(subject, again); }); !complaint.empty())
      throw std::logic_error("what it saved then is refused: " + complaint);
    return report;
  };
  return target;
}

}  // namespace
}  // namespace palimpsest::testing

int main(int count, char** arguments) {
  return palimpsest::testing::fuzz_main(count, arguments, palimpsest::testing::snapshots);
}
