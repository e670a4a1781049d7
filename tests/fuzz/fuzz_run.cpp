#include "tests/fuzz/fuzz_run.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <string_view>

#include "palimpsest/core/error.h"
#include "palimpsest/core/memory.h"
#include "palimpsest/core/parse.h"

namespace palimpsest::testing {
namespace {

struct Options {
  long long runs = 100'000, only = -1, seed = 1;
  std::string write;
};

Options parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; i += 2) {
    const std::string_view key = arguments[i];
    if (i + 1 == count) fail("{} wants a value", key);
    const std::string_view value = arguments[i + 1];
    const auto number = [&] { return parse_integer(value, key, 0, 1LL << 40); };
    if (key == "--runs")
      options.runs = number();
    else if (key == "--only")
      options.only = number();
    else if (key == "--seed")
      options.seed = number();
    else if (key == "--write")
      options.write = value;
    else
      fail("unknown option {}: use --runs, --seed, --only or --write", key);
  }
  return options;
}

// The kind of a complaint: the message without names and numbers.
std::string kind(const std::string& complaint) {
  std::string words;
  bool quoted = false;
  for (const char c : complaint.substr(complaint.find(':') + 1)) {
    if (c == '"' || c == '\'') quoted = !quoted;
    if (!quoted && ((c >= 'a' && c <= 'z') || c == ' ') && words.size() < 40) words += c;
  }
  return words;
}

char crash_line[96];

void name_the_input(int signal) {
  static_cast<void>(!write(STDERR_FILENO, crash_line, std::char_traits<char>::length(crash_line)));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

int run(const Options& options, const FuzzTarget& target) {
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, name_the_input);
  const long long first = options.only >= 0 ? options.only : 0;
  const long long last = options.only >= 0 ? options.only + 1 : options.runs;
  std::map<std::string, long long> kinds;
  long long accepted = 0;
  std::size_t resident = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  double told = 0;
  for (long long i = first; i < last; ++i) {
    std::mt19937_64 random(static_cast<std::uint64_t>(options.seed) * 1'000'003 + static_cast<std::uint64_t>(i));
    const std::size_t which = random() % target.files.size();
    Bytes bytes = target.files[which].damaged(random);
    target.repair(bytes);
    std::snprintf(crash_line, sizeof crash_line, "\ninput %lld of seed %lld (--only %lld --seed %lld)\n", i,
                  options.seed, i, options.seed);
    if (!options.write.empty())
      std::ofstream(options.write, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    FuzzReport report;
    try {
      report = target.load(bytes, which, i);
    } catch (const std::exception& other) {
      std::fprintf(stderr, "%sescaped from the loader: %s\n", crash_line, other.what());
      return 1;
    }
    accepted += report.accepted ? 1 : 0;
    if (!report.complaint.empty()) ++kinds[kind(report.complaint)];
    if (options.only >= 0) std::printf("file %zu, accepted %d: %s\n", which, report.accepted, report.complaint.c_str());
    if (i == first + 1000) resident = resident_bytes();
    if (isatty(STDERR_FILENO) != 0 && seconds() > told + 1) {
      told = seconds();
      std::fprintf(stderr, "\r%lld of %lld, %.0f a second, %.0f s left ", i, last,
                   static_cast<double>(i - first) / told,
                   told / static_cast<double>(i - first) * static_cast<double>(last - i));
    }
  }
  std::printf("%lld damaged files: %lld accepted, %zu kinds of complaint; %.0f s, %.0f a second\n", last - first,
              accepted, kinds.size(), seconds(), static_cast<double>(last - first) / seconds());
  if (resident > 0)
    std::printf("resident memory %zu KiB, %lld KiB more than after the first thousand\n", resident_bytes() >> 10,
                static_cast<long long>(resident_bytes() >> 10) - static_cast<long long>(resident >> 10));
  if (last - first >= 1000 && (accepted == 0 || kinds.empty())) {
    std::fprintf(stderr, "%s: nothing was accepted, or nothing refused: the damage is not of the right kind\n",
                 target.name.c_str());
    return 1;
  }
  return 0;
}

}  // namespace

int fuzz_main(int count, char** arguments, const std::function<FuzzTarget()>& make) {
  try {
    const Options options = parse(count, arguments);
    return run(options, make());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", arguments[0], error.what());
    return 2;
  }
}

}  // namespace palimpsest::testing
