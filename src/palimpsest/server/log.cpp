#include "palimpsest/server/log.h"

#include <fmt/chrono.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <utility>

#include "palimpsest/core/random_bytes.h"

namespace palimpsest {
namespace {

using Clock = std::chrono::steady_clock;
thread_local Json fields;
thread_local Clock::time_point start = Clock::now();
thread_local bool defer = false;
thread_local std::function<void()> deferred;  // the deferred line

std::FILE* const out = stderr;  // libllama's log is redirected (text/sampler.cpp)

void write(const Json& line) {
  // One call, so that lines of different threads do not mix. A path may hold invalid UTF-8.
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), out);
}

std::string now() {
  const auto time = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const std::time_t whole = std::chrono::system_clock::to_time_t(seconds);
  std::tm utc{};
  gmtime_r(&whole, &utc);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", utc, (time - seconds).count());
}

}  // namespace

Json& log_fields() {
  return fields;
}

void log_begin() {
  fields = Json::object();
  defer = false;
  start = Clock::now();
}

void log_later() {
  defer = true;
}

void log_now() {
  defer = false;
  if (deferred) std::exchange(deferred, nullptr)();
}

void log_end(const std::string& method, const std::string& path, int status, bool quiet) {
  if (defer) {
    deferred = [=] { log_end(method, path, status, quiet); };
    return;
  }
  if (!quiet) {
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    Json line = {{"time", now()}, {"event", "request"}, {"method", method}, {"path", path}, {"status", status}};
    line["ms"] = std::round(ms * 100) / 100;
    line.update(fields);
    write(line);
  }
  log_begin();
}

void log_event(const std::string& event, const Json& more, bool quiet) {
  if (quiet) return;
  Json line = {{"time", now()}, {"event", event}};
  line.update(more);
  write(line);
}

std::string new_id(const char* prefix) {
  std::array<std::byte, 12> random;
  random_bytes(random);
  std::string id = prefix;
  for (const std::byte each : random) id += fmt::format("{:02x}", std::to_integer<unsigned>(each));
  return id;
}

}  // namespace palimpsest
