// Loads damaged GGUF files by the million: none may do anything but load or end in an Error of one line.
//
//   fuzz_gguf --runs 1000000 [--seed S]    input i follows from S and i alone
//   fuzz_gguf --only I [--seed S] [--write FILE]    one of them again, verbosely
//
// A crash names its input. Build with -DPALIMPSEST_SANITIZE=address,undefined to see more crashes. clang's libFuzzer
// can drive the same target: LLVMFuzzerTestOneInput in gguf_target.cpp.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string_view>

#include "palimpsest/core/error.h"
#include "palimpsest/core/memory.h"
#include "palimpsest/core/parse.h"
#include "tests/fuzz/gguf_mutator.h"
#include "tests/fuzz/gguf_target.h"
#include "tests/fuzz/gguf_valid.h"

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

// The kind of a complaint: its words without names and numbers.
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

int run(const Options& options) {
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, name_the_input);
  std::vector<GgufMutator> models;
  for (auto& [bytes, model] : valid_gguf_files()) {
    if (const auto report = load_gguf(bytes, true, true); report.model != model || !report.vocabulary)
      fail("undamaged file {} does not load: {}", models.size(), report.complaint);
    models.emplace_back(std::move(bytes));
  }
  const long long first = options.only >= 0 ? options.only : 0;
  const long long last = options.only >= 0 ? options.only + 1 : options.runs;
  std::map<std::string, long long> kinds;
  long long accepted = 0, vocabularies = 0;
  std::size_t resident = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  double told = 0;
  for (long long i = first; i < last; ++i) {
    std::mt19937_64 random(static_cast<std::uint64_t>(options.seed) * 1'000'003 + static_cast<std::uint64_t>(i));
    const std::size_t which = random() % models.size();
    const Bytes bytes = models[which].damaged(random);
    std::snprintf(crash_line, sizeof crash_line, "\ninput %lld of seed %lld (--only %lld --seed %lld)\n", i,
                  options.seed, i, options.seed);
    if (!options.write.empty())
      std::ofstream(options.write, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    LoadReport report;
    try {
      report = load_gguf(bytes, i % 2 == 0, i % 8 == 0 || which + 1 == models.size());
    } catch (const std::exception& other) {
      std::fprintf(stderr, "%sescaped from the loader: %s\n", crash_line, other.what());
      return 1;
    }
    accepted += report.model;
    vocabularies += report.vocabulary;
    if (!report.complaint.empty()) ++kinds[kind(report.complaint)];
    if (options.only >= 0)
      std::printf("model %d vocabulary %d: %s\n", report.model, report.vocabulary, report.complaint.c_str());
    if (i == first + 1000) resident = resident_bytes();
    if (isatty(STDERR_FILENO) != 0 && seconds() > told + 1) {
      told = seconds();
      std::fprintf(stderr, "\r%lld of %lld, %.0f a second, %.0f s left ", i, last,
                   static_cast<double>(i - first) / told,
                   told / static_cast<double>(i - first) * static_cast<double>(last - i));
    }
  }
  std::printf(
      "%lld damaged files: %lld loaded, %lld vocabularies read, %zu kinds of complaint; %.0f s, %.0f a second\n",
      last - first, accepted, vocabularies, kinds.size(), seconds(), static_cast<double>(last - first) / seconds());
  if (resident > 0)
    std::printf("resident memory %zu KiB, %lld KiB more than after the first thousand\n", resident_bytes() >> 10,
                static_cast<long long>(resident_bytes() >> 10) - static_cast<long long>(resident >> 10));
  return 0;
}

}  // namespace
}  // namespace palimpsest::testing

int main(int count, char** arguments) {
  try {
    return palimpsest::testing::run(palimpsest::testing::parse(count, arguments));
  } catch (const palimpsest::Error& error) {
    std::fprintf(stderr, "fuzz_gguf: %s\n", error.what());
    return 2;
  }
}
